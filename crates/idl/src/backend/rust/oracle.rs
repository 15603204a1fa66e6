//! Generated tests: a server that knows what must arrive and what it must give. Values come from
//! `random`. Not here: what calls it (`drive`).

use crate::ir::Interface;
use quote::{format_ident, quote};

use super::model::{Gen, Operand, Shape};
use super::names;
use super::op::Op;
use super::server::trait_name;
use super::siblings::{Buffer, Sibling, Source};
use super::tokens::{Code, Param, bare, docs, ident, mentions, num};

impl<'a> Gen<'a> {
    pub(super) fn oracle(&self, interface: &'a Interface) -> Code {
        let name = format_ident!("{}Oracle", names::camel(&interface.name));
        let mut impls = Code::new();
        let mut next = Some(interface);
        while let Some(i) = next {
            let own = self.own_ops(i);
            let methods = own.iter().filter(|op| op.op.acf.impl_server.is_none());
            let methods = methods.map(|op| self.oracle_method(op));
            let server = trait_name(i);
            impls.extend(quote!(impl #server for #name { #(#methods)* }));
            next = i.base.and_then(|b| self.interface(b));
        }
        let text = docs(
            "Computes what every call must bring, answers with what it must give, and with fault \
             0x1000 if something else came.",
        );
        quote! {
            #text
            #[derive(Debug)]
            pub struct #name {
                seed: u64,
                k: std::sync::atomic::AtomicU64,
                failed: std::sync::atomic::AtomicBool
            }
            impl #name {
                #[must_use]
                pub fn new(seed: u64) -> Self {
                    Self { seed, k: 0.into(), failed: false.into() }
                }
                /// The seed of the call that has come.
                #[must_use]
                pub fn next_seed(&self) -> u64 {
                    self.seed.wrapping_add(
                        self.k.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
                    )
                }
                /// Whether this call, or a one-way message before it, was wrong.
                pub fn check(
                    &self, oneway: bool, same: Result<(), String>
                ) -> Result<(), rt::Fault> {
                    let wrong = same.is_err();
                    if oneway {
                        if wrong {
                            self.failed.store(true, std::sync::atomic::Ordering::Relaxed);
                        }
                        return Ok(());
                    }
                    if wrong
                        || self.failed.swap(false, std::sync::atomic::Ordering::Relaxed)
                    {
                        return Err(rt::Fault(rt::Fault::FIRST_OWN));
                    }
                    Ok(())
                }
            }
            #impls
        }
    }

    fn oracle_method(&self, op: &Op<'a>) -> Code {
        let params = self.signature(op, true).into_iter().map(|Param { name, ty }| {
            let text = name.to_string();
            let shown = match op.op.is_local {
                true => format_ident!("_{}", bare(&text)),
                false => name,
            };
            quote!(#shown: #ty,)
        });
        let deferred = op.deferred.then(|| {
            let reply = op.type_of("DeferredReply");
            quote!(reply_: #reply,)
        });
        let (name, ret) = (op.ident(), self.method_result(op));
        let body = match op.op.is_local {
            true => quote!(Err(rt::Fault::UNKNOWN_OPERATION)),
            false => self.oracle_body(op),
        };
        quote!(fn #name(&self, _: &rt::Caller, #(#params)* #deferred) #ret { #body })
    }

    fn oracle_body(&self, op: &Op<'a>) -> Code {
        let (number, oneway) = (num(op.op.opnum), op.op.oneway);
        let came = build(op, "request", &self.received_args(op));
        let (draw, message) =
            (op.random(&op.function("", "_in")), op.random(&op.function("", "_in_message")));
        let check = quote! {
            let seed_ = self.next_seed();
            let in_ = #draw(&mut rt::random::Random::stream(seed_, #number, 1));
            let came_ = #came;
            let checked_ =
                self.check(#oneway, rt::random::same(#message(rt::Forms::BODY, &in_), came_));
        };
        let answer = match (oneway, op.deferred) {
            (true, _) => quote!(let _recorded = checked_;),
            (false, true) => self.oracle_later(op),
            (false, false) => self.oracle_answer(op),
        };
        quote!(#check #answer)
    }

    /// Draws what the call must give.
    fn draw_reply(&self, op: &Op<'a>, is_used: bool) -> Code {
        let (draw, number) = (op.random(&op.function("", "_out")), num(op.op.opnum));
        let name = ident(if is_used { "out_" } else { "_out" });
        quote! {
            let #name = #draw(&mut rt::random::Random::stream(seed_, #number, 2), &in_);
        }
    }

    fn oracle_later(&self, op: &Op<'a>) -> Code {
        let result = self.returned_from(op, &quote!(out_));
        let draw = self.draw_reply(op, mentions(&result, "out_"));
        quote! {
            let _gone = match checked_ {
                Err(fault_) => reply_.fault(fault_),
                Ok(()) => { #draw reply_.send(#result) }
            };
        }
    }

    fn oracle_answer(&self, op: &Op<'a>) -> Code {
        let mut moves = Code::new();
        for s in op.inouts() {
            let name = s.ident();
            moves.extend(quote!(*#name = out_.#name;));
        }
        for s in &op.list {
            let name = s.ident();
            moves.extend(match s.buffer {
                Some(Buffer::Slice) => quote! {
                    if #name.len() != out_.#name.len() {
                        return Err(rt::Fault(rt::Fault::FIRST_OWN));
                    }
                    rt::overwrite(#name, &out_.#name);
                },
                Some(Buffer::Vec) => quote!(*#name = out_.#name;),
                None => Code::new(),
            });
        }
        let result = self.returned_from(op, &quote!(out_));
        let draw = self.draw_reply(op, mentions(&result, "out_") || !moves.is_empty());
        quote!(checked_?; #draw #moves Ok(#result))
    }

    /// The arguments of a server's method as wire functions want them.
    fn received_args(&self, op: &Op<'a>) -> Code {
        let there = op.wire_list.iter().zip(&op.list);
        let there = there.filter(|(s, _)| s.is_in() && s.folded.is_none());
        let arg = |(s, shown): (&Sibling<'a>, &Sibling<'a>)| {
            let name = s.ident();
            let arg = match shown.folded {
                Some(Source::Len(other)) => {
                    let (array, ty) = (op.list[other].ident(), self.owned(s.ty));
                    quote!(#array.len() as #ty)
                }
                _ if s.is_out() && !op.deferred => self.borrow_param(s.ty, &Operand::Behind(name)),
                _ if op.deferred || matches!(self.shape(s.ty), Shape::Descriptor) => {
                    self.borrow_param(s.ty, &Operand::At(quote!(#name)))
                }
                _ => quote!(#name),
            };
            quote!(#arg,)
        };
        there.map(arg).collect()
    }
}

/// Builds a message of values with everything in its body, or tells why there is none.
pub(super) fn build(op: &Op<'_>, what: &str, args: &Code) -> Code {
    let size = op.wire("", &format!("_{what}_size"));
    let put = op.wire("put", &format!("_{what}"));
    quote! {
        #size(rt::Forms::BODY, #args)
            .and_then(|size_| rt::loopback::build(size_, |w_| #put(w_, #args)))
    }
}
