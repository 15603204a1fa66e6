//! Random values for generated tests: `docs/reference/idl-random.md` as code that draws them.
//!
//! `r_` is the stream. Siblings that others name (counters and tags) are drawn first, as `c0_`,
//! `c1_`, ... of type `i128`.

use crate::ir::{Array, Expr, IntRange, Scalar, Struct, Ty, TypeId, TypeKind, Union};
use crate::layout;
use quote::quote;

use super::codec::arm_cases;
use super::controls::{Drawn, Values, drawn_control};
use super::encode::zero;
use super::model::{Gen, Shape, limits, scalar};
use super::op::Op;
use super::siblings::{self, Sibling, expr};
use super::tokens::{Code, drawing, ident, mentions, num, used};

impl<'a> Gen<'a> {
    /// Functions that draw every structure and union.
    pub(super) fn random_types(&self) -> Code {
        let all = self.module.types.iter().enumerate();
        all.map(|(index, def)| match &def.kind {
            TypeKind::Struct(s) => self.random_struct(TypeId(index as u32), s),
            TypeKind::Union(u) => self.random_union(TypeId(index as u32), u),
            _ => Code::new(),
        })
        .collect()
    }

    fn random_struct(&self, id: TypeId, s: &'a Struct) -> Code {
        let list = siblings::fields(self, &s.fields);
        let here: Vec<bool> = list.iter().map(|f| !f.ignore).collect();
        let Drawn { statement: controls, values } = self.draw_controls(&list, &here, &[], &[]);
        let rest = self.draw_rest(&list, &here, &values);
        let fields = list.iter().filter(|f| f.folded.is_none()).map(|f| {
            let name = f.ident();
            match f.ignore {
                true => quote!(#name: Default::default()),
                false => quote!(#name),
            }
        });
        let (function, name) = (self.codec("random", id), self.type_code(id));
        quote! {
            fn #function(r_: &mut rt::random::Random) -> #name {
                #controls
                #rest
                #name { #(#fields),* }
            }
        }
    }

    fn random_union(&self, id: TypeId, u: &'a Union) -> Code {
        let name = self.type_code(id);
        let mut arms = Code::new();
        for v in self.union_variants(u) {
            let value = v.arm.field.as_ref().map(|f| {
                let value = drawing(self.draw(&f.ty, f.range, &Vec::new()));
                quote!(r_.deeper(#value))
            });
            let pattern = arm_cases(v.arm);
            let made = v.made(&self.tag_value(u, &quote!(tag_)), value);
            arms.extend(quote!(#pattern => #name::#made,));
        }
        if !u.arms.iter().any(|a| a.cases.is_empty()) {
            arms.extend(quote!(_ => unreachable!("no such arm"),));
        }
        let r = ident(if mentions(&arms, "r_") { "r_" } else { "_r" });
        let (tag, random) = (self.codec("tag", id), self.codec("random", id));
        let draw = self.draw_tag(u);
        quote! {
            fn #tag(r_: &mut rt::random::Random) -> i64 { #draw }
            fn #random(#r: &mut rt::random::Random, tag_: i64) -> #name {
                match tag_ { #arms }
            }
        }
    }

    /// A discriminant as a value of its own type.
    fn tag_value(&self, u: &Union, tag: &Code) -> Code {
        match self.shape(&u.switch) {
            Shape::Enum(id) => self.enum_of(id, tag),
            Shape::Scalar(Scalar::Bool) => quote!(#tag != 0),
            shape => {
                let ty = self.owned_shape(shape);
                quote!(#tag as #ty)
            }
        }
    }

    fn enum_of(&self, id: TypeId, number: &Code) -> Code {
        let name = self.type_code(id);
        quote!(#name::try_from(#number as i32).expect("a member"))
    }

    /// An expression of type `i64` that draws a discriminant.
    fn draw_tag(&self, u: &Union) -> Code {
        let last = u.arms.len().saturating_sub(1);
        let arms = u.arms.iter().enumerate().map(|(index, arm)| {
            let tag = if arm.cases.is_empty() {
                num(self.default_tag(u) as i64)
            } else {
                one_of(arm.cases.iter().map(|case| num(*case as i64)).collect())
            };
            let pattern = if index == last { quote!(_) } else { num(index as u64) };
            quote!(#pattern => #tag,)
        });
        let count = num(u.arms.len() as u64);
        quote!(match r_.below(#count) { #(#arms)* })
    }

    fn default_tag(&self, u: &Union) -> i128 {
        let cases: Vec<i128> = u.arms.iter().flat_map(|a| a.cases.iter().copied()).collect();
        let free = |n: &i128| !cases.contains(n);
        let found = match layout::strip(self.module, &u.switch) {
            Ty::Named(id) => match layout::kind(self.module, *id) {
                Some(TypeKind::Enum(e)) => {
                    e.members.iter().map(|m| i128::from(m.value)).find(|n| free(n))
                }
                _ => None,
            },
            Ty::Scalar(Scalar::Bool) => (0..2).find(free),
            Ty::Scalar(s) => {
                let most = limits(*s).map_or(0, |limits| limits.high);
                (0..=most.min(cases.len() as i128)).find(free)
            }
            _ => None,
        };
        found.or_else(|| cases.first().copied()).unwrap_or(0)
    }

    /// Statements that draw what is neither counter nor tag, and give those their own types.
    pub(super) fn draw_rest(&self, list: &[Sibling<'_>], here: &[bool], values: &Values) -> Code {
        let mut out = Code::new();
        for (index, s) in list.iter().enumerate().filter(|(i, _)| here[*i]) {
            let control = self.control(list, index);
            if s.folded.is_some() {
                continue;
            }
            let draw = match (control, &values[index]) {
                (Some(_), Some(value)) => self.typed(s.ty, value),
                _ if s.dir.is_none() => self.draw(s.ty, s.range, values),
                _ => self.draw_param(s.ty, s.range, values),
            };
            let name = s.ident();
            out.extend(quote!(let #name = #draw;));
        }
        out
    }

    /// An `i128` as a value of type `ty`.
    fn typed(&self, ty: &Ty, value: &Code) -> Code {
        match self.shape(ty) {
            Shape::Scalar(Scalar::Bool) => quote!(#value != 0),
            Shape::Scalar(s) => {
                let ty = scalar(s);
                quote!(#value as #ty)
            }
            Shape::Enum(id) => self.enum_of(id, value),
            Shape::Unique(target) => {
                let inner = self.typed(target, value);
                quote!(Some(Box::new(#inner)))
            }
            _ => value.clone(),
        }
    }

    // ---- values ----

    fn draw_param(&self, ty: &Ty, range: Option<IntRange>, values: &Values) -> Code {
        match self.shape(ty) {
            Shape::Descriptor => quote!(r_.descriptor()),
            _ => self.draw(ty, range, values),
        }
    }

    /// An expression that draws an owned value.
    fn draw(&self, ty: &Ty, range: Option<IntRange>, values: &Values) -> Code {
        self.draw_shape(self.shape(ty), range, values)
    }

    fn draw_shape(&self, shape: Shape<'_>, range: Option<IntRange>, values: &Values) -> Code {
        match shape {
            Shape::Scalar(s) => draw_scalar(s, range),
            Shape::Enum(id) => match layout::kind(self.module, id) {
                Some(TypeKind::Enum(e)) => {
                    let number = one_of(e.members.iter().map(|m| num(m.value)).collect());
                    self.enum_of(id, &number)
                }
                _ => Code::new(),
            },
            Shape::Handle(id) => {
                let name = self.type_code(id);
                quote!(#name::NULL)
            }
            Shape::Opaque(id, _) => {
                let name = self.type_code(id);
                quote!(#name(core::array::from_fn(|_| r_.bits(8) as u8)))
            }
            Shape::Struct(id) => {
                let random = self.codec("random", id);
                quote!(#random(r_))
            }
            Shape::Union(id, on) => self.draw_union(id, on, values),
            Shape::Fixed(element, _) => {
                let one = self.draw(element, None, values);
                quote!(core::array::from_fn(|_| #one))
            }
            Shape::Array(array) => self.draw_array(array, values),
            Shape::Str(s) => {
                let bound = s.bound.as_ref().map(|bound| worth(bound, values));
                let bound = bound.map_or(quote!(None), |bound| quote!(Some(#bound)));
                if s.wide { quote!(r_.wide(#bound)) } else { quote!(r_.narrow(#bound)) }
            }
            Shape::Unique(target) => self.draw_unique(target, range, values),
            Shape::Shared(target) => {
                let shares = matches!(self.shape(target), Shape::Struct(_));
                let value = drawing(self.draw(target, None, values));
                quote!(r_.shared(#shares, #value))
            }
            Shape::Descriptor => quote!(rt::Descriptor::from(r_.descriptor())),
            Shape::Interface(reference) => {
                let interface = reference.interface.and_then(|id| self.interface(id));
                match interface.map(|i| i.uuid.map(num)) {
                    Some(uuid) => quote!(r_.interface(Some([#(#uuid),*]))),
                    None => quote!(r_.interface(None)),
                }
            }
            Shape::Converted(id) => {
                let inner = self.draw_shape(self.wire_shape(id), range, values);
                let from_wire = self.conversion(id).from_wire;
                quote!(#from_wire(#inner).expect("convertible"))
            }
        }
    }

    fn draw_union(&self, id: TypeId, on: Option<&Expr>, values: &Values) -> Code {
        let (tag, random) = (self.codec("tag", id), self.codec("random", id));
        match on.map(|on| worth(on, values)) {
            Some(on) => quote!(#random(r_, (#on) as i64)),
            None => quote!({ let tag_ = #tag(r_); #random(r_, tag_) }),
        }
    }

    fn draw_unique(&self, target: &Ty, range: Option<IntRange>, values: &Values) -> Code {
        let inner = match self.shape(target) {
            header @ (Shape::Array(_) | Shape::Str(_)) => self.draw_shape(header, None, values),
            _ => {
                let inner = drawing(self.draw(target, range, values));
                quote!(Box::new(r_.deeper(#inner)))
            }
        };
        quote!(if r_.present() { Some(#inner) } else { None })
    }

    fn draw_array(&self, array: &Array, values: &Values) -> Code {
        let count = worth(array.length.as_ref().unwrap_or(&array.size), values);
        let one = drawing(self.draw(&array.element, None, values));
        quote!(r_.many((#count) as usize, #one))
    }

    // ---- operations ----

    /// Structures and functions that draw the request and the reply of an operation.
    pub(super) fn random_op(&self, op: &Op<'a>) -> Code {
        let list = &op.wire_list;
        let is_in: Vec<bool> = list.iter().map(Sibling::is_in).collect();
        let outs: Vec<usize> = (0..list.len()).filter(|i| !is_in[*i]).collect();
        let Drawn { statement: controls, values } = self.draw_controls(list, &is_in, &outs, &[]);
        let rest = self.draw_rest(list, &is_in, &values);
        let body = quote!(#controls #rest);
        let there = list.iter().filter(|s| s.is_in() && s.folded.is_none());
        let fields = there.map(|s| (s.ident(), self.owned_param(s.ty)));
        let controls = values.iter().enumerate().filter(|(_, value)| value.is_some());
        let controls = controls.map(|(index, _)| (drawn_control(index), quote!(i128)));
        let (names, types): (Vec<_>, Vec<_>) = fields.chain(controls).unzip();
        let (ty, function, r) = (op.type_of("RandomIn"), op.function("", "_in"), used(&body, "r_"));
        let reply = (!op.op.oneway).then(|| self.random_reply(op, &values));
        quote! {
            #[derive(Debug)]
            pub struct #ty { #(pub #names: #types),* }
            pub fn #function(#r: &mut rt::random::Random) -> #ty {
                #body
                #ty { #(#names),* }
            }
            #reply
        }
    }

    fn random_reply(&self, op: &Op<'a>, request: &Values) -> Code {
        let list = &op.wire_list;
        let is_out: Vec<bool> = list.iter().map(Sibling::is_out).collect();
        let known = |(index, s): (usize, &Sibling<'_>)| {
            let control = drawn_control(index);
            (!s.is_out() && request[index].is_some()).then(|| quote!(in_.#control))
        };
        let known: Values = list.iter().enumerate().map(known).collect();
        let Drawn { statement: controls, values } = self.draw_controls(list, &is_out, &[], &known);
        let result = op.op.result.as_ref().map(|ty| {
            let draw = self.draw_param(ty, None, &values);
            quote!(let ret = #draw;)
        });
        let rest = self.draw_rest(list, &is_out, &values);
        let body = quote!(#controls #result #rest);
        let result = op.op.result.iter().map(|ty| (ident("ret"), self.owned_param(ty)));
        let there = list.iter().filter(|s| s.is_out() && s.folded.is_none());
        let fields = result.chain(there.map(|s| (s.ident(), self.owned_param(s.ty))));
        let (names, types): (Vec<_>, Vec<_>) = fields.unzip();
        let (request, ty, function) =
            (op.type_of("RandomIn"), op.type_of("RandomOut"), op.function("", "_out"));
        let (r, i) = (used(&body, "r_"), used(&body, "in_"));
        quote! {
            #[derive(Debug)]
            pub struct #ty { #(pub #names: #types),* }
            pub fn #function(#r: &mut rt::random::Random, #i: &#request) -> #ty {
                #body
                #ty { #(#names),* }
            }
        }
    }
}

/// What an expression is worth, as far as it is known.
fn worth(e: &Expr, values: &Values) -> Code {
    expr(e, &|index| values.get(index).cloned().flatten()).unwrap_or_else(zero)
}

/// An expression that draws one of several numbers.
fn one_of(numbers: Vec<Code>) -> Code {
    let count = num(numbers.len() as u64);
    quote!([#(#numbers),*][r_.below(#count) as usize])
}

fn draw_scalar(s: Scalar, range: Option<IntRange>) -> Code {
    let ty = scalar(s);
    match (s, range) {
        (Scalar::Bool, _) => quote!(r_.bits(1) != 0),
        (Scalar::F32, _) => quote!(r_.float()),
        (Scalar::F64, _) => quote!(f64::from(r_.float())),
        (_, Some(range)) => {
            let (low, high) = (num(range.low), num(range.high));
            quote!(r_.ranged(#low, #high) as #ty)
        }
        (Scalar::U64, None) => quote!(r_.bits(64)),
        (_, None) => {
            let bits = num(layout::scalar_size(s) * 8);
            quote!(r_.bits(#bits) as #ty)
        }
    }
}
