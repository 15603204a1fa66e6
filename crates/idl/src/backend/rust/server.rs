//! Servers: a trait an interface, the dispatcher, the service that a reply-and-wait loop runs.

use std::collections::BTreeSet;

use crate::ir::{Interface, Ty, TypeId, TypeKind};
use crate::layout;
use proc_macro2::Ident;
use quote::{format_ident, quote};

use super::client::is_by_ref;
use super::model::{Gen, Shape};
use super::names;
use super::op::Op;
use super::tokens::{Code, Param, docs, ident, num, uses};
use super::types::doc;

/// The trait of an interface's servers.
pub(super) fn trait_name(interface: &Interface) -> Ident {
    format_ident!("{}Server", names::camel(&interface.name))
}

impl<'a> Gen<'a> {
    pub(super) fn server_trait(&self, interface: &'a Interface) -> Code {
        let name = trait_name(interface);
        let base = interface.base.and_then(|b| self.interface(b));
        let above = base.map(trait_name).map(|base| quote!(: #base));
        let own = self.own_ops(interface);
        let methods = own.iter().filter(|op| op.op.acf.impl_server.is_none());
        let methods = methods.map(|op| self.declaration(op));
        let run_downs = self.own_handles(interface).into_iter().map(|id| {
            let (method, handle) = (self.run_down_name(id), self.type_code(id));
            quote! {
                /// A client is gone that still held `handle`.
                fn #method(&self, _handle: #handle) {}
            }
        });
        let events = base.is_none().then(|| {
            quote! {
                /// A client is there.
                fn client_connected(
                    &self, _client: rt::ClientId, _credentials: rt::Credentials
                ) {}
                /// A client has sent bits.
                fn client_notified(&self, _client: rt::ClientId, _bits: u64) {}
                /// A client is gone; what it held has been run down.
                fn client_gone(&self, _client: rt::ClientId) {}
            }
        });
        let text = doc(&interface.doc, &format!("Server of interface `{}`.", interface.name));
        quote! {
            #text
            pub trait #name #above {
                #(#methods)*
                #(#run_downs)*
                #events
            }
        }
    }

    /// The method that tells of a context handle whose client is gone.
    fn run_down_name(&self, id: TypeId) -> Ident {
        format_ident!("{}_run_down", self.type_words(id))
    }

    fn declaration(&self, op: &Op<'a>) -> Code {
        let params = self.signature(op, true);
        let taken = params.iter().any(|param| param.name == "caller" || param.name == "reply");
        let (caller, reply) = if taken { ("caller_", "reply_") } else { ("caller", "reply") };
        let (caller, reply) = (ident(caller), ident(reply));
        let many = (params.len() > 5)
            .then(|| quote!(#[allow(clippy::too_many_arguments, reason = "the interface's")]));
        let list: Code = params.iter().map(|Param { name, ty }| quote!(#name: #ty,)).collect();
        let deferred = op.deferred.then(|| {
            let ty = op.type_of("DeferredReply");
            quote!(#reply: #ty,)
        });
        let ret = self.method_result(op);
        let errors = (!ret.is_empty()).then(|| {
            quote! {
                ///
                /// # Errors
                /// The fault to answer with.
            }
        });
        let text = doc(&op.op.doc, &format!("Operation `{}`.", op.op.name));
        let name = op.ident();
        quote!(#text #errors #many fn #name(&self, #caller: &rt::Caller, #list #deferred) #ret;)
    }

    /// `-> Result<...>` of a server's method; nothing where the method answers by other means.
    pub(super) fn method_result(&self, op: &Op<'a>) -> Code {
        if op.op.oneway || op.deferred {
            return Code::new();
        }
        let ret = op.return_type(self);
        quote!(-> Result<#ret, rt::Fault>)
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

    /// Returns true if the interface or a base of it has context handles.
    pub(super) fn has_handles(&self, interface: &'a Interface) -> bool {
        !self.own_handles(interface).is_empty()
            || interface
                .base
                .and_then(|b| self.interface(b))
                .is_some_and(|base| self.has_handles(base))
    }

    pub(super) fn service(&self, interface: &'a Interface) -> Code {
        let camel = names::camel(&interface.name);
        let (name, server) = (format_ident!("{camel}Service"), trait_name(interface));
        let local = self.is_inproc(interface).then(|| local(&camel, &server));
        let text = docs(&format!(
            "Serves interface `{}` with a server object. Clones share the object and the context \
             handles: one clone a thread.",
            interface.name
        ));
        let implementation = self.service_impl(interface, &name, &server);
        let run_down = self.run_down(interface);
        let dispatcher = self.dispatcher(interface);
        let own = self.own_ops(interface);
        let deferred = own.iter().filter(|op| op.deferred && !op.op.is_local);
        let deferred = deferred.map(|op| self.deferred_reply(op));
        quote! {
            #local
            #text
            #[derive(Debug)]
            pub struct #name<S_: ?Sized> {
                server: std::sync::Arc<S_>,
                contexts: std::sync::Arc<rt::ContextTable>
            }
            impl<S_: ?Sized> Clone for #name<S_> {
                fn clone(&self) -> Self {
                    Self {
                        server: std::sync::Arc::clone(&self.server),
                        contexts: std::sync::Arc::clone(&self.contexts)
                    }
                }
            }
            impl<S_: #server + ?Sized> #name<S_> {
                /// Around a server object.
                #[must_use]
                pub fn new(server: impl Into<std::sync::Arc<S_>>) -> Self {
                    Self { server: server.into(), contexts: std::sync::Arc::default() }
                }
                /// The server object.
                #[must_use]
                pub fn server(&self) -> &S_ {
                    &self.server
                }
                /// Receives, dispatches and replies until `deadline`.
                ///
                /// # Errors
                /// What ends the server.
                pub fn serve<T_: rt::ServerTransport>(
                    &mut self, transport: &mut T_, deadline: rt::Deadline
                ) -> Result<(), T_::Error> {
                    rt::serve(transport, self, deadline)
                }
            }
            #implementation
            #run_down
            #dispatcher
            #(#deferred)*
        }
    }

    /// What a router calls of a service.
    fn service_impl(&self, interface: &'a Interface, name: &Ident, server: &Ident) -> Code {
        let mut ids = Vec::new();
        let mut next = Some(interface);
        while let Some(i) = next {
            ids.push(format_ident!("{}_ID", names::capitals(&i.name)));
            next = i.base.and_then(|b| self.interface(b));
        }
        let operations = self.operations(interface);
        let count = num(operations.iter().map(|o| o.opnum + 1).max().unwrap_or(0));
        let (dispatch, run_down) = (dispatch_name(interface), run_down_of(interface));
        quote! {
            impl<S_: #server + ?Sized, T_: rt::ServerTransport> rt::Service<T_> for #name<S_> {
                fn base_of(&self, wanted: &rt::InterfaceId) -> Option<u16> {
                    [#(#ids),*].iter().any(|id| id.serves(wanted)).then_some(0)
                }
                fn operations(&self) -> u16 {
                    #count
                }
                #[inline]
                fn dispatch(
                    &mut self, op: u16, oneway: bool, request: T_::Request<'_>
                ) -> rt::Served<T_::Ready> {
                    #dispatch::<S_, T_>(&self.server, &self.contexts, op, oneway, request)
                }
                fn connected(&mut self, client: rt::ClientId, credentials: rt::Credentials) {
                    self.server.client_connected(client, credentials);
                }
                fn notified(&mut self, client: rt::ClientId, bits: u64) {
                    self.server.client_notified(client, bits);
                }
                fn gone(&mut self, client: rt::ClientId) {
                    for handle in self.contexts.run_down(client) {
                        #run_down(&*self.server, handle.kind, handle.number);
                    }
                    self.server.client_gone(client);
                }
            }
        }
    }

    fn run_down(&self, interface: &'a Interface) -> Code {
        let arms = self.own_handles(interface).into_iter().map(|id| {
            let (method, handle, kind) = (self.run_down_name(id), self.type_code(id), num(id.0));
            quote!(if kind_ == #kind { server_.#method(#handle(number_)); })
        });
        let arms: Vec<Code> = arms.collect();
        let rest = interface.base.and_then(|b| self.interface(b)).map(|base| {
            let run_down = run_down_of(base);
            quote!(#run_down(server_, kind_, number_);)
        });
        let body = match (arms.is_empty(), rest) {
            (true, rest) => rest.unwrap_or_default(),
            (false, None) => quote!(#(#arms)else*),
            (false, Some(rest)) => quote!(#(#arms)else* else { #rest }),
        };
        let [s, k, n] = ["server_", "kind_", "number_"].map(|name| marked(name, &body));
        let (function, server) = (run_down_of(interface), trait_name(interface));
        quote! {
            fn #function<S_: #server + ?Sized>(#s: &S_, #k: u32, #n: u64) { #body }
        }
    }

    fn deferred_reply(&self, op: &Op<'a>) -> Code {
        let (name, ret) = (op.type_of("DeferredReply"), op.return_type(self));
        let siblings = op.sibling_args(self);
        let values = self.reply_values_from(op, &quote!(out));
        let values = quote!(#(#values),*);
        let out = if uses(&values, "out") { quote!(out) } else { quote!(()) };
        let remote = send_remote(op, &values);
        let lend = self.lent_reply(op, &siblings);
        let text = docs(&format!(
            "The right to answer one call of `{}`, later and from any thread. Dropped, it answers \
             [`rt::Fault::DROPPED`].",
            op.op.name
        ));
        quote! {
            #text
            #[derive(Debug)]
            pub struct #name { to: rt::DeferredTo<#ret>, #(#siblings: i128,)* }
            impl #name {
                fn local(sender: rt::MailboxSender<#ret>) -> Self {
                    Self { to: rt::DeferredTo::Local(sender), #(#siblings: 0,)* }
                }
                /// Answers.
                ///
                /// # Errors
                /// [`rt::Gone`] if nobody waits any more.
                pub fn send(self, #out: #ret) -> Result<(), rt::Gone> {
                    #(let #siblings = self.#siblings;)*
                    match self.to {
                        rt::DeferredTo::Local(sender_) => sender_.send(Ok(#out)),
                        #remote
                    }
                }
                #lend
                /// Answers with a fault.
                ///
                /// # Errors
                /// [`rt::Gone`] if nobody waits any more.
                pub fn fault(self, fault: rt::Fault) -> Result<(), rt::Gone> {
                    match self.to {
                        rt::DeferredTo::Local(sender_) => sender_.send(Err(fault)),
                        rt::DeferredTo::Remote(token_) => token_.fault(fault)
                    }
                }
            }
        }
    }

    /// The answer of values that stay their owner's: written to the message from where they lie.
    /// Not where a direct caller could wait, who has to be given values of its own, nor where there
    /// are none.
    fn lent_reply(&self, op: &Op<'a>, siblings: &[Ident]) -> Code {
        let params = self.reply_params(op);
        let values = params.iter().map(|param| &param.name);
        let remote = send_remote(op, &quote!(#(#values),*));
        let list = params.iter().filter(|param| !siblings.contains(&param.name));
        let list: Code = list.map(|Param { name, ty }| quote!(#name: #ty,)).collect();
        if list.is_empty() || is_by_ref(op) {
            return Code::new();
        }
        let text = docs(
            "As `send`, of values that stay the caller's: they are copied once, to where the \
             client reads them.",
        );
        quote! {
            #text
            ///
            /// # Errors
            /// [`rt::Gone`] if nobody waits any more.
            pub fn lend(self, #list) -> Result<(), rt::Gone> {
                #(let #siblings = self.#siblings;)*
                match self.to {
                    rt::DeferredTo::Local(_) => Err(rt::Gone),
                    #remote
                }
            }
        }
    }
}

/// The arm that writes a deferred answer to the message of a remote caller.
fn send_remote(op: &Op<'_>, values: &Code) -> Code {
    let (size, put) = (op.wire("", "_reply_size"), op.wire("put", "_reply"));
    quote! {
        rt::DeferredTo::Remote(token_) => {
            let size_ = #size(rt::Forms::machine(), #values);
            token_.reply(size_, |w_| #put(w_, #values))
        }
    }
}

/// A parameter's name, marked if `body` does not use it.
pub(super) fn marked(name: &str, body: &Code) -> Ident {
    if uses(body, name) { ident(name) } else { format_ident!("_{name}") }
}

/// The dispatcher of an interface.
pub(super) fn dispatch_name(interface: &Interface) -> Ident {
    format_ident!("dispatch_{}_", names::plain_snake(&interface.name))
}

/// What runs the context handles of an interface down.
fn run_down_of(interface: &Interface) -> Ident {
    format_ident!("run_down_{}_", names::plain_snake(&interface.name))
}

/// What an endpoint registers for direct calls.
fn local(camel: &str, server: &Ident) -> Code {
    let (name, client) = (format_ident!("{camel}Local"), format!("{camel}Client"));
    let title = name.to_string();
    let text = docs(&format!(
        "A server object for direct calls within one address space: what an endpoint registers and \
         [`{client}::bind`] finds."
    ));
    quote! {
        #text
        #[derive(Clone)]
        pub struct #name(
            /// The object.
            pub std::sync::Arc<dyn #server + Send + Sync>
        );
        impl core::fmt::Debug for #name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.debug_tuple(#title).finish()
            }
        }
    }
}
