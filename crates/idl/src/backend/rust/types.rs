//! Types and constants, as the user of generated code sees them.

use crate::ir::{
    Arm, Const, ConstType, ConstValue, Doc, Enum, Scalar, Struct, Ty, TypeDef, TypeId, TypeKind,
    Union,
};
use proc_macro2::Ident;
use quote::quote;

use super::model::{Gen, Shape, scalar};
use super::tokens::{Code, code, docs, ident, num};
use super::{names, siblings};

/// Documentation as attributes; `otherwise` where the IDL has none.
pub(super) fn doc(doc: &Doc, otherwise: &str) -> Code {
    docs(doc.as_deref().filter(|d| !d.trim().is_empty()).unwrap_or(otherwise))
}

/// One arm of a union in Rust.
pub(super) struct Variant<'a> {
    pub(super) name: Ident,
    pub(super) arm: &'a Arm,
    /// The discriminant says which of several values: it is a part of the variant.
    pub(super) has_tag: bool,
}

/// A variant as it is written.
struct UnionMember {
    /// Its declaration.
    member: Code,
    /// The pattern behind its name, which binds the discriminant if it has one.
    pattern: Code,
}

impl Variant<'_> {
    /// The variant with its discriminant and value, where it has these.
    pub(super) fn made(&self, tag: &Code, value: Option<Code>) -> Code {
        let name = &self.name;
        match (value, self.has_tag) {
            (Some(value), true) => quote!(#name { tag: #tag, value: #value }),
            (Some(value), false) => quote!(#name(#value)),
            (None, true) => quote!(#name { tag: #tag }),
            (None, false) => quote!(#name),
        }
    }
}

impl<'a> Gen<'a> {
    /// Every named type.
    pub(super) fn types(&self) -> Code {
        let all = self.module.types.iter().enumerate();
        all.map(|(index, def)| self.type_item(TypeId(index as u32), def)).collect()
    }

    fn type_item(&self, id: TypeId, def: &'a TypeDef) -> Code {
        let name = self.type_code(id);
        match &def.kind {
            TypeKind::Alias(_) => self.alias(id, def),
            TypeKind::Enum(e) => self.enumeration(id, def, e),
            TypeKind::Struct(s) => self.structure(id, def, s),
            TypeKind::Union(u) => self.union(id, def, u),
            TypeKind::Opaque { size, align } => {
                let text = doc(&def.doc, &format!("Foreign type `{}`.", def.name));
                let (size, align) = (num(*size), num(*align));
                quote! {
                    #text
                    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
                    #[repr(C, align(#align))]
                    pub struct #name(
                        /// Its bytes.
                        pub [u8; #size]
                    );
                }
            }
            TypeKind::ContextHandle => {
                let text = doc(&def.doc, &format!("Context handle `{}`.", def.name));
                quote! {
                    #text
                    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
                    pub struct #name(
                        /// 0 is null; at the server a number of its own, at the client opaque.
                        pub u64
                    );
                    impl #name {
                        /// No context.
                        pub const NULL: Self = Self(0);
                        /// Whether it is null.
                        #[must_use]
                        pub fn is_null(self) -> bool {
                            self.0 == 0
                        }
                    }
                }
            }
        }
    }

    fn alias(&self, id: TypeId, def: &TypeDef) -> Code {
        let (name, target) = (self.type_code(id), self.owned_shape(self.wire_shape(id)));
        if target.to_string() == self.type_name(id) {
            return Code::new();
        }
        let text = doc(&def.doc, &format!("`{}`.", def.name));
        quote!(#text pub type #name = #target;)
    }

    fn enumeration(&self, id: TypeId, def: &TypeDef, e: &Enum) -> Code {
        let name = self.type_code(id);
        let variants = self.variants(e);
        let capitals = e.members.iter().map(|m| names::capitals(&m.name));
        let second = names::unique(variants.iter().cloned().chain(capitals).collect());
        let second = &second[variants.len()..];
        let (mut members, mut aliases, mut matches) = (Code::new(), Code::new(), Code::new());
        for (at, (member, variant)) in e.members.iter().zip(&variants).enumerate() {
            let text = doc(&member.doc, &format!("`{}`.", member.name));
            let value = num(member.value);
            match e.members[..at].iter().position(|m| m.value == member.value) {
                None => {
                    let variant = ident(variant);
                    members.extend(quote!(#text #variant = #value,));
                    matches.extend(quote!(#value => Ok(Self::#variant),));
                }
                Some(first) => {
                    let (alias, first) = (ident(&second[at]), ident(&variants[first]));
                    aliases.extend(quote!(#text pub const #alias: Self = Self::#first;));
                }
            }
        }
        let aliases = if aliases.is_empty() { aliases } else { quote!(impl #name { #aliases }) };
        let text = doc(&def.doc, &format!("Enumeration `{}`.", def.name));
        quote! {
            #text
            #[allow(clippy::enum_variant_names, reason = "the names are the interface's")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[repr(i32)]
            pub enum #name { #members }
            #aliases
            impl TryFrom<i32> for #name {
                type Error = i32;
                fn try_from(value: i32) -> Result<Self, i32> {
                    match value {
                        #matches
                        _ => Err(value)
                    }
                }
            }
        }
    }

    /// Names of the members of an enumeration.
    pub(super) fn variants(&self, e: &Enum) -> Vec<String> {
        names::variants(&e.members.iter().map(|m| m.name.as_str()).collect::<Vec<_>>())
    }

    fn structure(&self, id: TypeId, def: &TypeDef, s: &'a Struct) -> Code {
        let is_copy = s.fields.iter().all(|f| !f.ignore && self.is_copy(&f.ty));
        let copy = is_copy.then(|| quote!(Copy,));
        let fields = s.fields.iter().zip(siblings::fields(self, &s.fields));
        let fields = fields.filter(|(_, sibling)| sibling.folded.is_none()).map(|(field, s)| {
            let text = doc(&field.doc, &format!("`{}`.", field.name));
            let (name, ty) = (s.ident(), self.owned(&field.ty));
            quote!(#text pub #name: #ty,)
        });
        let (text, name) =
            (doc(&def.doc, &format!("Structure `{}`.", def.name)), self.type_code(id));
        quote! {
            #text
            #[derive(Clone, #copy Debug, PartialEq)]
            pub struct #name { #(#fields)* }
        }
    }

    fn union(&self, id: TypeId, def: &TypeDef, u: &'a Union) -> Code {
        let (mut members, mut tags) = (Code::new(), Code::new());
        for v in self.union_variants(u) {
            let UnionMember { member, pattern } = self.union_member(u, &v);
            let name = &v.name;
            let number = match v.arm.cases.first() {
                Some(case) if !v.has_tag => num(*case),
                _ => self.tag_number(u, &quote!(*tag)),
            };
            members.extend(member);
            tags.extend(quote!(Self::#name #pattern => #number,));
        }
        let (text, name) = (doc(&def.doc, &format!("Union `{}`.", def.name)), self.type_code(id));
        quote! {
            #text
            #[derive(Clone, Debug, PartialEq)]
            pub enum #name { #members }
            impl #name {
                /// The discriminant as it travels.
                #[must_use]
                pub fn tag(&self) -> i64 {
                    match self { #tags }
                }
            }
        }
    }

    fn union_member(&self, u: &Union, v: &Variant<'_>) -> UnionMember {
        let cases: Vec<String> = v.arm.cases.iter().map(ToString::to_string).collect();
        let what = if cases.is_empty() { "any other".to_owned() } else { cases.join(", ") };
        let field = v.arm.field.as_ref();
        let given = field.map(|f| f.doc.clone()).unwrap_or_default();
        let text = doc(&given, &format!("Discriminant {what}."));
        let (name, tag) = (&v.name, self.owned(&u.switch));
        let tag = quote! {
            /// The discriminant.
            tag: #tag
        };
        let value = field.map(|f| self.owned(&f.ty));
        let (form, pattern) = match (value, v.has_tag) {
            (Some(value), true) => {
                let value = quote! {
                    /// The value.
                    value: #value
                };
                (quote!({ #tag, #value }), quote!({ tag, .. }))
            }
            (None, true) => (quote!({ #tag }), quote!({ tag })),
            (Some(value), false) => (quote!((#value)), quote!((_))),
            (None, false) => (Code::new(), Code::new()),
        };
        UnionMember { member: quote!(#text #name #form,), pattern }
    }

    /// A discriminant as `i64`.
    fn tag_number(&self, u: &Union, tag: &Code) -> Code {
        match self.shape(&u.switch) {
            Shape::Enum(_) => quote!(i64::from(#tag as i32)),
            Shape::Scalar(Scalar::U64) => quote!(#tag.cast_signed()),
            Shape::Scalar(Scalar::I64) => tag.clone(),
            _ => quote!(i64::from(#tag)),
        }
    }

    /// The arms of a union with their names. One without a member has that of its case.
    pub(super) fn union_variants(&self, u: &'a Union) -> Vec<Variant<'a>> {
        let name = |arm: &Arm| match (&arm.field, arm.cases.first()) {
            (Some(field), _) => names::camel(&field.name),
            (None, Some(case)) => self
                .member_of(&u.switch, *case)
                .unwrap_or_else(|| format!("Case{}", case.to_string().replace('-', "Minus"))),
            (None, None) => "Other".to_owned(),
        };
        let names = names::unique(u.arms.iter().map(name).collect());
        let variant = |(arm, name): (&'a Arm, String)| Variant {
            name: ident(&name),
            arm,
            has_tag: arm.cases.len() != 1,
        };
        u.arms.iter().zip(names).map(variant).collect()
    }

    /// The name of the member with that value, if the type is an enumeration.
    fn member_of(&self, ty: &Ty, value: i128) -> Option<String> {
        let Shape::Enum(id) = self.shape(ty) else { return None };
        let TypeKind::Enum(e) = &self.module.types.get(id.0 as usize)?.kind else { return None };
        let at = e.members.iter().position(|member| i128::from(member.value) == value)?;
        self.variants(e).into_iter().nth(at)
    }

    /// Every constant.
    pub(super) fn consts(&self) -> Code {
        let names = super::settle::consts(self.module, &self.types);
        self.module.consts.iter().zip(names).map(|(c, name)| constant(c, &name)).collect()
    }
}

fn constant(c: &Const, name: &str) -> Code {
    let (text, name) = (doc(&c.doc, &format!("`{}`.", c.name)), ident(name));
    let (ty, value) = match (&c.ty, &c.value) {
        (ConstType::WideString, ConstValue::String(bytes)) => {
            let text = String::from_utf8_lossy(bytes);
            let words: Vec<Code> = text.encode_utf16().map(num).collect();
            (quote!(&[u16]), quote!(&[#(#words),*]))
        }
        (_, ConstValue::String(bytes)) => (quote!(&std::ffi::CStr), c_string(bytes)),
        (ConstType::Scalar(Scalar::Bool), ConstValue::Int(n)) => {
            let value = *n != 0;
            (quote!(bool), quote!(#value))
        }
        (ConstType::Scalar(s), ConstValue::Float(f)) => (scalar(*s), float(*s, *f)),
        (ConstType::Scalar(s @ (Scalar::F32 | Scalar::F64)), ConstValue::Int(n)) => {
            (scalar(*s), float(*s, *n as f64))
        }
        (ConstType::Scalar(s), ConstValue::Int(n)) => (scalar(*s), num(*n)),
        (_, ConstValue::Int(n)) => (quote!(i64), num(*n)),
        (_, ConstValue::Float(f)) => (quote!(f64), code(&format!("{f:?}"))),
    };
    quote!(#text pub const #name: #ty = #value;)
}

fn float(s: Scalar, f: f64) -> Code {
    let kind = scalar(s);
    match f {
        f if f.is_finite() => code(&format!("{f:?}_{kind}")),
        f if f.is_nan() => quote!(#kind::NAN),
        f if f > 0.0 => quote!(#kind::INFINITY),
        _ => quote!(#kind::NEG_INFINITY),
    }
}

fn c_string(bytes: &[u8]) -> Code {
    code(&format!("c\"{}\"", bytes.escape_ascii()))
}
