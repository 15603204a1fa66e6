//! Servers: a trait an interface, the dispatcher, the service that a reply-and-wait loop runs.

use std::collections::BTreeSet;

use crate::ir::{Interface, Ty, TypeId, TypeKind};
use crate::layout;

use super::client::is_by_ref;
use super::model::{Gen, Shape};
use super::names;
use super::op::Op;
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
            let (snake, handle) = (self.type_words(id), self.type_name(id));
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
        let (mut handles, mut seen) = (BTreeSet::new(), BTreeSet::new());
        for op in &interface.operations {
            op.result.iter().for_each(|ty| self.handles_in(ty, &mut handles, &mut seen));
            op.params.iter().for_each(|p| self.handles_in(&p.ty, &mut handles, &mut seen));
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

    /// Adds the handles in `ty` to `out`; `seen` are the types that have been looked into.
    fn handles_in(&self, ty: &'a Ty, out: &mut BTreeSet<TypeId>, seen: &mut BTreeSet<TypeId>) {
        match self.shape(ty) {
            Shape::Struct(id) | Shape::Union(id, _) if !seen.insert(id) => {}
            Shape::Handle(id) => {
                out.insert(id);
            }
            Shape::Fixed(t, _) | Shape::Unique(t) | Shape::Shared(t) => {
                self.handles_in(t, out, seen);
            }
            Shape::Array(array) => self.handles_in(&array.element, out, seen),
            Shape::Struct(id) => {
                if let Some(TypeKind::Struct(s)) = layout::kind(self.module, id) {
                    s.fields.iter().for_each(|f| self.handles_in(&f.ty, out, seen));
                }
            }
            Shape::Union(id, _) => {
                if let Some(TypeKind::Union(u)) = layout::kind(self.module, id) {
                    let fields = u.arms.iter().filter_map(|a| a.field.as_ref());
                    fields.for_each(|f| self.handles_in(&f.ty, out, seen));
                }
            }
            _ => {}
        }
    }

    /// Whether the interface or a base of it has context handles.
    pub(super) fn has_handles(&self, interface: &'a Interface) -> bool {
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
             #[derive(Debug)]\npub struct {name}Service<S_: ?Sized> {{ server: std::sync::Arc<S_>, \
             contexts: std::sync::Arc<rt::ContextTable> }}\n\
             impl<S_: ?Sized> Clone for {name}Service<S_> {{ fn clone(&self) -> Self {{ \
             Self {{ server: std::sync::Arc::clone(&self.server), \
             contexts: std::sync::Arc::clone(&self.contexts) }} }} }}\n\
             impl<S_: {name}Server + ?Sized> {name}Service<S_> {{\n\
             /// Around a server object.\n#[must_use]\n\
             pub fn new(server: impl Into<std::sync::Arc<S_>>) -> Self {{ \
             Self {{ server: server.into(), contexts: std::sync::Arc::default() }} }}\n\
             /// The server object.\n#[must_use]\npub fn server(&self) -> &S_ {{ &self.server }}\n\
             /// Receives, dispatches and replies until `deadline`.\n///\n/// # Errors\n\
             /// What ends the server.\n\
             pub fn serve<T_: rt::ServerTransport>(&mut self, transport: &mut T_, \
             deadline: rt::Deadline) -> Result<(), T_::Error> {{ \
             rt::serve(transport, self, deadline) }} }}\n",
            interface.name
        );
        out.push_str(&format!(
            "impl<S_: {name}Server + ?Sized, T_: rt::ServerTransport> rt::Service<T_> for \
             {name}Service<S_> {{\n\
             fn base_of(&self, wanted: &rt::InterfaceId) -> Option<u16> {{ \
             [{ids}].iter().any(|id| id.serves(wanted)).then_some(0) }}\n\
             fn operations(&self) -> u16 {{ {count} }}\n\
             #[inline]\nfn dispatch(&mut self, op: u16, oneway: bool, request: T_::Request<'_>) -> \
             rt::Served<T_::Ready> {{ dispatch_{snake}_::<S_, T_>(&self.server, &self.contexts, op, \
             oneway, request) }}\n\
             fn connected(&mut self, client: rt::ClientId, credentials: rt::Credentials) {{ \
             self.server.client_connected(client, credentials); }}\n\
             fn notified(&mut self, client: rt::ClientId, bits: u64) {{ \
             self.server.client_notified(client, bits); }}\n\
             fn gone(&mut self, client: rt::ClientId) {{ \
             for (kind, number) in self.contexts.run_down(client) {{ \
             run_down_{snake}_(&*self.server, kind, number); }} \
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
                let (snake, handle) = (self.type_words(*id), self.type_name(*id));
                format!("if kind_ == {} {{ server_.{snake}_run_down({handle}(number_)); }}", id.0)
            })
            .collect();
        let rest = interface.base.and_then(|b| self.interface(b)).map(|b| {
            format!("run_down_{}_(server_, kind_, number_);", names::plain_snake(&b.name))
        });
        let body = match (arms.is_empty(), rest) {
            (true, rest) => rest.unwrap_or_default(),
            (false, None) => arms.join(" else "),
            (false, Some(rest)) => format!("{} else {{ {rest} }}", arms.join(" else ")),
        };
        let arg = |n: &str| if mentions(&body, n) { n.to_owned() } else { format!("_{n}") };
        format!(
            "fn run_down_{snake}_<S_: {name}Server + ?Sized>({}: &S_, {}: u32, {}: u64) {{ {body} }}\n",
            arg("server_"),
            arg("kind_"),
            arg("number_")
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
        let lend = self.lent_reply(op, &siblings, &lets);
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
             token_.reply(size_, |w_| {wire}::put_{plain}_reply(w_, {values})) }} }} }}\n{lend}\
             /// Answers with a fault.\n///\n/// # Errors\n\
             /// [`rt::Gone`] if nobody waits any more.\n\
             pub fn fault(self, fault: rt::Fault) -> Result<(), rt::Gone> {{ match self.to {{ \
             rt::DeferredTo::Local(sender_) => sender_.send(Err(fault)), \
             rt::DeferredTo::Remote(token_) => token_.fault(fault) }} }} }}\n",
            op.op.name
        )
    }

    /// The answer of values that stay their owner's: written to the message from where they lie.
    /// Not where a direct caller could wait, who has to be given values of its own, nor where there
    /// are none.
    fn lent_reply(&self, op: &Op<'a>, siblings: &[String], lets: &str) -> String {
        let params = self.reply_params(op);
        let (mut list, mut values) = (String::new(), String::new());
        for (name, ty) in &params {
            values.push_str(&format!("{name}, "));
            if !siblings.contains(name) {
                list.push_str(&format!("{name}: {ty}, "));
            }
        }
        if list.is_empty() || is_by_ref(op) {
            return String::new();
        }
        let (wire, plain) = (&op.wire, &op.plain);
        format!(
            "/// As `send`, of values that stay the caller's: they are copied once, to where the \
             client reads them.\n///\n/// # Errors\n\
             /// [`rt::Gone`] if nobody waits any more.\n\
             pub fn lend(self, {list}) -> Result<(), rt::Gone> {{ {lets} match self.to {{ \
             rt::DeferredTo::Local(_) => Err(rt::Gone), \
             rt::DeferredTo::Remote(token_) => {{ \
             let size_ = {wire}::{plain}_reply_size(rt::Forms::machine(), {values}); \
             token_.reply(size_, |w_| {wire}::put_{plain}_reply(w_, {values})) }} }} }}\n"
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
