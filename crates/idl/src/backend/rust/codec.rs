//! Functions that measure, write and read the named types.

use crate::ir::{Arm, Struct, TypeId, TypeKind, Union};
use crate::layout::{self, Padding, StructLayout};
use proc_macro2::Ident;
use quote::quote;

use super::decode::Keep;
use super::encode::{Env, ensure};
use super::model::{Gen, Operand, Shape, limits, threshold};
use super::siblings::{self, Sibling, Source, number};
use super::tokens::{Code, as_result, num, unref, used};
use super::types::Variant;

/// What a type's functions do, in the same order as its fields.
#[derive(Default)]
struct Bodies {
    measure: Code,
    place: Code,
    follow: Code,
}

impl<'a> Gen<'a> {
    /// The functions of every structure and union.
    pub(super) fn codecs(&self) -> Code {
        let all = self.module.types.iter().enumerate();
        all.map(|(index, def)| match &def.kind {
            TypeKind::Struct(s) => self.struct_codec(TypeId(index as u32), s),
            TypeKind::Union(u) => self.union_codec(TypeId(index as u32), u),
            _ => Code::new(),
        })
        .collect()
    }

    /// What siblings are worth when their borrowed forms are `texts`.
    pub(super) fn values(&self, list: &[Sibling<'_>], texts: &[Option<Code>]) -> Vec<Option<Code>> {
        let value = |(sibling, text): (&Sibling<'_>, &Option<Code>)| match sibling.folded {
            Some(Source::Len(other)) => {
                let array = unref(texts[other].as_ref()?);
                Some(quote!(#array.len() as i128))
            }
            Some(Source::Tag(other)) => {
                let union = unref(texts[other].as_ref()?);
                Some(quote!(i128::from(#union.tag())))
            }
            None => number(self, sibling.ty, text.as_ref()?),
        };
        list.iter().zip(texts).map(value).collect()
    }

    /// Statements that place a folded sibling at `at`.
    pub(super) fn place_folded(
        &self,
        sibling: &Sibling<'_>,
        at: u64,
        texts: &[Option<Code>],
    ) -> Code {
        let text = |other: usize| texts[other].clone().unwrap_or_default();
        let (at, shape) = (num(at), self.shape(sibling.ty));
        let owned = self.owned_shape(shape);
        let ty = match shape {
            Shape::Enum(_) => quote!(i32),
            Shape::Scalar(crate::ir::Scalar::Bool) => quote!(u8),
            _ => owned.clone(),
        };
        let value = match sibling.folded {
            Some(Source::Len(other)) => {
                let array = text(other);
                quote!(#array.len() as #owned)
            }
            Some(Source::Tag(other)) => {
                let union = unref(&text(other));
                let is_wide = matches!(shape, Shape::Scalar(crate::ir::Scalar::I64));
                let cast = (!is_wide).then(|| quote!(as #ty));
                quote!(#union.tag() #cast)
            }
            None => text(0),
        };
        quote!(b_.put::<#at, #ty>(#value);)
    }

    /// Statements that check that a folded sibling can say what it must.
    pub(super) fn measure_folded(&self, sibling: &Sibling<'_>, texts: &[Option<Code>]) -> Code {
        let Some(Source::Len(other)) = sibling.folded else { return Code::new() };
        let Shape::Scalar(s) = self.shape(sibling.ty) else { return Code::new() };
        let Some(limits) = limits(s) else { return Code::new() };
        let range = sibling.range.unwrap_or(limits);
        let (low, high) = (range.low.max(limits.low), range.high.min(limits.high));
        let array = texts[other].clone().unwrap_or_default();
        let mut out = Code::new();
        if high < i128::from(u32::MAX) {
            let high = num(high.max(0));
            out.extend(ensure(&quote!(#array.len() <= #high), "TooLong"));
        }
        if low > 0 {
            let low = num(low);
            out.extend(ensure(&quote!(#array.len() >= #low), "Range"));
        }
        out
    }

    fn struct_codec(&self, id: TypeId, s: &'a Struct) -> Code {
        let layout = layout::struct_layout(self.module, s);
        let list = siblings::fields(self, &s.fields);
        let texts: Vec<Option<Code>> = list.iter().map(|f| self.field_text(f)).collect();
        let env =
            Env { values: self.values(&list, &texts), threshold: threshold(&[self.local(id)]) };
        let mut b = Bodies::default();
        for (index, field) in list.iter().enumerate() {
            let Some(slot) = &layout.fields[index] else { continue };
            if field.folded.is_some() {
                b.place.extend(self.place_folded(field, slot.offset, &texts));
                b.measure.extend(self.measure_folded(field, &texts));
                continue;
            }
            let text = texts[index].clone().unwrap_or_default();
            let shape = self.shape(field.ty);
            b.measure.extend(self.measure_range(field.ty, field.range, &text));
            b.measure.extend(self.measure(shape, &text, &env));
            b.place.extend(self.place(shape, slot.offset, &text, &env));
            b.follow.extend(self.follow(shape, &text, &env));
        }
        b.place.extend(zeroes(&layout.padding));
        let functions = self.functions(id, layout.size, &b);
        let slots = self.has_slots(id).then(|| self.slots_const(id, s, &layout));
        let get = self.get_function(id, layout.size, &self.struct_body(id, &list, &layout));
        quote!(#functions #slots #get)
    }

    /// The borrowed form of a field of `v_`; `None` for folded ones.
    fn field_text(&self, field: &Sibling<'_>) -> Option<Code> {
        let name = field.ident();
        (field.folded.is_none() && !field.ignore)
            .then(|| self.borrow(self.shape(field.ty), &Operand::At(quote!(v_.#name))))
    }

    fn slots_const(&self, id: TypeId, s: &'a Struct, layout: &StructLayout) -> Code {
        let fields = s.fields.iter().zip(&layout.fields);
        let list =
            fields.filter_map(|(f, slot)| Some(self.slot_list(&f.ty, slot.as_ref()?.offset)));
        let (name, list) = (self.slots_name(id), list.flatten());
        quote!(const #name: &[rt::Slot] = &[#(#list),*];)
    }

    fn struct_body(&self, id: TypeId, list: &[Sibling<'_>], layout: &StructLayout) -> Code {
        let padding = are_zero(&layout.padding);
        let slots: Vec<Option<u64>> =
            layout.fields.iter().map(|s| s.as_ref().map(|s| s.offset)).collect();
        let one = |s: &Sibling<'_>, at: u64, env: &Env| self.get_one(s, at, Keep::Own, env);
        let get = self.get_list(list, &slots, &[], &one);
        let fields = list.iter().filter(|f| f.folded.is_none()).map(Sibling::ident);
        let name = self.type_code(id);
        quote!(#padding #get Ok(#name { #(#fields),* }))
    }

    /// Statements `let name = ...;` for every sibling: numbers first, because sizes name them.
    /// `known` gives what siblings that do not travel here are worth, `one` reads one that does.
    pub(super) fn get_list<'t>(
        &self,
        list: &[Sibling<'t>],
        slots: &[Option<u64>],
        known: &[Option<Code>],
        one: &dyn Fn(&Sibling<'t>, u64, &Env) -> Code,
    ) -> Code {
        let value = |index: usize, s: &Sibling<'_>| {
            let name = s.ident();
            match (s.folded, self.shape(s.ty)) {
                _ if slots[index].is_none() => known.get(index).cloned().flatten(),
                (Some(_), Shape::Enum(_)) => Some(quote!(i128::from(#name))),
                (_, Shape::Scalar(_) | Shape::Enum(_)) => number(self, s.ty, &quote!(#name)),
                _ => None,
            }
        };
        let env = Env::reading(list.iter().enumerate().map(|(i, s)| value(i, s)).collect());
        let is_number =
            |s: &Sibling<'_>| matches!(self.shape(s.ty), Shape::Scalar(_) | Shape::Enum(_));
        let mut out = Code::new();
        for numbers in [true, false] {
            for (s, slot) in list.iter().zip(slots).filter(|(s, _)| is_number(s) == numbers) {
                let name = s.ident();
                out.extend(match (slot, s.folded, self.shape(s.ty)) {
                    (None, ..) if s.ignore => quote!(let #name = Default::default();),
                    (None, ..) => Code::new(),
                    (Some(at), Some(_), Shape::Enum(_)) => {
                        let at = num(*at);
                        quote!(let #name = v_.get::<#at, i32>();)
                    }
                    (Some(at), ..) => one(s, *at, &env),
                });
            }
        }
        out
    }

    /// Statement that reads a sibling.
    pub(super) fn get_one(&self, s: &Sibling<'_>, at: u64, keep: Keep, env: &Env) -> Code {
        let (name, get) = (s.ident(), self.get_ranged(s.ty, s.range, at, keep, env));
        quote!(let #name = #get;)
    }

    /// `measure_`, `place_` and `follow_` of a structure, those that have something to do.
    fn functions(&self, id: TypeId, size: u64, bodies: &Bodies) -> Code {
        let Bodies { measure, place, follow } = bodies;
        let (name, size) = (self.type_code(id), num(size));
        let measure = (!measure.is_empty()).then(|| self.measure_function(id, measure));
        let (w, b, v) = (used(place, "w_"), used(place, "b_"), used(place, "v_"));
        let function = self.codec("place", id);
        let place = quote! {
            #[inline]
            fn #function<'e, 'd>(
                #w: &mut rt::Writer<'e, 'd>, #b: rt::Block<'e, #size>, #v: &'d #name
            ) -> Result<(), rt::EncodeError> {
                #place
                Ok(())
            }
        };
        let follow = (!follow.is_empty()).then(|| self.follow_function(id, follow));
        quote!(#measure #place #follow)
    }

    fn measure_function(&self, id: TypeId, body: &Code) -> Code {
        let (function, name, m) = (self.codec("measure", id), self.type_code(id), used(body, "m_"));
        quote! {
            fn #function(#m: &mut rt::Measure, v_: &#name) -> Result<(), rt::EncodeError> {
                #body
                Ok(())
            }
        }
    }

    fn follow_function(&self, id: TypeId, body: &Code) -> Code {
        let (function, name) = (self.codec("follow", id), self.type_code(id));
        quote! {
            fn #function<'d>(
                w_: &mut rt::Writer<'_, 'd>, v_: &'d #name
            ) -> Result<(), rt::EncodeError> {
                #body
                Ok(())
            }
        }
    }

    fn get_function(&self, id: TypeId, size: u64, body: &Code) -> Code {
        let (function, name, size) = (self.codec("get", id), self.type_code(id), num(size));
        let (d, v) = (used(body, "d_"), used(body, "v_"));
        quote! {
            #[inline]
            fn #function(
                #d: &mut rt::Decoder<'_>, #v: rt::View<'_, #size>
            ) -> Result<#name, rt::DecodeError> {
                #body
            }
        }
    }

    fn union_codec(&self, id: TypeId, u: &'a Union) -> Code {
        let env = Env { values: Vec::new(), threshold: threshold(&[self.local(id)]) };
        let (mut measure, mut follow, mut get) = (Code::new(), Code::new(), Code::new());
        for v in self.union_variants(u) {
            let ArmBodies { measured, written } = self.arm_bodies(u, &v, &env);
            let pattern = self.arm_pattern(id, &v, &used(&measured, "x_"));
            measure.extend(quote!(#pattern => { #measured }));
            let pattern = self.arm_pattern(id, &v, &used(&written, "x_"));
            follow.extend(quote!(#pattern => { #written }));
            get.extend(self.union_arm(id, u, &v));
        }
        if !u.arms.iter().any(|a| a.cases.is_empty()) {
            get.extend(quote!(_ => Err(v_.error(rt::Cause::Discriminant, 0)),));
        }
        let measure = if u.arms.is_empty() { Code::new() } else { quote!(match v_ { #measure }) };
        // A union's place is its discriminant alone, which the holder of the union writes.
        let measure = self.measure_function(id, &measure);
        let has_objects = u.arms.iter().any(|a| a.field.is_some());
        let follow = has_objects.then(|| self.follow_function(id, &quote!(match v_ { #follow })));
        let body = quote!(let tag_ = v_.get::<0, i64>(); match tag_ { #get });
        let get = self.get_function(id, 8, &body);
        quote!(#measure #follow #get)
    }

    fn arm_bodies(&self, u: &Union, v: &Variant<'_>, env: &Env) -> ArmBodies {
        let mut measured = Code::new();
        if v.has_tag {
            measured.extend(ensure(&tag_condition(u, v.arm, &quote!(v_.tag())), "Mismatch"));
        }
        let Some(f) = &v.arm.field else {
            return ArmBodies { measured, written: Code::new() };
        };
        let text = self.borrow(self.shape(&f.ty), &Operand::Item);
        measured.extend(self.measure_range(&f.ty, f.range, &text));
        measured.extend(self.measure_object(&f.ty, env));
        ArmBodies { measured, written: self.follow_object(&f.ty, &text, env) }
    }

    /// The pattern of a variant that calls the value `value`.
    fn arm_pattern(&self, id: TypeId, v: &Variant<'_>, value: &Ident) -> Code {
        let (name, variant) = (self.type_code(id), &v.name);
        let form = match (v.arm.field.is_some(), v.has_tag) {
            (true, true) => quote!({ value: #value, .. }),
            (true, false) => quote!((#value)),
            (false, true) => quote!({ .. }),
            (false, false) => Code::new(),
        };
        quote!(#name::#variant #form)
    }

    fn union_arm(&self, id: TypeId, u: &Union, v: &Variant<'_>) -> Code {
        let env = Env::reading(Vec::new());
        let value = v.arm.field.as_ref().map(|f| {
            let (size, slots) = (num(self.size(&f.ty)), self.slots(&f.ty));
            let inner = as_result(self.get_ranged(&f.ty, f.range, 0, Keep::Own, &env));
            let d = used(&inner, "d_");
            quote!(d_.object::<#size, _>(#slots, |#d, v_| #inner)?)
        });
        let pattern = arm_cases(v.arm);
        let made = v.made(&self.tag_of(u), value);
        let name = self.type_code(id);
        quote!(#pattern => Ok(#name::#made),)
    }

    /// The discriminant `tag_` as its own type.
    fn tag_of(&self, u: &Union) -> Code {
        let error = quote!(v_.error(rt::Cause::Discriminant, 0));
        match self.shape(&u.switch) {
            Shape::Enum(id) => {
                let name = self.type_code(id);
                quote! {
                    i32::try_from(tag_).ok().and_then(|t| #name::try_from(t).ok())
                        .ok_or_else(|| #error)?
                }
            }
            Shape::Scalar(crate::ir::Scalar::Bool) => {
                quote!(match tag_ { 0 => false, 1 => true, _ => return Err(#error) })
            }
            Shape::Scalar(crate::ir::Scalar::I64) => quote!(tag_),
            Shape::Scalar(crate::ir::Scalar::U64) => quote!(tag_.cast_unsigned()),
            shape => {
                let ty = self.owned_shape(shape);
                quote!(#ty::try_from(tag_).map_err(|_| #error)?)
            }
        }
    }
}

/// What is done for the arm of a union.
struct ArmBodies {
    /// Measures it.
    measured: Code,
    /// Writes what lies behind the union.
    written: Code,
}

/// Statements that write zeroes between fields.
pub(super) fn zeroes(padding: &[Padding]) -> Code {
    let one = |gap: &Padding| {
        let (at, len) = (num(gap.offset), num(gap.len));
        quote!(b_.zero::<#at, #len>();)
    };
    padding.iter().map(one).collect()
}

/// Statements that check that there are zeroes between fields.
pub(super) fn are_zero(padding: &[Padding]) -> Code {
    let one = |gap: &Padding| {
        let (at, len) = (num(gap.offset), num(gap.len));
        quote!(v_.zero::<#at, #len>()?;)
    };
    padding.iter().map(one).collect()
}

/// The discriminants of an arm as a pattern.
pub(super) fn arm_cases(arm: &Arm) -> Code {
    if arm.cases.is_empty() { quote!(_) } else { tag_pattern(&arm.cases) }
}

/// Discriminants as they travel, 64 bits each, as a pattern.
fn tag_pattern(cases: &[i128]) -> Code {
    let mut tags: Vec<i64> = cases.iter().map(|c| *c as i64).collect();
    tags.sort_unstable();
    tags.dedup();
    let runs = tags.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let runs = runs.flat_map(|run| match run {
        [first, _, .., last] => {
            let (first, last) = (num(*first), num(*last));
            vec![quote!(#first..=#last)]
        }
        few => few.iter().map(|tag| num(*tag)).collect(),
    });
    quote!(#(#runs)|*)
}

/// Returns true if `tag` is one of the arm's cases, or for a default arm none of the others'.
fn tag_condition(u: &Union, arm: &Arm, tag: &Code) -> Code {
    if !arm.cases.is_empty() {
        let pattern = tag_pattern(&arm.cases);
        return quote!(matches!(#tag, #pattern));
    }
    let others: Vec<i128> = u.arms.iter().flat_map(|a| a.cases.iter().copied()).collect();
    if others.is_empty() {
        return quote!(true);
    }
    let pattern = tag_pattern(&others);
    quote!(!matches!(#tag, #pattern))
}
