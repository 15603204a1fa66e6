//! Generated tests: a driver that calls every operation, a server that knows what must arrive, and
//! attacks on the decoders. Values come from `random`.

use crate::ir::Interface;

use super::model::{Gen, Shape};
use super::names;
use super::op::Op;
use super::siblings::{Buffer, Sibling, Source};

impl<'a> Gen<'a> {
    /// Everything `Options::tests` asks for.
    pub(super) fn tests(&self) -> String {
        let mut out = self.random_types();
        for interface in self.module.interfaces.iter().filter(|i| !i.is_local) {
            let snake = names::plain_snake(&interface.name);
            let mut inner = String::new();
            for op in self.own_ops(interface).iter().filter(|op| !op.op.is_local) {
                inner.push_str(&self.random_op(op));
                inner.push_str(&self.bodies(op));
            }
            inner.push_str(&self.driver(interface));
            inner.push_str(&self.oracle(interface));
            out.push_str(&format!(
                "/// Tests of interface `{0}`: see `docs/reference/idl-random.md`.\n\
                 #[allow(missing_docs, reason = \"generated: for tests only\")]\n\
                 pub mod {snake}_random {{ \
                 #[allow(unused_imports, reason = \"generated: an interface may need none\")] \
                 use super::*;\n{inner} }}\n",
                interface.name
            ));
            out.push_str(&self.test_module(interface));
        }
        out
    }

    /// Functions that give the bodies of drawn values: `OP_in_body`, `OP_out_body`.
    fn bodies(&self, op: &Op<'a>) -> String {
        let (wire, plain, prefix) = (&op.wire, &op.plain, &op.prefix);
        let args = self.in_args(op, "in_");
        let mut out = format!(
            "/// A request of `{0}` as a message.\n\
             pub fn {plain}_in_message(forms: rt::Forms, {i}: &{prefix}RandomIn) -> \
             Result<rt::loopback::Message, rt::EncodeError> {{ rt::loopback::build(\
             {wire}::{plain}_request_size(forms, {args})?, \
             |w_| {wire}::put_{plain}_request(w_, {args})) }}\n",
            op.op.name,
            i = super::text::used(&args, "in_"),
        );
        if op.op.oneway {
            return out;
        }
        let mut args = self.sibling_list(op, "in_");
        args.push_str(&self.out_args(op, "out_"));
        out.push_str(&format!(
            "/// A reply of `{0}` as a message.\n\
             pub fn {plain}_out_message(forms: rt::Forms, {i}: &{prefix}RandomIn, \
             {o}: &{prefix}RandomOut) -> Result<rt::loopback::Message, rt::EncodeError> {{ \
             rt::loopback::build({wire}::{plain}_reply_size(forms, {args})?, \
             |w_| {wire}::put_{plain}_reply(w_, {args})) }}\n",
            op.op.name,
            i = super::text::used(&args, "in_"),
            o = super::text::used(&args, "out_"),
        ));
        out
    }

    /// Values of a drawn request as wire functions want them.
    fn in_args(&self, op: &Op<'a>, from: &str) -> String {
        let there = op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none());
        there.fold(String::new(), |out, s| {
            format!("{out}{}, ", self.borrow_param(s.ty, &format!("{from}.{}", s.name)))
        })
    }

    /// Values of a drawn reply as wire functions want them.
    fn out_args(&self, op: &Op<'a>, from: &str) -> String {
        let mut out = String::new();
        if let Some(ty) = &op.op.result {
            out.push_str(&format!("{}, ", self.borrow_param(ty, &format!("{from}.ret"))));
        }
        for s in op.wire_list.iter().filter(|s| s.is_out() && s.folded.is_none()) {
            out.push_str(&format!("{}, ", self.borrow_param(s.ty, &format!("{from}.{}", s.name))));
        }
        out
    }

    fn sibling_list(&self, op: &Op<'a>, from: &str) -> String {
        let named = op.reply_siblings(self).into_iter();
        named.fold(String::new(), |out, i| format!("{out}{from}.c{i}_, "))
    }

    // ---- client ----

    fn driver(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let mut steps = String::new();
        let mut functions = String::new();
        for op in self.all_ops(interface).iter().filter(|op| is_driven(op)) {
            steps.push_str(&format!(
                "drive_{}(client_, seed_.wrapping_add(k_)).map_err(|e_| \
                 format!(\"{}, call {{k_}}: {{e_}}\", ))?; k_ += 1;",
                op.plain, op.op.name
            ));
            functions.push_str(&self.drive_op(&name, op));
        }
        let steps = steps.replace(", ))?", "))?");
        format!(
            "/// Calls every operation `rounds_` times with random values and checks what comes \
             back.\n///\n/// # Errors\n/// Which call failed, and how.\n\
             pub fn drive<T_: rt::Transport>(client_: &mut {name}Client<T_>, seed_: u64, \
             rounds_: u64) -> Result<(), String> {{ let mut k_ = 0; \
             for _ in 0..rounds_ {{ {steps} }} let _ = (client_, seed_, k_); Ok(()) }}\n{functions}"
        )
    }

    fn drive_op(&self, client: &str, op: &Op<'a>) -> String {
        let (prefix, plain) = (&op.prefix, &op.plain);
        let home = op.wire.replace("_wire", "_random");
        let path = |f: &str| format!("super::{home}::{plain}_{f}");
        let number = op.op.opnum;
        let mut body = format!(
            "let in_ = {}(&mut rt::random::Random::stream(seed_, {number}, 1));",
            path("in")
        );
        let mut args = String::new();
        for s in op.list.iter().filter(|s| s.folded.is_none()) {
            if let Some(buffer) = s.buffer {
                body.push_str(&self.client_buffer(op, s, buffer));
                args.push_str(&format!("&mut {}, ", s.name));
            } else if s.is_in() && s.is_out() && !op.deferred {
                let value = match self.shape(s.ty) {
                    Shape::Descriptor => format!("rt::random::duplicate(&in_.{})", s.name),
                    _ => format!("in_.{}.clone()", s.name),
                };
                body.push_str(&format!("let mut {} = {value};", s.name));
                args.push_str(&format!("&mut {}, ", s.name));
            } else if s.is_in() {
                args.push_str(&format!(
                    "{}, ",
                    self.borrow_param(s.ty, &format!("in_.{}", s.name))
                ));
            }
        }
        let call = format!("client_.{}({args}).map_err(|e_| e_.to_string())?", op.name);
        if op.op.oneway || op.outs(true).is_empty() && !op.list.iter().any(Sibling::is_out) {
            body.push_str(&format!("{call};"));
        } else {
            body.push_str(&self.compare_reply(op, &call, &path("out"), &path("out_message")));
        }
        format!(
            "#[allow(clippy::clone_on_copy, reason = \"generated: copies and clones alike\")]\n\
             fn drive_{plain}<T_: rt::Transport>(client_: &mut {client}Client<T_>, seed_: u64) -> \
             Result<(), String> {{ {body} let _: &super::{home}::{prefix}RandomIn = &in_; Ok(()) }}\n"
        )
    }

    fn client_buffer(&self, op: &Op<'a>, s: &Sibling<'a>, buffer: Buffer) -> String {
        let element = self.buffer_element(s);
        if buffer == Buffer::Vec {
            return format!("let mut {}: Vec<{element}> = Vec::new();", s.name);
        }
        let Shape::Array(array) = self.shape(s.ty) else { return String::new() };
        let value = |i: usize| (!op.wire_list[i].is_out()).then(|| format!("in_.c{i}_"));
        let size = super::siblings::expr(&array.size, &value).unwrap_or_else(|| "0_i128".into());
        format!("let mut {} = vec![<{element} as rt::Pod>::ZERO; ({size}) as usize];", s.name)
    }

    /// Compares what came back with what must have.
    fn compare_reply(&self, op: &Op<'a>, call: &str, draw: &str, message: &str) -> String {
        let home = op.wire.replace("_wire", "_random");
        let number = op.op.opnum;
        let mut fields = Vec::new();
        let returned = op.returned();
        for o in &returned {
            let from =
                if returned.len() == 1 { "got_".to_owned() } else { format!("got_.{}", o.name) };
            fields.push(format!("{}: {from}", o.name));
        }
        for s in op.list.iter().filter(|s| s.buffer.is_some()) {
            fields.push(s.name.clone());
        }
        for (_, s) in op.inouts() {
            fields.push(s.name.clone());
        }
        let bind = if returned.is_empty() { "" } else { "let got_ = " };
        format!(
            "{bind}{call}; let got_ = super::{home}::{}RandomOut {{ {} }}; \
             let want_ = {draw}(&mut rt::random::Random::stream(seed_, {number}, 2), &in_); \
             rt::random::same({message}(rt::Forms::BODY, &in_, &want_), {message}(rt::Forms::BODY, &in_, &got_))\
             .map_err(|e_| format!(\"{{e_}}: wanted {{want_:?}}, got {{got_:?}}\"))?;",
            op.prefix,
            fields.join(", ")
        )
    }

    // ---- server ----

    fn oracle(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let mut impls = String::new();
        let mut next = Some(interface);
        while let Some(i) = next {
            let mut methods = String::new();
            for op in self.own_ops(i).iter().filter(|op| op.op.acf.impl_server.is_none()) {
                methods.push_str(&self.oracle_method(op));
            }
            impls.push_str(&format!(
                "impl {}Server for {name}Oracle {{ {methods} }}\n",
                names::camel(&i.name)
            ));
            next = i.base.and_then(|b| self.interface(b));
        }
        format!(
            "/// Computes what every call must bring, answers with what it must give, and with \
             fault 0x1000 if something else came.\n\
             #[derive(Debug)]\npub struct {name}Oracle {{ seed: u64, \
             k: std::sync::atomic::AtomicU64, failed: std::sync::atomic::AtomicBool }}\n\
             impl {name}Oracle {{\n#[must_use]\npub fn new(seed: u64) -> Self {{ \
             Self {{ seed, k: 0.into(), failed: false.into() }} }}\n\
             /// The seed of the call that has come.\n#[must_use]\npub fn next_seed(&self) -> u64 {{ \
             self.seed.wrapping_add(self.k.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) }}\n\
             /// Whether this call, or a one-way message before it, was wrong.\n\
             pub fn check(&self, oneway: bool, same: Result<(), String>) -> Result<(), rt::Fault> {{ \
             let wrong = same.is_err(); \
             if oneway {{ if wrong {{ \
             self.failed.store(true, std::sync::atomic::Ordering::Relaxed); }} return Ok(()); }} \
             if wrong || self.failed.swap(false, std::sync::atomic::Ordering::Relaxed) {{ \
             return Err(rt::Fault(rt::Fault::FIRST_OWN)); }} Ok(()) }} }}\n{impls}"
        )
    }

    fn oracle_method(&self, op: &Op<'a>) -> String {
        let params = self.signature(op, true);
        let mut list = String::new();
        for (n, t) in &params {
            let bare = n.strip_prefix("r#").unwrap_or(n);
            let shown = if op.op.is_local { format!("_{bare}") } else { n.clone() };
            list.push_str(&format!("{shown}: {t}, "));
        }
        let ret = match (op.op.oneway, op.deferred) {
            (true, _) | (_, true) => String::new(),
            _ => format!(" -> Result<{}, rt::Fault>", op.return_type(self)),
        };
        if op.deferred {
            list.push_str(&format!("reply_: {}DeferredReply, ", op.prefix));
        }
        if op.op.is_local {
            return format!(
                "fn {}(&self, _: &rt::Caller, {list}){ret} {{ \
                 Err(rt::Fault::UNKNOWN_OPERATION) }}\n",
                op.name
            );
        }
        let body = self.oracle_body(op);
        format!("fn {}(&self, _: &rt::Caller, {list}){ret} {{ {body} }}\n", op.name)
    }

    fn oracle_body(&self, op: &Op<'a>) -> String {
        let (wire, plain) = (&op.wire, &op.plain);
        let home = op.wire.replace("_wire", "_random");
        let number = op.op.opnum;
        let args = self.received_args(op);
        let mut body = format!(
            "let seed_ = self.next_seed(); \
             let in_ = super::{home}::{plain}_in(\
             &mut rt::random::Random::stream(seed_, {number}, 1)); \
             let came_ = {wire}::{plain}_request_size(rt::Forms::BODY, {args}).and_then(|size_| \
             rt::loopback::build(size_, |w_| {wire}::put_{plain}_request(w_, {args}))); \
             let checked_ = self.check({}, rt::random::same(\
             super::{home}::{plain}_in_message(rt::Forms::BODY, &in_), came_));",
            op.op.oneway
        );
        if op.op.oneway {
            body.push_str("let _recorded = checked_;");
            return body;
        }
        let out = format!(
            "super::{home}::{plain}_out(\
             &mut rt::random::Random::stream(seed_, {number}, 2), &in_)"
        );
        let bind = |used: bool| if used { "let out_ = " } else { "let _out = " };
        let result = self.returned_from(op, "out_");
        if op.deferred {
            body.push_str(&format!(
                "let _gone = match checked_ {{ Err(fault_) => reply_.fault(fault_), \
                 Ok(()) => {{ {} {out}; reply_.send({result}) }} }};",
                bind(super::text::mentions(&result, "out_"))
            ));
            return body;
        }
        let mut moves = String::new();
        for (_, s) in op.inouts() {
            moves.push_str(&format!("*{0} = out_.{0};", s.name));
        }
        for s in &op.list {
            match s.buffer {
                Some(Buffer::Slice) => moves.push_str(&format!(
                    "if {0}.len() != out_.{0}.len() {{ \
                     return Err(rt::Fault(rt::Fault::FIRST_OWN)); }} \
                     rt::overwrite({0}, &out_.{0});",
                    s.name
                )),
                Some(Buffer::Vec) => moves.push_str(&format!("*{0} = out_.{0};", s.name)),
                None => {}
            }
        }
        let used = super::text::mentions(&result, "out_") || !moves.is_empty();
        body.push_str(&format!("checked_?; {}{out}; {moves} Ok({result})", bind(used)));
        body
    }

    /// The arguments of a server's method as wire functions want them.
    fn received_args(&self, op: &Op<'a>) -> String {
        let mut out = String::new();
        for (s, shown) in op.wire_list.iter().zip(&op.list).filter(|(s, _)| s.is_in()) {
            if s.folded.is_some() {
                continue;
            }
            let text = match shown.folded {
                Some(Source::Len(other)) => {
                    format!("{}.len() as {}", op.list[other].name, self.owned(s.ty))
                }
                _ if s.is_out() && !op.deferred => {
                    self.borrow_param(s.ty, &format!("(*{})", s.name))
                }
                _ if op.deferred || matches!(self.shape(s.ty), Shape::Descriptor) => {
                    self.borrow_param(s.ty, &s.name)
                }
                _ => s.name.clone(),
            };
            out.push_str(&format!("{text}, "));
        }
        out
    }

    // ---- tests ----

    fn test_module(&self, interface: &'a Interface) -> String {
        let name = names::camel(&interface.name);
        let snake = names::plain_snake(&interface.name);
        let mut attacks = String::new();
        for op in self.own_ops(interface).iter().filter(|op| !op.op.is_local) {
            attacks.push_str(&self.attack(op));
        }
        format!(
            "#[cfg(test)]\nmod {snake}_tests {{ use super::*; use super::{snake}_random::*;\n\
             #[test]\nfn every_operation_brings_and_gives_what_it_must() {{ \
             for (seed_, threshold_) in [(1, usize::MAX), (2, 8), (3, 64)] {{ \
             rt::set_reference_threshold(threshold_); \
             let service_ = std::rc::Rc::new(std::cell::RefCell::new(\
             {name}Service::<{name}Oracle>::new({name}Oracle::new(seed_)))); \
             let service_: std::rc::Rc<std::cell::RefCell<dyn rt::Service<\
             rt::loopback::LoopServer>>> = service_; \
             let mut client_ = {name}Client::bind(rt::loopback::Loopback::new(&service_, 1))\
             .expect(\"bound\"); \
             if let Err(error_) = drive(&mut client_, seed_, 20) {{ panic!(\"{{error_}}\"); }} }} }}\n\
             {attacks} }}\n"
        )
    }

    fn attack(&self, op: &Op<'a>) -> String {
        let (plain, number) = (&op.plain, op.op.opnum);
        let args = {
            let there = op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none());
            there.fold(String::new(), |out, s| {
                format!("{out}{}, ", self.restore(s, &format!("got_.{}", s.name), op.deferred))
            })
        };
        let wire = &op.wire;
        let mut out = format!(
            "#[test]\nfn mutated_requests_of_{plain}_are_refused_or_read_exactly() {{ \
             for seed_ in 0..60 {{ \
             let in_ = {plain}_in(&mut rt::random::Random::stream(seed_, {number}, 1)); \
             rt::random::attack(seed_, &|forms_| {plain}_in_message(forms_, &in_), \
             &|message_| message_.read(seed_ % 2 == 0, |d_| {{ \
             let {got} = {wire}::get_{plain}_request(d_).ok()?; \
             Some({wire}::{plain}_request_size(rt::Forms::BODY, {args}).and_then(|size_| \
             rt::loopback::build(size_, |w_| {wire}::put_{plain}_request(w_, {args})))) }})); }} }}\n",
            got = if args.is_empty() { "_got" } else { "got_" },
        );
        if op.op.oneway || op.list.iter().any(|s| s.buffer.is_some()) {
            return out;
        }
        let siblings = self.sibling_list(op, "in_");
        let values = self.out_args(op, "got_");
        out.push_str(&format!(
            "#[test]\nfn mutated_replies_of_{plain}_are_refused_or_read_exactly() {{ \
             for seed_ in 0..60 {{ \
             let in_ = {plain}_in(&mut rt::random::Random::stream(seed_, {number}, 1)); \
             let out_ = {plain}_out(&mut rt::random::Random::stream(seed_, {number}, 2), &in_); \
             rt::random::attack(seed_, &|forms_| \
             {plain}_out_message(forms_, &in_, &out_), \
             &|message_| message_.read(seed_ % 2 == 0, |d_| {{ \
             let {got} = {wire}::get_{plain}_reply(d_, {siblings}).ok()?; \
             Some({wire}::{plain}_reply_size(rt::Forms::BODY, {siblings} {values}).and_then(|size_| \
             rt::loopback::build(size_, |w_| {wire}::put_{plain}_reply(w_, {siblings} {values})))) \
             }})); }} }}\n",
            got = if values.is_empty() { "_got" } else { "got_" },
        ));
        out
    }
}

/// Operations whose both ends are generated.
fn is_driven(op: &Op<'_>) -> bool {
    let acf = &op.op.acf;
    !op.op.is_local
        && acf.impl_client.is_none()
        && acf.impl_server.is_none()
        && acf.code != Some(false)
}
