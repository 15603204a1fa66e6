//! Code that reads values.
//!
//! One expression for every type, that gives an owned value or, for arguments of operations, one
//! that borrows from the message. In generated code `d_` is the decoder, `v_` the view at hand,
//! `h_` the header of an array, `x_` a value to be checked.

use crate::ir::{Array, IntRange, Scalar, StringTy, Ty, TypeId, TypeKind};
use crate::layout::{self, Known};
use proc_macro2::Ident;
use quote::{format_ident, quote};

use super::encode::{Env, zero};
use super::model::{Gen, Shape, scalar};
use super::tokens::{Code, as_result, num, used};

/// Who owns what is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// The message, where it can.
    Borrow,
    /// The value.
    Own,
}

impl Gen<'_> {
    /// An expression that reads a value of `shape` at `offset` of view `v_`.
    pub(super) fn get(&self, shape: Shape<'_>, offset: u64, keep: Keep, env: &Env) -> Code {
        let at = num(offset);
        match shape {
            Shape::Scalar(Scalar::Bool) => quote!(v_.boolean::<#at>()?),
            Shape::Scalar(s) => {
                let ty = scalar(s);
                quote!(v_.get::<#at, #ty>())
            }
            Shape::Enum(id) => {
                let name = self.type_code(id);
                quote! {
                    #name::try_from(v_.get::<#at, i32>())
                        .map_err(|_| v_.error(rt::Cause::Enum, #at))?
                }
            }
            Shape::Handle(id) => {
                let (name, kind) = (self.type_code(id), num(id.0));
                quote!(#name(d_.context::<#at, _>(v_, #kind)?))
            }
            Shape::Opaque(id, size) => {
                let (name, size) = (self.type_code(id), num(size));
                quote!(#name(*v_.bytes::<#at, #size>()))
            }
            Shape::Struct(id) => {
                let (get, size) = (self.codec("get", id), num(self.size(&Ty::Named(id))));
                quote!(#get(d_, v_.sub::<#at, #size>())?)
            }
            Shape::Union(id, on) => self.get_union(id, on.and_then(|on| env.expr(on)), &at),
            Shape::Fixed(element, n) => self.get_fixed(element, n, offset, keep, env),
            Shape::Array(array) => {
                let header = self.array_header(array, offset, env, false);
                let read = self.array_of(array, keep, env);
                quote!({ let h_ = #header; #read })
            }
            Shape::Str(s) => {
                let (header, read) = (string_header(s, offset, env, false), string_of(s, keep));
                quote!({ let h_ = #header; #read })
            }
            Shape::Unique(target) => self.get_unique(target, offset, keep, env),
            Shape::Shared(target) => self.get_shared(target, &at, env),
            Shape::Descriptor => match keep {
                Keep::Borrow => quote!(d_.descriptor::<#at, _>(v_)?),
                Keep::Own => quote!(rt::Descriptor::from(d_.descriptor::<#at, _>(v_)?)),
            },
            Shape::Interface(_) => quote!(d_.interface::<#at, _>(v_)?),
            Shape::Converted(id) => {
                let inner = self.get(self.wire_shape(id), offset, Keep::Own, env);
                let from_wire = self.conversion(id).from_wire;
                quote! {
                    #from_wire(#inner).ok_or_else(|| v_.error(rt::Cause::Converted, #at))?
                }
            }
        }
    }

    /// A union at `at`, with its discriminant checked against the expression `on`.
    fn get_union(&self, id: TypeId, on: Option<Code>, at: &Code) -> Code {
        let get = self.codec("get", id);
        let get = quote!(#get(d_, v_.sub::<#at, 8>())?);
        let Some(on) = on else { return get };
        quote!({
            v_.ensure(i128::from(v_.get::<#at, i64>()) == #on, rt::Cause::Discriminant, #at)?;
            #get
        })
    }

    /// An object at `at` that several pointers of the message may name.
    fn get_shared(&self, target: &Ty, at: &Code, env: &Env) -> Code {
        let (size, slots) = (num(self.size(target)), self.slots(target));
        let inner = as_result(self.get(self.shape(target), 0, Keep::Own, env));
        let d = used(&inner, "d_");
        quote!(d_.shared::<#at, #size, _, _>(v_, #slots, |#d, v_| #inner)?)
    }

    /// The value with its range checked.
    pub(super) fn get_ranged(
        &self,
        ty: &Ty,
        range: Option<IntRange>,
        at: u64,
        keep: Keep,
        env: &Env,
    ) -> Code {
        let get = self.get(self.shape(ty), at, keep, env);
        let value = match self.shape(ty) {
            Shape::Unique(_) if keep == Keep::Own => quote!(x_.as_deref().copied()),
            _ => quote!(x_),
        };
        match self.range_condition(ty, range, &value) {
            None => get,
            Some(condition) => {
                let at = num(at);
                quote!({
                    let x_ = #get;
                    v_.ensure(#condition, rt::Cause::Range, #at)?;
                    x_
                })
            }
        }
    }

    fn get_fixed(&self, element: &Ty, n: u32, at: u64, keep: Keep, env: &Env) -> Code {
        let (shape, at, n) = (self.shape(element), num(at), num(n));
        match shape {
            Shape::Scalar(Scalar::Char | Scalar::Byte | Scalar::U8) if keep == Keep::Borrow => {
                quote!(v_.bytes::<#at, #n>())
            }
            Shape::Scalar(s) if s != Scalar::Bool => {
                let ty = scalar(s);
                quote!(v_.pods::<#at, #ty, #n>())
            }
            _ => {
                let size = num(self.size(element));
                let one = as_result(self.get(shape, 0, Keep::Own, env));
                quote!(v_.array::<#at, #size, #n, _>(|v_| #one)?)
            }
        }
    }

    /// An expression for the checked header of an array; an `Option` if it may be null.
    pub(super) fn array_header(&self, array: &Array, at: u64, env: &Env, null: bool) -> Code {
        if !layout::is_varying(array) {
            let check = env.expr(&array.size).map(|size| quote!(expect(#size)));
            return simple_header(at, check, null);
        }
        let (at, second) = (num(at), num(at + 8));
        let count = array.length.as_ref().and_then(|l| env.expr(l));
        let check = count.map(|count| quote!(.expect(#count)?));
        let size = env.expr(&array.size);
        let size = size.unwrap_or_else(|| quote!(i128::from(v_.pair::<#second>().0)));
        let first = env.expr(&array.first).unwrap_or_else(zero);
        let varying = quote!(v_.varying::<#second>(h_, #size, #first)?;);
        if null {
            return quote! {
                match v_.header_or_null::<#at>()? {
                    Some(h_) => { let h_ = h_ #check; #varying Some(h_) }
                    None => { v_.zero::<#second, 8>()?; None }
                }
            };
        }
        quote!({ let h_ = v_.header::<#at>()? #check; #varying h_ })
    }

    /// An expression that reads the elements behind header `h_`.
    fn array_of(&self, array: &Array, keep: Keep, env: &Env) -> Code {
        let element = self.shape(&array.element);
        if let Shape::Scalar(s) = element
            && s != Scalar::Bool
        {
            let ty = scalar(s);
            let owned = (keep == Keep::Own).then(|| quote!(.into_owned()));
            return quote!(d_.pods::<#ty>(h_)? #owned);
        }
        let (size, slots) = (num(self.size(&array.element)), self.slots(&array.element));
        let flat = layout::is_flat(self.module, &array.element);
        let one = as_result(self.get(element, 0, Keep::Own, env));
        let d = used(&one, "d_");
        quote!(d_.array::<#size, _>(h_, #flat, #slots, |#d, v_| #one)?)
    }

    fn get_unique(&self, target: &Ty, at: u64, keep: Keep, env: &Env) -> Code {
        match self.shape(target) {
            Shape::Array(array) => {
                let header = self.array_header(array, at, env, true);
                optional(&header, &self.array_of(array, keep, env))
            }
            Shape::Str(s) => optional(&string_header(s, at, env, true), &string_of(s, keep)),
            shape => {
                let (at, size, slots) = (num(at), num(self.size(target)), self.slots(target));
                let inner = self.get(shape, 0, Keep::Own, env);
                let inner = if keep == Keep::Own { quote!(Box::new(#inner)) } else { inner };
                let inner = as_result(inner);
                let d = used(&inner, "d_");
                quote! {
                    if d_.present::<#at, _>(v_)? {
                        Some(d_.object::<#size, _>(#slots, |#d, v_| #inner)?)
                    } else {
                        None
                    }
                }
            }
        }
    }

    // ---- slots ----

    /// The words of `ty` that name something beside or behind it, as a slice expression.
    pub(super) fn slots(&self, ty: &Ty) -> Code {
        Self::marked(self.slot_list(ty, 0), self.has_numbers(ty))
    }

    /// A list of words, marked if there are words of `ptr` pointers among them.
    pub(super) fn marked(list: Vec<Code>, has_numbers: bool) -> Code {
        let mark = has_numbers.then(|| quote!(rt::Slot::Numbers,));
        quote!(&[#mark #(#list),*])
    }

    /// Returns true if the bytes in place have words of `ptr` pointers.
    pub(super) fn has_numbers(&self, ty: &Ty) -> bool {
        self.numbers_in(self.shape(ty), &mut Known::default())
    }

    fn numbers_in(&self, shape: Shape<'_>, known: &mut Known<bool>) -> bool {
        match shape {
            Shape::Shared(_) => true,
            Shape::Fixed(element, _) => self.numbers_in(self.shape(element), known),
            Shape::Converted(id) => self.numbers_in(self.wire_shape(id), known),
            Shape::Struct(id) => known.of(id, false, |known| match layout::kind(self.module, id) {
                Some(TypeKind::Struct(s)) => {
                    let mut there = s.fields.iter().filter(|f| !f.ignore);
                    there.any(|f| self.numbers_in(self.shape(&f.ty), known))
                }
                _ => false,
            }),
            _ => false,
        }
    }

    /// The same, one expression for each word, offsets from `at`.
    pub(super) fn slot_list(&self, ty: &Ty, at: u64) -> Vec<Code> {
        self.slots_of(self.shape(ty), at)
    }

    fn slots_of(&self, shape: Shape<'_>, offset: u64) -> Vec<Code> {
        let at = num(offset);
        match shape {
            Shape::Array(_) | Shape::Str(_) => vec![quote!(rt::Slot::Header(#at))],
            Shape::Descriptor | Shape::Interface(_) => vec![quote!(rt::Slot::Fd(#at))],
            Shape::Shared(_) => vec![quote!(rt::Slot::Number(#at))],
            Shape::Unique(target) if layout::is_header(self.module, target) => {
                vec![quote!(rt::Slot::Header(#at))]
            }
            Shape::Struct(id) if self.has_slots(id) => {
                let slots = self.slots_name(id);
                vec![quote!(rt::Slot::Run { at: #at, count: 1, stride: 0, slots: #slots })]
            }
            Shape::Fixed(element, n) => {
                let inner = self.slot_list(element, 0);
                if inner.is_empty() {
                    return inner;
                }
                let (n, stride) = (num(n), num(self.size(element)));
                vec![quote! {
                    rt::Slot::Run { at: #at, count: #n, stride: #stride, slots: &[#(#inner),*] }
                }]
            }
            Shape::Converted(id) => self.slots_of(self.wire_shape(id), offset),
            _ => Vec::new(),
        }
    }

    /// The constant with a structure's list of words.
    pub(super) fn slots_name(&self, id: TypeId) -> Ident {
        format_ident!("SLOTS_{}", self.type_snake(id).to_ascii_uppercase())
    }

    /// Returns true if the structure has any such words.
    pub(super) fn has_slots(&self, id: TypeId) -> bool {
        self.slots_in(Shape::Struct(id), &mut Known::default())
    }

    fn slots_in(&self, shape: Shape<'_>, known: &mut Known<bool>) -> bool {
        match shape {
            Shape::Array(_)
            | Shape::Str(_)
            | Shape::Descriptor
            | Shape::Interface(_)
            | Shape::Shared(_) => true,
            Shape::Unique(target) => layout::is_header(self.module, target),
            Shape::Struct(id) => known.of(id, false, |known| match layout::kind(self.module, id) {
                Some(TypeKind::Struct(s)) => {
                    let mut there = s.fields.iter().filter(|f| !f.ignore);
                    there.any(|f| self.slots_in(self.shape(&f.ty), known))
                }
                _ => false,
            }),
            Shape::Fixed(element, _) => self.slots_in(self.shape(element), known),
            Shape::Converted(id) => self.slots_in(self.wire_shape(id), known),
            _ => false,
        }
    }
}

fn simple_header(at: u64, check: Option<Code>, null: bool) -> Code {
    let at = num(at);
    match (null, check) {
        (false, None) => quote!(v_.header::<#at>()?),
        (false, Some(check)) => quote!(v_.header::<#at>()?.#check?),
        (true, None) => quote!(v_.header_or_null::<#at>()?),
        (true, Some(check)) => {
            quote!(v_.header_or_null::<#at>()?.map(|h_| h_.#check).transpose()?)
        }
    }
}

/// The header of a string.
fn string_header(s: &StringTy, at: u64, env: &Env, null: bool) -> Code {
    let bound = s.bound.as_ref().and_then(|b| env.expr(b));
    simple_header(at, bound.map(|b| quote!(at_most(rt::expr::sub(#b, 1)))), null)
}

fn optional(header: &Code, read: &Code) -> Code {
    quote!(match #header { Some(h_) => Some(#read), None => None })
}

fn string_of(s: &StringTy, keep: Keep) -> Code {
    let get = if s.wide { quote!(d_.wide(h_)?) } else { quote!(d_.string(h_)?) };
    if keep == Keep::Borrow { get } else { quote!(#get.into_owned()) }
}
