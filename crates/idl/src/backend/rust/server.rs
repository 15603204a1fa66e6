//! Servers: a trait an interface, the dispatcher, the service that a reply-and-wait loop runs.

use std::collections::BTreeSet;

use crate::ir::{Allocate, Dir, Interface, OnViolation, Ty, TypeId, TypeKind};
use crate::layout;

use super::model::{Gen, Shape};
use super::names;
use super::op::Op;
use super::siblings::{Buffer, Sibling};
use super::text::mentions;
use super::types::doc;

impl<'a> Gen<'a> {
    pub(super) fn server_trait(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let base = interface.base.and_then(|b| self.interface(b));
        let above = base.map(|b| format!(": {}Server", names::camel(&b.name))).unwrap_or_default();
        let mut methods = String::new();
        for op in self.own_ops(interface).iter().filter(|op| op.op.acf.impl_server.is_none()) {
            methods.push_str(&self.declaration(op));
        }
        for id in self.own_handles(interface) {
            let (snake, handle) = (self.type_snake(id), self.type_name(id));
            methods.push_str(&format!(
                "/// A client is gone that still held `handle`.\n\
                 fn {snake}_run_down(&self, _handle: {handle}) {{}}\n"
            ));
        }
        if base.is_none() {
            methods.push_str(
                "/// A client is there.\n\
                 fn client_connected(&self, _client: rt::ClientId, \
                 _credentials: rt::Credentials) {}\n\
                 /// A client has sent bits.\n\
                 fn client_notified(&self, _client: rt::ClientId, _bits: u64) {}\n\
                 /// A client is gone; what it held has been run down.\n\
                 fn client_gone(&self, _client: rt::ClientId) {}\n",
            );
        }
        let text = doc(&interface.doc, &format!("Server of interface `{}`.", interface.name));
        format!("{text}pub trait {name}Server{above} {{\n{methods}}}\n")
    }

    fn declaration(&self, op: &Op<'a>) -> String {
        let params = self.signature(op, true);
        let taken = params.iter().any(|(n, _)| n == "caller" || n == "reply");
        let (caller, reply) = if taken { ("caller_", "reply_") } else { ("caller", "reply") };
        let mut list = params.iter().fold(String::new(), |out, (n, t)| format!("{out}{n}: {t}, "));
        let mut ret = match op.op.oneway {
            true => String::new(),
            false => format!(" -> Result<{}, rt::Fault>", op.return_type(self)),
        };
        let mut errors = "///\n/// # Errors\n/// The fault to answer with.\n";
        if op.deferred {
            list.push_str(&format!("{reply}: {}DeferredReply, ", op.prefix));
            ret = String::new();
        }
        if ret.is_empty() {
            errors = "";
        }
        let many = if params.len() > 5 {
            "#[allow(clippy::too_many_arguments, reason = \"the interface's\")]\n"
        } else {
            ""
        };
        let text = doc(&op.op.doc, &format!("Operation `{}`.", op.op.name));
        let name = &op.name;
        format!("{text}{errors}{many}fn {name}(&self, {caller}: &rt::Caller, {list}){ret};\n")
    }

    /// Context handle types that no base of the interface names.
    fn own_handles(&self, interface: &'a Interface) -> BTreeSet<TypeId> {
        let mut handles = BTreeSet::new();
        for op in &interface.operations {
            op.result.iter().for_each(|ty| self.handles_in(ty, &mut handles, 0));
            op.params.iter().for_each(|p| self.handles_in(&p.ty, &mut handles, 0));
        }
        let mut base = interface.base.and_then(|b| self.interface(b));
        while let Some(above) = base {
            for id in self.own_handles(above) {
                handles.remove(&id);
            }
            base = above.base.and_then(|b| self.interface(b));
        }
        handles
    }

    fn handles_in(&self, ty: &'a Ty, out: &mut BTreeSet<TypeId>, depth: u32) {
        if depth > 16 {
            return;
        }
        match self.shape(ty) {
            Shape::Handle(id) => {
                out.insert(id);
            }
            Shape::Fixed(t, _) | Shape::Unique(t) | Shape::Shared(t) => {
                self.handles_in(t, out, depth + 1);
            }
            Shape::Array(array) => self.handles_in(&array.element, out, depth + 1),
            Shape::Struct(id) => {
                if let Some(TypeKind::Struct(s)) = layout::kind(self.module, id) {
                    s.fields.iter().for_each(|f| self.handles_in(&f.ty, out, depth + 1));
                }
            }
            Shape::Union(id, _) => {
                if let Some(TypeKind::Union(u)) = layout::kind(self.module, id) {
                    let fields = u.arms.iter().filter_map(|a| a.field.as_ref());
                    fields.for_each(|f| self.handles_in(&f.ty, out, depth + 1));
                }
            }
            _ => {}
        }
    }

    /// Whether the interface or a base of it has context handles.
    fn has_handles(&self, interface: &'a Interface) -> bool {
        !self.own_handles(interface).is_empty()
            || interface
                .base
                .and_then(|b| self.interface(b))
                .is_some_and(|base| self.has_handles(base))
    }

    pub(super) fn service(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let snake = names::plain_snake(&interface.name);
        let mut ids = Vec::new();
        let mut next = Some(interface);
        while let Some(i) = next {
            ids.push(format!("{}_ID", names::capitals(&i.name)));
            next = i.base.and_then(|b| self.interface(b));
        }
        let ids = ids.join(", ");
        let count = self.operations(interface).iter().map(|o| o.opnum + 1).max().unwrap_or(0);
        let local = if self.is_inproc(interface) { local(&name) } else { String::new() };
        let mut out = format!(
            "{local}/// Serves interface `{0}` with a server object. Clones share the object and \
             the context handles: one clone a thread.\n\
             #[derive(Debug)]\npub struct {name}Service<S: ?Sized> {{ server: std::sync::Arc<S>, \
             contexts: std::sync::Arc<rt::ContextTable> }}\n\
             impl<S: ?Sized> Clone for {name}Service<S> {{ fn clone(&self) -> Self {{ \
             Self {{ server: std::sync::Arc::clone(&self.server), \
             contexts: std::sync::Arc::clone(&self.contexts) }} }} }}\n\
             impl<S: {name}Server + ?Sized> {name}Service<S> {{\n\
             /// Around a server object.\n#[must_use]\n\
             pub fn new(server: impl Into<std::sync::Arc<S>>) -> Self {{ \
             Self {{ server: server.into(), contexts: std::sync::Arc::default() }} }}\n\
             /// The server object.\n#[must_use]\npub fn server(&self) -> &S {{ &self.server }}\n\
             /// Receives, dispatches and replies until `deadline`.\n///\n/// # Errors\n\
             /// What ends the server.\n\
             pub fn serve<T: rt::ServerTransport>(&mut self, transport: &mut T, \
             deadline: rt::Deadline) -> Result<(), T::Error> {{ \
             rt::serve(transport, self, deadline) }} }}\n",
            interface.name
        );
        out.push_str(&format!(
            "impl<S: {name}Server + ?Sized, T: rt::ServerTransport> rt::Service<T> for \
             {name}Service<S> {{\n\
             fn base_of(&self, wanted: &rt::InterfaceId) -> Option<u16> {{ \
             [{ids}].iter().any(|id| id.serves(wanted)).then_some(0) }}\n\
             fn operations(&self) -> u16 {{ {count} }}\n\
             #[inline]\nfn dispatch(&mut self, op: u16, oneway: bool, request: T::Request<'_>) -> \
             rt::Served<T::Ready> {{ dispatch_{snake}::<S, T>(&self.server, &self.contexts, op, \
             oneway, request) }}\n\
             fn connected(&mut self, client: rt::ClientId, credentials: rt::Credentials) {{ \
             self.server.client_connected(client, credentials); }}\n\
             fn notified(&mut self, client: rt::ClientId, bits: u64) {{ \
             self.server.client_notified(client, bits); }}\n\
             fn gone(&mut self, client: rt::ClientId) {{ \
             for (kind, number) in self.contexts.run_down(client) {{ \
             run_down_{snake}(&*self.server, kind, number); }} \
             self.server.client_gone(client); }} }}\n"
        ));
        out.push_str(&self.run_down(interface));
        out.push_str(&self.dispatcher(interface));
        for op in self.own_ops(interface).iter().filter(|op| op.deferred && !op.op.is_local) {
            out.push_str(&self.deferred_reply(op));
        }
        out
    }

    fn run_down(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let snake = names::plain_snake(&interface.name);
        let arms: Vec<String> = self
            .own_handles(interface)
            .iter()
            .map(|id| {
                let (snake, handle) = (self.type_snake(*id), self.type_name(*id));
                format!("if kind_ == {} {{ server_.{snake}_run_down({handle}(number_)); }}", id.0)
            })
            .collect();
        let rest = interface
            .base
            .and_then(|b| self.interface(b))
            .map(|b| format!("run_down_{}(server_, kind_, number_);", names::plain_snake(&b.name)));
        let body = match (arms.is_empty(), rest) {
            (true, rest) => rest.unwrap_or_default(),
            (false, None) => arms.join(" else "),
            (false, Some(rest)) => format!("{} else {{ {rest} }}", arms.join(" else ")),
        };
        let arg = |n: &str| if mentions(&body, n) { n.to_owned() } else { format!("_{n}") };
        format!(
            "fn run_down_{snake}<S: {name}Server + ?Sized>({}: &S, {}: u32, {}: u64) {{ {body} }}\n",
            arg("server_"),
            arg("kind_"),
            arg("number_")
        )
    }

    fn dispatcher(&self, interface: &'a Interface) -> String {
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
                "dispatch_{}::<S, T>(server_, contexts_, op_, oneway_, request_)",
                names::plain_snake(&b.name)
            ),
            None => "rt::unknown_operation::<T>(oneway_, request_)".to_owned(),
        };
        let many = "#[allow(clippy::too_many_lines, reason = \"one arm an operation\")]";
        let body =
            if arms.is_empty() { rest } else { format!("match op_ {{ {arms} _ => {rest} }}") };
        let arg = |n: &str| if mentions(&body, n) { n.to_owned() } else { format!("_{n}") };
        let mutable = if body.contains("request_.decoder()") { "mut " } else { "" };
        format!(
            "{many}#[inline]\nfn dispatch_{snake}<S: {name}Server + ?Sized, T: rt::ServerTransport>(\
             {}: &S, {}: &std::sync::Arc<rt::ContextTable>, {}: u16, oneway_: bool, \
             {mutable}request_: T::Request<'_>) -> rt::Served<T::Ready> {{ \
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
        let refuse = format!("rt::refuse::<T>(request_, error_, {}, {answer})", op.op.oneway);
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
        let read = format!("{bind}{wire}::get_{plain}_request(d_)?;");
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
    fn sibling_values(&self, op: &Op<'a>) -> Vec<(String, String)> {
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
    fn reply_values_from(&self, op: &Op<'a>, from: &str) -> String {
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
        format!(
            "let served_ = rt::stub::with(decoder_, {}::get_{}_request); \
             match served_ {{ Ok({bind}) => {{ {lets} \
             let token_ = rt::Deferred::new(request_.into_token(), {scope}); \
             let reply_ = {}DeferredReply {{ to: rt::DeferredTo::Remote(token_), {} }}; {call}; \
             rt::Served::Done }} Err(error_) => {refuse} }}",
            op.wire,
            op.plain,
            op.prefix,
            names.join(", ")
        )
    }

    fn deferred_reply(&self, op: &Op<'a>) -> String {
        let name = format!("{}DeferredReply", op.prefix);
        let ret = op.return_type(self);
        let siblings: Vec<String> =
            op.reply_siblings(self).into_iter().map(|i| op.sibling_arg(i)).collect();
        let fields = siblings.iter().fold(String::new(), |o, n| format!("{o}{n}: i128, "));
        let lets = siblings.iter().fold(String::new(), |o, n| format!("{o}let {n} = self.{n};"));
        let zeroes = siblings.iter().fold(String::new(), |o, n| format!("{o}{n}: 0, "));
        let values = self.reply_values_from(op, "out");
        let out = if mentions(&values, "out") { "out" } else { "()" };
        let full = if out == "out" { "out" } else { "()" };
        let (wire, plain) = (&op.wire, &op.plain);
        format!(
            "/// The right to answer one call of `{0}`, later and from any thread. Dropped, it \
             answers [`rt::Fault::DROPPED`].\n\
             #[derive(Debug)]\npub struct {name} {{ to: rt::DeferredTo<{ret}>, {fields} }}\n\
             impl {name} {{\n\
             fn local(sender: rt::MailboxSender<{ret}>) -> Self {{ \
             Self {{ to: rt::DeferredTo::Local(sender), {zeroes} }} }}\n\
             /// Answers.\n///\n/// # Errors\n/// [`rt::Gone`] if nobody waits any more.\n\
             pub fn send(self, {out}: {ret}) -> Result<(), rt::Gone> {{ {lets} match self.to {{ \
             rt::DeferredTo::Local(sender_) => sender_.send(Ok({full})), \
             rt::DeferredTo::Remote(token_) => {{ \
             let size_ = {wire}::{plain}_reply_size(rt::Forms::machine(), {values}); \
             token_.reply(size_, |w_| {wire}::put_{plain}_reply(w_, {values})) }} }} }}\n\
             /// Answers with a fault.\n///\n/// # Errors\n\
             /// [`rt::Gone`] if nobody waits any more.\n\
             pub fn fault(self, fault: rt::Fault) -> Result<(), rt::Gone> {{ match self.to {{ \
             rt::DeferredTo::Local(sender_) => sender_.send(Err(fault)), \
             rt::DeferredTo::Remote(token_) => token_.fault(fault) }} }} }}\n",
            op.op.name
        )
    }
}

/// What an endpoint registers for direct calls.
fn local(name: &str) -> String {
    format!(
        "/// A server object for direct calls within one address space: what an endpoint \
         registers and [`{name}Client::bind`] finds.\n\
         #[derive(Clone)]\npub struct {name}Local(\n/// The object.\n\
         pub std::sync::Arc<dyn {name}Server + Send + Sync>);\n\
         impl core::fmt::Debug for {name}Local {{ \
         fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {{ \
         f.debug_tuple(\"{name}Local\").finish() }} }}\n"
    )
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
