//! Clients: one structure an interface, one method an operation.

use crate::ir::{Inproc, Interface, Sync};
use proc_macro2::Ident;
use quote::{ToTokens as _, format_ident, quote};

use super::encode::zero;
use super::model::{Gen, Operand, Shape};
use super::names;
use super::op::Op;
use super::siblings::{Buffer, Sibling, Source};
use super::tokens::{Code, Param, code, docs, ident, num, unref};
use super::types::doc;

impl<'a> Gen<'a> {
    /// Every operation of an interface, those of its bases first, with the interface it is from.
    pub(super) fn all_ops(&self, interface: &'a Interface) -> Vec<Op<'a>> {
        let mut all = match interface.base.and_then(|base| self.interface(base)) {
            Some(base) => self.all_ops(base),
            None => Vec::new(),
        };
        all.extend(self.own_ops(interface));
        all
    }

    /// The operations that an interface adds to its base.
    pub(super) fn own_ops(&self, interface: &'a Interface) -> Vec<Op<'a>> {
        let ops: Vec<Op<'a>> =
            interface.operations.iter().map(|op| Op::new(self, interface, op)).collect();
        let names = names::unique(ops.iter().map(|op| op.name.clone()).collect());
        ops.into_iter().zip(names).map(|(op, name)| Op { name, ..op }).collect()
    }

    /// Returns true if any operation is called directly when the server is in this address space.
    pub(super) fn is_inproc(&self, interface: &'a Interface) -> bool {
        self.all_ops(interface).iter().any(is_by_ref)
    }

    pub(super) fn client(&self, interface: &'a Interface) -> Code {
        let name = format_ident!("{}Client", names::camel(&interface.name));
        let inproc = self.is_inproc(interface);
        let local_ty = format_ident!("{}Local", names::camel(&interface.name));
        let field = inproc.then(|| quote!(local: Option<#local_ty>,));
        let methods = self.all_ops(interface);
        let methods = methods.iter().filter(|op| !op.op.is_local);
        let methods = methods.map(|op| self.method(&name.to_string(), op));
        let text = doc(&interface.doc, &format!("Client of interface `{}`.", interface.name));
        let bind = self.bind(interface);
        quote! {
            #text
            #[derive(Debug)]
            pub struct #name<T_: rt::Transport = sojourn_ipc::Connection> {
                transport: T_,
                base: u16,
                deadline: Option<rt::Deadline>,
                #field
            }
            impl<T_: rt::Transport> #name<T_> {
                #bind
                /// The next call ends at `deadline` instead of the default.
                pub fn with_deadline(&mut self, deadline: rt::Deadline) -> &mut Self {
                    self.deadline = Some(deadline);
                    self
                }
                /// The transport below.
                pub fn transport(&mut self) -> &mut T_ {
                    &mut self.transport
                }
                /// Gives the transport back.
                #[must_use]
                pub fn into_inner(self) -> T_ {
                    self.transport
                }
                #(#methods)*
            }
        }
    }

    /// The functions that make a client.
    fn bind(&self, interface: &'a Interface) -> Code {
        let id = format_ident!("{}_ID", names::capitals(&interface.name));
        let inproc = self.is_inproc(interface);
        let local_ty = format_ident!("{}Local", names::camel(&interface.name));
        let bind_local = inproc
            .then(|| quote!(let local = transport.local::<#local_ty>().map(|l_| (*l_).clone());));
        let local = inproc.then(|| quote!(local,));
        quote! {
            /// Binds: asks the server for this interface.
            ///
            /// # Errors
            /// [`rt::Fault::UNKNOWN_INTERFACE`] if it does not serve it; those of the transport.
            pub fn bind(transport: T_) -> Result<Self, rt::CallError> {
                Self::bind_by(transport, rt::Deadline::NEVER)
            }
            /// As [`Self::bind`], until `deadline`.
            ///
            /// # Errors
            /// As [`Self::bind`].
            pub fn bind_by(
                mut transport: T_, deadline: rt::Deadline
            ) -> Result<Self, rt::CallError> {
                let base = rt::stub::bind(&mut transport, &#id, deadline)?;
                #bind_local
                Ok(Self { transport, base, deadline: None, #local })
            }
        }
    }

    /// Options of connections and endpoints as the ACF wants them.
    pub(super) fn ipc_options(&self, interface: &'a Interface) -> Code {
        let acf = &interface.acf;
        let mut common = Code::new();
        if let Some(sync) = acf.sync {
            let wait = wait(sync);
            common.extend(quote!(wait: #wait,));
        }
        if let Some(bytes) = acf.max_message {
            let bytes = num(bytes);
            common.extend(quote!(max_message: #bytes,));
        }
        if let Some(n) = acf.max_inflight {
            let n = num(n);
            common.extend(quote!(max_inflight: #n,));
        }
        let snake = names::plain_snake(&interface.name);
        let text =
            docs(&format!("Options for interface `{}` as its ACF wants them.", interface.name));
        let mut out = Code::new();
        for (what, ty, on) in [
            ("connect", "ConnectOptions", self.options.client),
            ("server", "ServerOptions", self.options.server),
        ] {
            let (function, ty) = (format_ident!("{snake}_{what}_options"), ident(ty));
            let value = match common.is_empty() {
                true => quote!(sojourn_ipc::#ty::default()),
                false => quote!(sojourn_ipc::#ty { #common ..Default::default() }),
            };
            if on {
                out.extend(quote! {
                    #text
                    #[must_use]
                    pub fn #function() -> sojourn_ipc::#ty { #value }
                });
            }
        }
        out
    }

    fn method(&self, client: &str, op: &Op<'a>) -> Code {
        let params = self.signature(op, false);
        let names: Vec<&Ident> = params.iter().map(|param| &param.name).collect();
        let list: Code = params.iter().map(|Param { name, ty }| quote!(#name: #ty,)).collect();
        let inline = op.op.acf.in_line.map(|is_inline| match is_inline {
            true => quote!(#[inline]),
            false => quote!(#[inline(never)]),
        });
        let many = (names.len() > 6)
            .then(|| quote!(#[allow(clippy::too_many_arguments, reason = "the interface's")]));
        let ret = op.return_type(self);
        let function = |text: &Code, name: Ident, body: &Code| {
            quote! {
                #text
                ///
                /// # Errors
                /// [`rt::CallError`]: why there is no result.
                #inline
                #many
                pub fn #name(&mut self, #list) -> Result<#ret, rt::CallError> {
                    #body
                }
            }
        };
        let text = doc(&op.op.doc, &format!("Operation `{}`.", op.op.name));
        let hand_written = op.op.acf.impl_client.as_ref().map(|path| {
            let path = code(path);
            function(&text, op.ident(), &quote!(#path(self, #(#names),*)))
        });
        if op.op.acf.code == Some(false) {
            return hand_written.unwrap_or_default();
        }
        let body = self.with_status(op, self.body(op));
        let generated = match hand_written {
            Some(_) => {
                let text = docs(&format!(
                    "What `{client}::{}` would be if it were not hand-written.",
                    op.plain
                ));
                function(&text, format_ident!("{}_generated", op.plain), &body)
            }
            None => function(&text, op.ident(), &body),
        };
        quote!(#hand_written #generated)
    }

    /// `comm_status`, `fault_status`: failures become values.
    fn with_status(&self, op: &Op<'a>, body: Code) -> Code {
        let (comm, fault) = (self.status_arm(op, false), self.status_arm(op, true));
        if comm.is_none() && fault.is_none() {
            return body;
        }
        let ret = op.return_type(self);
        quote! {
            let mut attempt_ = || -> Result<#ret, rt::CallError> { #body };
            match attempt_() {
                #comm
                #fault
                result_ => result_
            }
        }
    }

    /// The arm for failures of one kind, if a status of the operation tells them.
    fn status_arm(&self, op: &Op<'a>, fault: bool) -> Option<Code> {
        let acf = &op.op.acf;
        let returned = op.returned();
        let of_param = |index: usize| {
            let acf = op.list.get(index).and_then(|s| s.acf);
            acf.is_some_and(|a| if fault { a.fault_status } else { a.comm_status })
        };
        let on_op = if fault { acf.fault_status } else { acf.comm_status };
        let holder = returned.iter().position(|o| match o.param {
            None => on_op && matches!(self.shape(o.ty), Shape::Scalar(_)),
            Some(index) => of_param(index),
        })?;
        let value = |(index, o): (usize, &super::op::OutValue<'_, '_>)| {
            let ty = self.owned_param(o.ty);
            if index == holder { quote!(error_.status() as #ty) } else { self.blank_param(o.ty) }
        };
        let values: Vec<Code> = returned.iter().enumerate().map(value).collect();
        let value = match returned.len() {
            1 => quote!(#(#values)*),
            _ => {
                let (ret, names) = (op.return_type(self), returned.iter().map(|o| o.ident()));
                quote!(#ret { #(#names: #values),* })
            }
        };
        let not = (!fault).then(|| quote!(!));
        Some(quote!(Err(error_) if #not error_.is_fault() => Ok(#value),))
    }

    fn body(&self, op: &Op<'a>) -> Code {
        let deadline = match op.op.acf.timeout_ms {
            Some(ms) => {
                let ms = num(ms);
                quote! {
                    unwrap_or_else(
                        || rt::Deadline::after(core::time::Duration::from_millis(#ms))
                    )
                }
            }
            None => quote!(unwrap_or(rt::Deadline::NEVER)),
        };
        let direct = is_by_ref(op).then(|| self.direct_call(op));
        let counts = self.buffer_counts(op);
        let args = self.request_args(op);
        let size = op.wire("", "_request_size");
        let limit = op.op.acf.max_message.map(num);
        let check = limit.as_ref().map(
            |bytes| quote!(if size_.body_len > #bytes { return Err(rt::CallError::TooLarge); }),
        );
        let call = self.remote_call(op, &args);
        quote! {
            let deadline_ = self.deadline.take().#deadline;
            #direct
            #counts
            let size_ = #size(rt::Forms::machine(), #(#args),*)?;
            #check
            #call
        }
    }

    /// The call with a message, whose size is `size_`.
    fn remote_call(&self, op: &Op<'a>, args: &[Code]) -> Code {
        let opnum = num(op.op.opnum);
        let opnum = quote!(self.base.wrapping_add(#opnum));
        let put = op.wire("put", "_request");
        let write = match op.op.acf.max_message.map(num) {
            Some(bytes) => quote!(|w_| { #put(w_, #(#args),*)?; w_.within(#bytes) }),
            None => quote!(|w_| #put(w_, #(#args),*)),
        };
        let transport = match op.op.acf.sync.map(wait) {
            Some(wait) => quote!(&mut *rt::stub::waiting(&mut self.transport, #wait)),
            None => quote!(&mut self.transport),
        };
        if op.op.oneway {
            return quote!(rt::stub::send(#transport, #opnum, size_, deadline_, #write));
        }
        let (get, read) = (op.wire("get", "_reply"), self.reply_args(op));
        let reader = if read.is_empty() { get } else { quote!(|d_| #get(d_, #(#read),*)) };
        let call = quote! {
            rt::stub::call(#transport, #opnum, size_, deadline_, #write, #reader)?;
        };
        if op.outs(true).is_empty() {
            return quote!(#call Ok(()));
        }
        let inouts = op.inouts();
        let inouts = inouts.iter().map(|s| s.ident());
        let returned = self.returned_from(op, &quote!(reply_));
        quote!(let reply_ = #call #(*#inouts = reply_.#inouts;)* Ok(#returned))
    }

    /// What the operation returns, from the fields of `from`.
    pub(super) fn returned_from(&self, op: &Op<'a>, from: &Code) -> Code {
        match op.returned().as_slice() {
            [] => quote!(()),
            [one] => {
                let name = one.ident();
                quote!(#from.#name)
            }
            many => {
                let (ret, names) = (op.return_type(self), many.iter().map(|o| o.ident()));
                let names: Vec<Ident> = names.collect();
                quote!(#ret { #(#names: #from.#names),* })
            }
        }
    }

    /// Counters that are the length of a caller's buffer.
    fn buffer_counts(&self, op: &Op<'a>) -> Code {
        let count = |s: &Sibling<'_>| {
            let Some(Source::Len(other)) = s.folded else { return Code::new() };
            if op.list[other].buffer != Some(Buffer::Slice) {
                return Code::new();
            }
            let (name, ty, buffer) = (s.ident(), self.owned(s.ty), op.list[other].ident());
            quote! {
                let #name =
                    #ty::try_from(#buffer.len()).map_err(|_| rt::EncodeError::TooLong)?;
            }
        };
        op.list.iter().map(count).collect()
    }

    /// The request's values as wire functions want them, from the method's arguments.
    fn request_args(&self, op: &Op<'a>) -> Vec<Code> {
        let there = op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none());
        let arg = |s: &Sibling<'_>| {
            let name = s.ident();
            if s.is_out() && !op.deferred {
                self.borrow_param(s.ty, &Operand::Behind(name))
            } else {
                quote!(#name)
            }
        };
        there.map(arg).collect()
    }

    /// What the reply's reader wants to know.
    fn reply_args(&self, op: &Op<'a>) -> Vec<Code> {
        let text = |s: &Sibling<'_>| {
            let name = s.ident();
            (s.folded.is_none() && s.is_in()).then(|| quote!(#name))
        };
        let texts: Vec<Option<Code>> = op.wire_list.iter().map(text).collect();
        let values = self.values(&op.wire_list, &texts);
        let siblings = op.reply_siblings(self).into_iter();
        let siblings = siblings.map(|index| values[index].clone().unwrap_or_else(zero));
        let buffers = op.list.iter().filter(|s| s.buffer.is_some());
        siblings.chain(buffers.map(|s| s.ident().into_token_stream())).collect()
    }

    /// The call without a message, when the server is in this address space.
    fn direct_call(&self, op: &Op<'a>) -> Code {
        let there = op.list.iter().filter(|s| s.folded.is_none());
        let args = there.filter(|s| s.is_in() || s.buffer.is_some()).map(|s| {
            let (name, shape) = (s.ident(), self.shape(s.ty));
            match shape {
                Shape::Descriptor if !s.is_out() || op.deferred => quote! {
                    #name.map(|f_| f_.try_clone_to_owned()).transpose()
                        .map_err(|e_| rt::CallError::System(e_.raw_os_error().unwrap_or(0)))?
                },
                _ if op.deferred => self.own(shape, &quote!(#name)),
                _ => quote!(#name),
            }
        });
        let name = op.ident();
        let args = quote!(&rt::Caller::default(), #(#args,)*);
        let call = if op.deferred {
            let reply = op.type_of("DeferredReply");
            quote! {
                let rt::NewMailbox { sender: sender_, mailbox: mailbox_ } = rt::mailbox();
                (*local_.0).#name(#args #reply::local(sender_));
                return mailbox_.wait(deadline_);
            }
        } else if op.op.oneway {
            quote!((*local_.0).#name(#args); return Ok(());)
        } else {
            quote!(return (*local_.0).#name(#args).map_err(rt::CallError::Fault);)
        };
        quote!(if let Some(local_) = &self.local { #call })
    }

    /// An owned value from the borrowed one.
    fn own(&self, shape: Shape<'_>, at: &Code) -> Code {
        match shape {
            Shape::Scalar(_) | Shape::Enum(_) | Shape::Handle(_) => at.clone(),
            Shape::Array(_) => quote!(#at.to_vec()),
            Shape::Str(s) if s.wide => quote!(#at.to_vec()),
            Shape::Str(_) => quote!(#at.to_owned()),
            Shape::Unique(target) => {
                let target = self.shape(target);
                let inner = self.own(target, &quote!(x_));
                match target {
                    Shape::Array(_) | Shape::Str(_) => quote!(#at.map(|x_| #inner)),
                    _ => quote!(#at.map(|x_| Box::new(#inner))),
                }
            }
            Shape::Interface(_) => quote!(#at.cloned()),
            _ => {
                let at = unref(at);
                quote!(#at.clone())
            }
        }
    }
}

/// A way to wait, as Rust.
fn wait(sync: Sync) -> Code {
    let wait = match sync {
        Sync::Spin(None) => quote!(Spin(None)),
        Sync::Spin(Some(us)) => {
            let us = num(us);
            quote!(Spin(Some(core::time::Duration::from_micros(#us))))
        }
        Sync::Park => quote!(Park),
        Sync::Adaptive => quote!(Adaptive),
    };
    quote!(sojourn_ipc::Wait::#wait)
}

/// Returns true if an operation is called directly when the server is in this address space.
pub(super) fn is_by_ref(op: &Op<'_>) -> bool {
    op.op.acf.inproc == Some(Inproc::ByRef) && !op.op.is_local && op.op.acf.impl_server.is_none()
}
