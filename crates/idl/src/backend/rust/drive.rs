//! Generated tests: a driver that calls every operation, a server that knows what must arrive, and
//! attacks on the decoders. Values come from `random`.

use crate::ir::Interface;
use proc_macro2::Ident;
use quote::{format_ident, quote};

use super::controls::drawn_control;
use super::encode::zero;
use super::model::{Gen, Operand, Shape};
use super::names;
use super::op::Op;
use super::oracle::build;
use super::siblings::{Buffer, Sibling};
use super::tokens::{Code, docs, ident, num, used};

impl<'a> Gen<'a> {
    /// Everything `Options::tests` asks for.
    pub(super) fn tests(&self) -> Code {
        let mut out = self.random_types();
        for interface in self.module.interfaces.iter().filter(|i| !i.is_local) {
            out.extend(self.random_module(interface));
            out.extend(self.test_module(interface));
        }
        out
    }

    fn random_module(&self, interface: &'a Interface) -> Code {
        let own = self.own_ops(interface);
        let operations = own.iter().filter(|op| !op.op.is_local).map(|op| {
            let (values, messages) = (self.random_op(op), self.drawn_messages(op));
            quote!(#values #messages)
        });
        let (driver, oracle) = (self.driver(interface), self.oracle(interface));
        let text = docs(&format!(
            "Tests of interface `{}`: see `docs/reference/idl-random.md`.",
            interface.name
        ));
        let name = random_name(interface);
        quote! {
            #text
            #[allow(missing_docs, reason = "generated: for tests only")]
            pub mod #name {
                #[allow(unused_imports, reason = "generated: an interface may need none")]
                use super::*;
                #(#operations)*
                #driver
                #oracle
            }
        }
    }

    /// Functions that give the messages of drawn values: `OP_in_message`, `OP_out_message`.
    fn drawn_messages(&self, op: &Op<'a>) -> Code {
        let (request, reply) = (op.type_of("RandomIn"), op.type_of("RandomOut"));
        let args = self.in_args(op, &quote!(in_));
        let i = used(&args, "in_");
        let message = message(op, "request", &args);
        let text = docs(&format!("A request of `{}` as a message.", op.op.name));
        let function = op.function("", "_in_message");
        let drawn = quote! {
            #text
            pub fn #function(
                forms: rt::Forms, #i: &#request
            ) -> Result<rt::loopback::Message, rt::EncodeError> {
                #message
            }
        };
        if op.op.oneway {
            return drawn;
        }
        let (siblings, values) =
            (self.sibling_list(op, &quote!(in_)), self.out_args(op, &quote!(out_)));
        let args = quote!(#siblings #values);
        let (i, o) = (used(&args, "in_"), used(&args, "out_"));
        let message = self::message(op, "reply", &args);
        let text = docs(&format!("A reply of `{}` as a message.", op.op.name));
        let function = op.function("", "_out_message");
        quote! {
            #drawn
            #text
            pub fn #function(
                forms: rt::Forms, #i: &#request, #o: &#reply
            ) -> Result<rt::loopback::Message, rt::EncodeError> {
                #message
            }
        }
    }

    /// Values of a drawn request as wire functions want them.
    fn in_args(&self, op: &Op<'a>, from: &Code) -> Code {
        let there = op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none());
        there.map(|s| self.drawn_value(s.ty, from, &s.ident())).collect()
    }

    /// Values of a drawn reply as wire functions want them.
    fn out_args(&self, op: &Op<'a>, from: &Code) -> Code {
        let result = op.op.result.iter().map(|ty| self.drawn_value(ty, from, &ident("ret")));
        let there = op.wire_list.iter().filter(|s| s.is_out() && s.folded.is_none());
        result.chain(there.map(|s| self.drawn_value(s.ty, from, &s.ident()))).collect()
    }

    fn drawn_value(&self, ty: &crate::ir::Ty, from: &Code, name: &Ident) -> Code {
        let value = self.borrow_param(ty, &Operand::At(quote!(#from.#name)));
        quote!(#value,)
    }

    fn sibling_list(&self, op: &Op<'a>, from: &Code) -> Code {
        let named = op.reply_siblings(self).into_iter().map(drawn_control);
        quote!(#(#from.#named,)*)
    }

    // ---- client ----

    fn driver(&self, interface: &'a Interface) -> Code {
        let client = format_ident!("{}Client", names::camel(&interface.name));
        let all = self.all_ops(interface);
        let driven: Vec<&Op<'a>> = all.iter().filter(|op| is_driven(op)).collect();
        let steps = driven.iter().map(|op| {
            let drive = op.function("drive", "");
            let text = format!("{}, call {{k_}}: {{e_}}", op.op.name);
            quote! {
                #drive(client_, seed_.wrapping_add(k_)).map_err(|e_| format!(#text))?;
                k_ += 1;
            }
        });
        // An interface may have no operation that is sent.
        let mutable = (!driven.is_empty()).then(|| quote!(mut));
        let functions = driven.iter().map(|op| self.drive_op(&client, op));
        quote! {
            /// Calls every operation `rounds_` times with random values and checks what comes back.
            ///
            /// # Errors
            /// Which call failed, and how.
            pub fn drive<T_: rt::Transport>(
                client_: &mut #client<T_>, seed_: u64, rounds_: u64
            ) -> Result<(), String> {
                let #mutable k_ = 0;
                for _ in 0..rounds_ { #(#steps)* }
                let _ = (client_, seed_, k_);
                Ok(())
            }
            #(#functions)*
        }
    }

    fn drive_op(&self, client: &Ident, op: &Op<'a>) -> Code {
        let (request, draw) =
            (op.random(&op.type_of("RandomIn")), op.random(&op.function("", "_in")));
        let number = num(op.op.opnum);
        let (mut lets, mut args) = (Code::new(), Code::new());
        for s in op.list.iter().filter(|s| s.folded.is_none()) {
            let name = s.ident();
            if let Some(buffer) = s.buffer {
                lets.extend(self.client_buffer(op, s, buffer));
                args.extend(quote!(&mut #name,));
            } else if s.is_in() && s.is_out() && !op.deferred {
                let value = match self.shape(s.ty) {
                    Shape::Descriptor => quote!(rt::random::duplicate(&in_.#name)),
                    _ => quote!(in_.#name.clone()),
                };
                lets.extend(quote!(let mut #name = #value;));
                args.extend(quote!(&mut #name,));
            } else if s.is_in() {
                args.extend(self.drawn_value(s.ty, &quote!(in_), &name));
            }
        }
        let name = op.ident();
        let call = quote!(client_.#name(#args).map_err(|e_| e_.to_string())?);
        let is_silent = op.outs(true).is_empty() && !op.list.iter().any(Sibling::is_out);
        let call = match op.op.oneway || is_silent {
            true => quote!(#call;),
            false => self.compare_reply(op, &call),
        };
        let function = op.function("drive", "");
        quote! {
            #[allow(clippy::clone_on_copy, reason = "generated: copies and clones alike")]
            fn #function<T_: rt::Transport>(
                client_: &mut #client<T_>, seed_: u64
            ) -> Result<(), String> {
                let in_ = #draw(&mut rt::random::Random::stream(seed_, #number, 1));
                #lets
                #call
                let _: &#request = &in_;
                Ok(())
            }
        }
    }

    fn client_buffer(&self, op: &Op<'a>, s: &Sibling<'a>, buffer: Buffer) -> Code {
        let (name, element) = (s.ident(), self.buffer_element(s));
        if buffer == Buffer::Vec {
            return quote!(let mut #name: Vec<#element> = Vec::new(););
        }
        let Shape::Array(array) = self.shape(s.ty) else { return Code::new() };
        let value = |index: usize| {
            let control = drawn_control(index);
            (!op.wire_list[index].is_out()).then(|| quote!(in_.#control))
        };
        let size = super::siblings::expr(&array.size, &value).unwrap_or_else(zero);
        quote!(let mut #name = vec![<#element as rt::Pod>::ZERO; (#size) as usize];)
    }

    /// Compares what came back with what must have.
    fn compare_reply(&self, op: &Op<'a>, call: &Code) -> Code {
        let (draw, message) =
            (op.random(&op.function("", "_out")), op.random(&op.function("", "_out_message")));
        let (reply, number) = (op.random(&op.type_of("RandomOut")), num(op.op.opnum));
        let returned = op.returned();
        let results = returned.iter().map(|o| {
            let name = o.ident();
            match returned.len() {
                1 => quote!(#name: got_),
                _ => quote!(#name: got_.#name),
            }
        });
        let inouts = op.inouts();
        let buffers = op.list.iter().filter(|s| s.buffer.is_some());
        let rest = buffers.chain(inouts).map(|s| {
            let name = s.ident();
            quote!(#name)
        });
        let fields = results.chain(rest);
        let bind = (!returned.is_empty()).then(|| quote!(let got_ =));
        quote! {
            #bind #call;
            let got_ = #reply { #(#fields),* };
            let want_ = #draw(&mut rt::random::Random::stream(seed_, #number, 2), &in_);
            rt::random::same(
                #message(rt::Forms::BODY, &in_, &want_), #message(rt::Forms::BODY, &in_, &got_)
            )
            .map_err(|e_| format!("{e_}: wanted {want_:?}, got {got_:?}"))?;
        }
    }

    // ---- tests ----

    fn test_module(&self, interface: &'a Interface) -> Code {
        let camel = names::camel(&interface.name);
        let [client, service, oracle] =
            ["Client", "Service", "Oracle"].map(|end| format_ident!("{camel}{end}"));
        let name = format_ident!("{}_tests", names::plain_snake(&interface.name));
        let random = random_name(interface);
        let own = self.own_ops(interface);
        let attacks = own.iter().filter(|op| !op.op.is_local).map(|op| self.attacks(op));
        quote! {
            #[cfg(test)]
            mod #name {
                use super::*;
                use super::#random::*;
                #[test]
                fn every_operation_brings_and_gives_what_it_must() {
                    for (seed_, threshold_) in [(1, usize::MAX), (2, 8), (3, 64)] {
                        rt::set_reference_threshold(threshold_);
                        let service_ = std::rc::Rc::new(std::cell::RefCell::new(
                            #service::<#oracle>::new(#oracle::new(seed_))
                        ));
                        let service_: std::rc::Rc<
                            std::cell::RefCell<dyn rt::Service<rt::loopback::LoopServer>>
                        > = service_;
                        let mut client_ =
                            #client::bind(rt::loopback::Loopback::new(&service_, 1))
                                .expect("bound");
                        if let Err(error_) = drive(&mut client_, seed_, 20) {
                            panic!("{error_}");
                        }
                    }
                }
                #(#attacks)*
            }
        }
    }

    fn attacks(&self, op: &Op<'a>) -> Code {
        let there = op.wire_list.iter().filter(|s| s.is_in() && s.folded.is_none());
        let args = there.map(|s| {
            let name = s.ident();
            let arg = self.restore(s, &quote!(got_.#name), op.deferred);
            quote!(#arg,)
        });
        let draw = op.function("", "_in_message");
        let requests = Attack {
            what: "request",
            function: attack_name("requests", op),
            drawn: quote!(#draw(forms_, &in_)),
            siblings: Code::new(),
            values: args.collect(),
        };
        let requests = requests.test(op);
        if op.op.oneway || op.list.iter().any(|s| s.buffer.is_some()) {
            return requests;
        }
        let draw = op.function("", "_out_message");
        let replies = Attack {
            what: "reply",
            function: attack_name("replies", op),
            drawn: quote!(#draw(forms_, &in_, &out_)),
            siblings: self.sibling_list(op, &quote!(in_)),
            values: self.out_args(op, &quote!(got_)),
        };
        let replies = replies.test(op);
        quote!(#requests #replies)
    }
}

/// Builds a message of values in `forms`.
fn message(op: &Op<'_>, what: &str, args: &Code) -> Code {
    let size = op.wire("", &format!("_{what}_size"));
    let put = op.wire("put", &format!("_{what}"));
    quote!(rt::loopback::build(#size(forms, #args)?, |w_| #put(w_, #args)))
}

/// A test that mutates drawn messages: what is read must be what is written again.
struct Attack {
    /// `request` or `reply`.
    what: &'static str,
    /// The test's name.
    function: Ident,
    /// The message drawn.
    drawn: Code,
    /// What the siblings are worth that do not travel with the message.
    siblings: Code,
    /// The values read, as they are written again.
    values: Code,
}

impl Attack {
    fn test(&self, op: &Op<'_>) -> Code {
        let Self { what, function, drawn, siblings, values } = self;
        let number = num(op.op.opnum);
        let (request, reply) = (op.function("", "_in"), op.function("", "_out"));
        let out = (*what == "reply").then(
            || quote!(let out_ = #reply(&mut rt::random::Random::stream(seed_, #number, 2), &in_);),
        );
        let get = op.wire("get", &format!("_{what}"));
        let got = ident(if values.is_empty() { "_got" } else { "got_" });
        let again = build(op, what, &quote!(#siblings #values));
        quote! {
            #[test]
            fn #function() {
                for seed_ in 0..60 {
                    let in_ = #request(&mut rt::random::Random::stream(seed_, #number, 1));
                    #out
                    rt::random::attack(seed_, &|forms_| #drawn, &|message_| {
                        message_.read(seed_ % 2 == 0, |d_| {
                            let #got = #get(d_, #siblings).ok()?;
                            Some(#again)
                        })
                    });
                }
            }
        }
    }
}

fn attack_name(what: &str, op: &Op<'_>) -> Ident {
    format_ident!("mutated_{what}_of_{}_are_refused_or_read_exactly", op.plain)
}

fn random_name(interface: &Interface) -> Ident {
    format_ident!("{}_random", names::plain_snake(&interface.name))
}

/// Operations whose both ends are generated.
fn is_driven(op: &Op<'_>) -> bool {
    let acf = &op.op.acf;
    !op.op.is_local
        && acf.impl_client.is_none()
        && acf.impl_server.is_none()
        && acf.code != Some(false)
}
