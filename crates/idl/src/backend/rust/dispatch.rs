//! The dispatcher of a server: reads a request, calls the object, writes the reply.
//!
//! In generated code `request_` is the request, `args_` what it carries, `out_` what the method
//! returned. The traits and services around it are in `server`.

use crate::ir::{Allocate, Dir, Interface, OnViolation};
use proc_macro2::Ident;
use quote::{format_ident, quote};

use super::encode::zero;
use super::model::{Gen, Operand, Shape};
use super::op::Op;
use super::server::{dispatch_name, marked, trait_name};
use super::siblings::{Buffer, Sibling};
use super::tokens::{Code, bare, calls, code, is_same, mentions, num};

/// What outlives a request: result, `in, out` values, siblings, buffers.
struct Carried {
    values: Code,
    /// Binds the values.
    pattern: Code,
}

/// What a sibling is worth.
struct SiblingValue {
    /// The argument's name.
    name: Ident,
    value: Code,
}

impl<'a> Gen<'a> {
    pub(super) fn dispatcher(&self, interface: &'a Interface) -> Code {
        let faults = interface.acf.on_violation == Some(OnViolation::Fault);
        let handles = self.has_handles(interface);
        let own = self.own_ops(interface);
        let arms = own.iter().filter(|op| !op.op.is_local).map(|op| {
            let faults = op.op.acf.on_violation.map_or(faults, |v| v == OnViolation::Fault);
            let (number, not) = (num(op.op.opnum), (!op.op.oneway).then(|| quote!(!)));
            let arm = self.arm(op, faults, handles);
            quote!(#number if #not oneway_ => { #arm })
        });
        let arms: Code = arms.collect();
        let rest = match interface.base.and_then(|b| self.interface(b)) {
            Some(base) => {
                let dispatch = dispatch_name(base);
                quote!(#dispatch::<S_, T_>(server_, contexts_, op_, oneway_, request_))
            }
            None => quote!(rt::unknown_operation::<T_>(oneway_, request_)),
        };
        let imports = imports(&arms);
        let mutable = (!arms.is_empty()).then(|| quote!(mut));
        let body = if arms.is_empty() { rest } else { quote!(match op_ { #arms _ => #rest }) };
        let [s, c, o] = ["server_", "contexts_", "op_"].map(|name| marked(name, &body));
        let (function, server) = (dispatch_name(interface), trait_name(interface));
        quote! {
            #[allow(clippy::too_many_lines, reason = "one arm an operation")]
            #[inline]
            fn #function<S_: #server + ?Sized, T_: rt::ServerTransport>(
                #s: &S_, #c: &std::sync::Arc<rt::ContextTable>, #o: u16, oneway_: bool,
                #mutable request_: T_::Request<'_>
            ) -> rt::Served<T_::Ready> {
                #imports
                #body
            }
        }
    }

    fn arm(&self, op: &Op<'a>, faults: bool, handles: bool) -> Code {
        let decoder = if handles {
            quote! {
                let scope_ = rt::ContextScope::new(contexts_, caller_.client);
                let mut decoder_ = request_.decoder();
                decoder_.set_contexts(&scope_);
            }
        } else {
            quote!(let decoder_ = request_.decoder();)
        };
        let oneway = op.op.oneway;
        let refuse = quote!(rt::refuse::<T_>(request_, error_, #oneway, #faults));
        let serve = match (op.deferred, oneway) {
            (true, _) => self.deferred_arm(op, &refuse, handles),
            (false, true) => self.oneway_arm(op, &refuse),
            (false, false) => self.call_arm(op, &refuse, handles),
        };
        quote!(let caller_ = request_.caller(); #decoder #serve)
    }

    /// Reads the request to `args_`.
    fn read(&self, op: &Op<'a>, args: &Code) -> Code {
        let limit = limit(op);
        let get = op.wire("get", "_request");
        let mutable = (!op.inouts().is_empty()).then(|| quote!(mut));
        if mentions(args, "args_") || !op.reply_siblings(self).is_empty() {
            quote!(#limit let #mutable args_ = #get(d_)?;)
        } else {
            quote!(#limit let _args = #get(d_)?;)
        }
    }

    fn oneway_arm(&self, op: &Op<'a>, refuse: &Code) -> Code {
        let args = self.call_args(op);
        let (read, call, give) = (self.read(op, &args), call_server(op, &args), self.give_back(op));
        quote! {
            let served_ = rt::stub::with(decoder_, |d_| { #read #call; #give Ok(()) });
            match served_ {
                Ok(()) => rt::Served::Done,
                Err(error_) => #refuse
            }
        }
    }

    fn call_arm(&self, op: &Op<'a>, refuse: &Code, handles: bool) -> Code {
        let args = self.call_args(op);
        let (read, call, give) = (self.read(op, &args), call_server(op, &args), self.give_back(op));
        let Carried { values, pattern } = self.carried(op);
        let buffers = self.buffers(op);
        let reply = self.reply_of(op, handles);
        let carry = (!is_same(&values, &quote!(out_))).then(|| quote!(.map(|out_| #values)));
        let finish = if give.is_empty() {
            quote!(Ok(#call #carry))
        } else {
            quote!(let result_ = #call #carry; #give Ok(result_))
        };
        quote! {
            let served_ = rt::stub::with(decoder_, |d_| { #read #buffers #finish });
            match served_ {
                Ok(Ok(#pattern)) => { #reply }
                Ok(Err(fault_)) => rt::Served::Reply(request_.into_token().fault(fault_)),
                Err(error_) => #refuse
            }
        }
    }

    /// Arguments of the server's method, from the request `args_`.
    fn call_args(&self, op: &Op<'a>) -> Code {
        let arg = |s: &Sibling<'_>| {
            let name = s.ident();
            let at = quote!(args_.#name);
            let arg = match (s.buffer, s.is_in(), s.is_out()) {
                (Some(_), ..) => {
                    let buffer = buffer_name(s);
                    quote!(&mut #buffer)
                }
                (None, false, _) => return None,
                (None, true, true) if !op.deferred => quote!(&mut #at),
                (None, true, _) if op.deferred => at,
                (None, true, _) => self.pass(s, &at),
            };
            Some(quote!(#arg,))
        };
        op.list.iter().filter(|s| s.folded.is_none()).filter_map(arg).collect()
    }

    fn carried(&self, op: &Op<'a>) -> Carried {
        let nothing = op.returned().is_empty();
        let mut values = vec![quote!(out_)];
        let mut names = vec![if nothing { quote!(()) } else { quote!(out_) }];
        for s in op.inouts() {
            if let (Shape::Handle(_), Some(Dir::InOut)) = (self.shape(s.ty), s.dir) {
                let before = before_name(s);
                values.push(quote!(#before));
                names.push(quote!(#before));
            }
        }
        // Siblings are computed before anything is moved out of the request.
        for SiblingValue { name, value } in self.sibling_values(op) {
            values.push(value);
            names.push(quote!(#name));
        }
        for s in op.inouts() {
            let (name, value) = (s.ident(), value_name(s));
            values.push(quote!(args_.#name));
            names.push(quote!(#value));
        }
        for s in op.list.iter().filter(|s| s.buffer.is_some()) {
            let buffer = buffer_name(s);
            values.push(quote!(#buffer));
            names.push(quote!(#buffer));
        }
        if values.len() == 1 {
            return Carried { values: values.remove(0), pattern: names.remove(0) };
        }
        Carried { values: quote!((#(#values),*)), pattern: quote!((#(#names),*)) }
    }

    /// The `in` siblings that the reply's expressions name.
    fn sibling_values(&self, op: &Op<'a>) -> Vec<SiblingValue> {
        let text = |s: &Sibling<'_>| {
            let name = s.ident();
            (s.folded.is_none() && s.is_in())
                .then(|| self.restore(s, &quote!(args_.#name), op.deferred))
        };
        let texts: Vec<Option<Code>> = op.wire_list.iter().map(text).collect();
        let values = self.values(&op.wire_list, &texts);
        let one = |i: usize| SiblingValue {
            name: op.sibling_arg(i),
            value: values[i].clone().unwrap_or_else(zero),
        };
        op.reply_siblings(self).into_iter().map(one).collect()
    }

    /// Buffers that stand for the caller's, and handles before the call.
    fn buffers(&self, op: &Op<'a>) -> Code {
        let mut out = Code::new();
        for s in op.inouts() {
            if let Shape::Handle(_) = self.shape(s.ty) {
                let (before, name) = (before_name(s), s.ident());
                out.extend(quote!(let #before = args_.#name;));
            }
        }
        for s in &op.list {
            let Some(buffer) = s.buffer else { continue };
            let (name, element) = (buffer_name(s), self.buffer_element(s));
            if buffer == Buffer::Vec {
                out.extend(quote!(let mut #name: Vec<#element> = Vec::new();));
                continue;
            }
            let Shape::Array(array) = self.shape(s.ty) else { continue };
            let values = self.sibling_values(op);
            let value = |index: usize| {
                let arg = op.sibling_arg(index);
                values.iter().find(|known| known.name == arg).map(|known| known.value.clone())
            };
            let count = super::siblings::expr(&array.size, &value).unwrap_or_else(zero);
            out.extend(quote! {
                let mut #name = match rt::stub::buffer::<#element>(#count) {
                    Ok(buffer_) => buffer_,
                    Err(fault_) => return Ok(Err(fault_))
                };
            });
        }
        out
    }

    /// Gives vectors back to their pools.
    fn give_back(&self, op: &Op<'a>) -> Code {
        let mut out = Code::new();
        for s in op.list.iter().filter(|s| s.is_in() && !s.is_out()) {
            if let Some(Allocate::Pool(pool)) = s.acf.and_then(|a| a.allocate.as_ref())
                && self.provider(s).is_some()
            {
                let (pool, name) = (code(pool), s.ident());
                out.extend(quote!(#pool.give(args_.#name);));
            }
        }
        out
    }

    /// Measures and writes the reply.
    fn reply_of(&self, op: &Op<'a>, handles: bool) -> Code {
        let mut forget = Code::new();
        for s in op.inouts() {
            if let Shape::Handle(id) = self.shape(s.ty) {
                let (before, value, kind) = (before_name(s), value_name(s), num(id.0));
                forget.extend(quote! {
                    if #before != #value {
                        contexts_.forget(caller_.client, #kind, #before.0);
                    }
                });
            }
        }
        let scope = scope(handles);
        let values = self.reply_values_from(op, &quote!(out_));
        let (size, put) = (op.wire("", "_reply_size"), op.wire("put", "_reply"));
        quote! {
            #forget
            let size_ = #size(rt::Forms::machine(), #(#values),*);
            rt::Served::Reply(rt::stub::reply(
                request_.into_token(), size_, #scope, |w_| #put(w_, #(#values),*)
            ))
        }
    }

    /// The reply's values as wire functions want them.
    pub(super) fn reply_values_from(&self, op: &Op<'a>, from: &Code) -> Vec<Code> {
        let mut out: Vec<Code> = op.sibling_args(self).iter().map(|arg| quote!(#arg)).collect();
        let single = op.returned().len() == 1;
        let place = |name: &Ident| match single {
            true => Operand::At(from.clone()),
            false => Operand::At(quote!(#from.#name)),
        };
        if let Some(ty) = &op.op.result {
            out.push(self.borrow_param(ty, &place(&format_ident!("ret"))));
        }
        for s in op.wire_list.iter().filter(|s| s.is_out() && s.folded.is_none()) {
            out.push(if s.buffer.is_some() {
                let buffer = buffer_name(s);
                quote!(&#buffer)
            } else if s.is_in() && !op.deferred {
                let value = value_name(s);
                self.borrow_param(s.ty, &Operand::At(quote!(#value)))
            } else {
                self.borrow_param(s.ty, &place(&s.ident()))
            });
        }
        out
    }

    fn deferred_arm(&self, op: &Op<'a>, refuse: &Code, handles: bool) -> Code {
        let args = self.call_args(op);
        let scope = scope(handles);
        let siblings = self.sibling_values(op);
        let names = siblings.iter().map(|sibling| &sibling.name);
        let set = |SiblingValue { name, value }: &SiblingValue| quote!(let #name = #value;);
        let lets: Code = siblings.iter().map(set).collect();
        let call = call_server(op, &quote!(#args reply_));
        let bind = if mentions(&args, "args_") || mentions(&lets, "args_") {
            quote!(args_)
        } else {
            quote!(_)
        };
        let get = op.wire("get", "_request");
        let limit = limit(op);
        let read = if limit.is_empty() { get } else { quote!(|d_| { #limit #get(d_) }) };
        let reply = op.type_of("DeferredReply");
        quote! {
            let served_ = rt::stub::with(decoder_, #read);
            match served_ {
                Ok(#bind) => {
                    #lets
                    let token_ = rt::Deferred::new(request_.into_token(), #scope);
                    let reply_ = #reply { to: rt::DeferredTo::Remote(token_), #(#names),* };
                    #call;
                    rt::Served::Done
                }
                Err(error_) => #refuse
            }
        }
    }
}

/// The call of the server's method, or of the function that stands for it.
fn call_server(op: &Op<'_>, args: &Code) -> Code {
    if let Some(path) = &op.op.acf.impl_server {
        let path = code(path);
        return quote!(#path(server_, &caller_, #args));
    }
    let name = op.ident();
    quote!(server_.#name(&caller_, #args))
}

/// The context handles of the caller, for what writes an answer.
fn scope(handles: bool) -> Code {
    match handles {
        true => quote!(Some(rt::ContextScope::new(contexts_, caller_.client))),
        false => quote!(None),
    }
}

/// `max_message`: what is larger is a violation, as what breaks any other rule.
fn limit(op: &Op<'_>) -> Code {
    op.op.acf.max_message.map(num).map(|bytes| quote!(d_.within(#bytes)?;)).unwrap_or_default()
}

/// The traits whose methods the arms call.
fn imports(arms: &Code) -> Code {
    match (arms.is_empty(), calls(arms, "fault")) {
        (false, true) => quote!(
            use rt::{Request as _, Token as _};
        ),
        (false, false) => quote!(
            use rt::Request as _;
        ),
        (true, _) => Code::new(),
    }
}

fn buffer_name(s: &Sibling<'_>) -> Ident {
    format_ident!("{}_buffer_", bare(&s.name))
}

/// A context handle before the call.
fn before_name(s: &Sibling<'_>) -> Ident {
    format_ident!("before_{}_", bare(&s.name))
}

/// An `in, out` value after the call.
fn value_name(s: &Sibling<'_>) -> Ident {
    format_ident!("{}_value_", bare(&s.name))
}
