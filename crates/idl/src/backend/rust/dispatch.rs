//! The dispatcher of a server: reads a request, calls the object, writes the reply.
//!
//! In generated code `request_` is the request, `args_` what it carries, `out_` what the method
//! returned. The traits and services around it are in `server`.

use crate::ir::{Allocate, Dir, Interface, OnViolation};

use super::model::{Gen, Shape};
use super::names;
use super::op::Op;
use super::siblings::{Buffer, Sibling};
use super::text::mentions;

impl<'a> Gen<'a> {
    pub(super) fn dispatcher(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let snake = names::plain_snake(&interface.name);
        let answer = interface.acf.on_violation == Some(OnViolation::Fault);
        let handles = self.has_handles(interface);
        let mut arms = String::new();
        for op in self.own_ops(interface).iter().filter(|op| !op.op.is_local) {
            let answer = match op.op.acf.on_violation {
                Some(v) => v == OnViolation::Fault,
                None => answer,
            };
            arms.push_str(&format!(
                "{} if {}oneway_ => {{ {} }}\n",
                op.op.opnum,
                if op.op.oneway { "" } else { "!" },
                self.arm(op, answer, handles)
            ));
        }
        let rest = match interface.base.and_then(|b| self.interface(b)) {
            Some(b) => format!(
                "dispatch_{}_::<S_, T_>(server_, contexts_, op_, oneway_, request_)",
                names::plain_snake(&b.name)
            ),
            None => "rt::unknown_operation::<T_>(oneway_, request_)".to_owned(),
        };
        let many = "#[allow(clippy::too_many_lines, reason = \"one arm an operation\")]";
        let body =
            if arms.is_empty() { rest } else { format!("match op_ {{ {arms} _ => {rest} }}") };
        let arg = |n: &str| if mentions(&body, n) { n.to_owned() } else { format!("_{n}") };
        let mutable = if body.contains("request_.decoder()") { "mut " } else { "" };
        format!(
            "{many}#[inline]\nfn dispatch_{snake}_<S_: {name}Server + ?Sized, T_: rt::ServerTransport>(\
             {}: &S_, {}: &std::sync::Arc<rt::ContextTable>, {}: u16, oneway_: bool, \
             {mutable}request_: T_::Request<'_>) -> rt::Served<T_::Ready> {{ \
             use rt::{{Request as _, Token as _}}; {body} }}\n",
            arg("server_"),
            arg("contexts_"),
            arg("op_"),
        )
        .replace("use rt::{Request as _, Token as _};", imports(&arms))
    }

    fn arm(&self, op: &Op<'a>, answer: bool, handles: bool) -> String {
        let (wire, plain) = (&op.wire, &op.plain);
        let mut out = "let caller_ = request_.caller();".to_owned();
        if handles {
            out.push_str(
                "let scope_ = rt::ContextScope::new(contexts_, caller_.client); \
                 let mut decoder_ = request_.decoder(); decoder_.set_contexts(&scope_);",
            );
        } else {
            out.push_str("let decoder_ = request_.decoder();");
        }
        let refuse = format!("rt::refuse::<T_>(request_, error_, {}, {answer})", op.op.oneway);
        if op.deferred {
            out.push_str(&self.deferred_arm(op, &refuse, handles));
            return out;
        }
        let args = self.call_args(op);
        let mutable = if op.inouts().is_empty() { "" } else { "mut " };
        let bind = if mentions(&args, "args_") || !op.reply_siblings(self).is_empty() {
            format!("let {mutable}args_ = ")
        } else {
            "let _args = ".to_owned()
        };
        let limit = limit(op);
        let read = format!("{limit}{bind}{wire}::get_{plain}_request(d_)?;");
        let call = match &op.op.acf.impl_server {
            Some(path) => format!("{path}(server_, &caller_, {args})"),
            None => format!("server_.{}(&caller_, {args})", op.name),
        };
        if op.op.oneway {
            let give = self.give_back(op);
            out.push_str(&format!(
                "let served_ = rt::stub::with(decoder_, |d_| {{ {read} {call}; {give} Ok(()) }}); \
                 match served_ {{ Ok(()) => rt::Served::Done, Err(error_) => {refuse} }}"
            ));
            return out;
        }
        let (values, pattern) = self.carried(op);
        let buffers = self.buffers(op);
        let give = self.give_back(op);
        let reply = self.reply_of(op, handles);
        let carry = if values == "out_" { String::new() } else { format!(".map(|out_| {values})") };
        let finish = if give.is_empty() {
            format!("Ok({call}{carry})")
        } else {
            format!("let result_ = {call}{carry}; {give} Ok(result_)")
        };
        out.push_str(&format!(
            "let served_ = rt::stub::with(decoder_, |d_| {{ {read} {buffers} \
             {finish} }}); \
             match served_ {{ Ok(Ok({pattern})) => {{ {reply} }} \
             Ok(Err(fault_)) => rt::Served::Reply(request_.into_token().fault(fault_)), \
             Err(error_) => {refuse} }}"
        ));
        out
    }

    /// Arguments of the server's method, from the request `args_`.
    fn call_args(&self, op: &Op<'a>) -> String {
        let mut out = String::new();
        for s in op.list.iter().filter(|s| s.folded.is_none()) {
            let at = format!("args_.{}", s.name);
            let text = match (s.buffer, s.is_in(), s.is_out()) {
                (Some(_), ..) => format!("&mut {}", buffer_name(s)),
                (None, false, _) => continue,
                (None, true, true) if !op.deferred => format!("&mut {at}"),
                (None, true, _) if op.deferred => at,
                (None, true, _) => self.pass(s, &at),
            };
            out.push_str(&format!("{text}, "));
        }
        out
    }

    /// What outlives the request: result, `in, out` values, siblings, buffers; and its pattern.
    fn carried(&self, op: &Op<'a>) -> (String, String) {
        let nothing = op.returned().is_empty();
        let mut values = vec!["out_".to_owned()];
        let mut names = vec![if nothing { "()".to_owned() } else { "out_".to_owned() }];
        for (index, s) in op.inouts() {
            if let (Shape::Handle(_), Some(Dir::InOut)) = (self.shape(s.ty), op.list[index].dir) {
                values.push(format!("before_{}_", bare(&s.name)));
                names.push(format!("before_{}_", bare(&s.name)));
            }
        }
        // Siblings are computed before anything is moved out of the request.
        for (name, value) in self.sibling_values(op) {
            values.push(value);
            names.push(name);
        }
        for (_, s) in op.inouts() {
            values.push(format!("args_.{}", s.name));
            names.push(format!("{}_value_", bare(&s.name)));
        }
        for s in op.list.iter().filter(|s| s.buffer.is_some()) {
            values.push(buffer_name(s));
            names.push(buffer_name(s));
        }
        if values.len() == 1 {
            return (values.remove(0), names.remove(0));
        }
        (format!("({})", values.join(", ")), format!("({})", names.join(", ")))
    }

    /// The `in` siblings that the reply's expressions name: argument names and values.
    pub(super) fn sibling_values(&self, op: &Op<'a>) -> Vec<(String, String)> {
        let texts: Vec<Option<String>> = op
            .wire_list
            .iter()
            .map(|s| {
                (s.folded.is_none() && s.is_in())
                    .then(|| self.restore(s, &format!("args_.{}", s.name), op.deferred))
            })
            .collect();
        let values = self.values(&op.wire_list, &texts);
        op.reply_siblings(self)
            .into_iter()
            .map(|i| (op.sibling_arg(i), values[i].clone().unwrap_or_else(|| "0_i128".to_owned())))
            .collect()
    }

    /// Buffers that stand for the caller's, and handles before the call.
    fn buffers(&self, op: &Op<'a>) -> String {
        let mut out = String::new();
        for (_, s) in op.inouts() {
            if let Shape::Handle(_) = self.shape(s.ty) {
                out.push_str(&format!("let before_{}_ = args_.{};", bare(&s.name), s.name));
            }
        }
        for s in &op.list {
            let Some(buffer) = s.buffer else { continue };
            let (name, element) = (buffer_name(s), self.buffer_element(s));
            if buffer == Buffer::Vec {
                out.push_str(&format!("let mut {name}: Vec<{element}> = Vec::new();"));
                continue;
            }
            let Shape::Array(array) = self.shape(s.ty) else { continue };
            let values = self.sibling_values(op);
            let texts = |index: usize| {
                let arg = op.sibling_arg(index);
                values.iter().find(|(n, _)| *n == arg).map(|(_, v)| v.clone())
            };
            let count =
                super::siblings::expr(&array.size, &texts).unwrap_or_else(|| "0_i128".into());
            out.push_str(&format!(
                "let mut {name} = match rt::stub::buffer::<{element}>({count}) {{ \
                 Ok(buffer_) => buffer_, Err(fault_) => return Ok(Err(fault_)) }};"
            ));
        }
        out
    }

    /// Gives vectors back to their pools.
    fn give_back(&self, op: &Op<'a>) -> String {
        let mut out = String::new();
        for s in op.list.iter().filter(|s| s.is_in() && !s.is_out()) {
            if let Some(Allocate::Pool(pool)) = s.acf.and_then(|a| a.allocate.as_ref())
                && self.provider(s).is_some()
            {
                out.push_str(&format!("{pool}.give(args_.{});", s.name));
            }
        }
        out
    }

    /// Measures and writes the reply.
    fn reply_of(&self, op: &Op<'a>, handles: bool) -> String {
        let mut out = String::new();
        for (_, s) in op.inouts() {
            if let Shape::Handle(id) = self.shape(s.ty) {
                let name = bare(&s.name);
                out.push_str(&format!(
                    "if before_{name}_ != {name}_value_ {{ \
                     contexts_.forget(caller_.client, {}, before_{name}_.0); }}",
                    id.0
                ));
            }
        }
        let scope =
            if handles { "Some(rt::ContextScope::new(contexts_, caller_.client))" } else { "None" };
        let values = self.reply_values_from(op, "out_");
        let (wire, plain) = (&op.wire, &op.plain);
        out.push_str(&format!(
            "let size_ = {wire}::{plain}_reply_size(rt::Forms::machine(), {values}); \
             rt::Served::Reply(rt::stub::reply(request_.into_token(), size_, {scope}, \
             |w_| {wire}::put_{plain}_reply(w_, {values})))"
        ));
        out
    }

    /// The reply's values as wire functions want them.
    pub(super) fn reply_values_from(&self, op: &Op<'a>, from: &str) -> String {
        let mut out = String::new();
        for index in op.reply_siblings(self) {
            out.push_str(&format!("{}, ", op.sibling_arg(index)));
        }
        let single = op.returned().len() == 1;
        let place = |name: &str| if single { from.to_owned() } else { format!("{from}.{name}") };
        if let Some(ty) = &op.op.result {
            out.push_str(&format!("{}, ", self.borrow_param(ty, &place("ret"))));
        }
        for s in op.wire_list.iter().filter(|s| s.is_out() && s.folded.is_none()) {
            let text = if s.buffer.is_some() {
                format!("&{}", buffer_name(s))
            } else if s.is_in() && !op.deferred {
                self.borrow_param(s.ty, &format!("{}_value_", bare(&s.name)))
            } else {
                self.borrow_param(s.ty, &place(&s.name))
            };
            out.push_str(&format!("{text}, "));
        }
        out
    }

    fn deferred_arm(&self, op: &Op<'a>, refuse: &str, handles: bool) -> String {
        let args = self.call_args(op);
        let scope =
            if handles { "Some(rt::ContextScope::new(contexts_, caller_.client))" } else { "None" };
        let siblings = self.sibling_values(op);
        let lets = siblings.iter().fold(String::new(), |o, (n, v)| format!("{o}let {n} = {v};"));
        let names: Vec<String> = siblings.into_iter().map(|(n, _)| n).collect();
        let call = match &op.op.acf.impl_server {
            Some(path) => format!("{path}(server_, &caller_, {args} reply_)"),
            None => format!("server_.{}(&caller_, {args} reply_)", op.name),
        };
        let bind = if mentions(&args, "args_") || mentions(&lets, "args_") { "args_" } else { "_" };
        let get = format!("{}::get_{}_request", op.wire, op.plain);
        let read = match limit(op) {
            limit if limit.is_empty() => get,
            limit => format!("|d_| {{ {limit} {get}(d_) }}"),
        };
        format!(
            "let served_ = rt::stub::with(decoder_, {read}); \
             match served_ {{ Ok({bind}) => {{ {lets} \
             let token_ = rt::Deferred::new(request_.into_token(), {scope}); \
             let reply_ = {}DeferredReply {{ to: rt::DeferredTo::Remote(token_), {} }}; {call}; \
             rt::Served::Done }} Err(error_) => {refuse} }}",
            op.prefix,
            names.join(", ")
        )
    }
}

/// `max_message`: what is larger is a violation, as what breaks any other rule.
fn limit(op: &Op<'_>) -> String {
    op.op.acf.max_message.map_or_else(String::new, |bytes| format!("d_.within({bytes})?;"))
}

fn imports(arms: &str) -> &'static str {
    match (arms.contains("request_"), arms.contains(".fault(")) {
        (true, true) => "use rt::{Request as _, Token as _};",
        (true, false) => "use rt::Request as _;",
        _ => "",
    }
}

fn buffer_name(s: &Sibling<'_>) -> String {
    format!("{}_buffer_", bare(&s.name))
}

fn bare(name: &str) -> &str {
    name.strip_prefix("r#").unwrap_or(name)
}
