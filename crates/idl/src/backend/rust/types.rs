//! Types and constants, as the user of generated code sees them.

use std::fmt::Write as _;

use crate::ir::{
    Arm, Const, ConstType, ConstValue, Doc, Enum, Field, Scalar, Struct, Ty, TypeDef, TypeId,
    TypeKind, Union,
};

use super::model::{Gen, Shape, scalar};
use super::{names, siblings};

/// Documentation as attribute lines; `otherwise` where the IDL has none.
pub(super) fn doc(doc: &Doc, otherwise: &str) -> String {
    let text = doc.as_deref().filter(|d| !d.trim().is_empty()).unwrap_or(otherwise);
    text.lines().fold(String::new(), |mut out, line| {
        let line = if line.is_empty() { String::new() } else { format!(" {}", line.trim()) };
        let _infallible = writeln!(out, "#[doc = {line:?}]");
        out
    })
}

/// One arm of a union in Rust.
pub(super) struct Variant<'a> {
    pub(super) name: String,
    pub(super) arm: &'a Arm,
    /// The discriminant says which of several values: it is a part of the variant.
    pub(super) has_tag: bool,
}

impl<'a> Gen<'a> {
    /// Every named type.
    pub(super) fn types(&self) -> String {
        let mut out = String::new();
        for (index, def) in self.module.types.iter().enumerate() {
            let id = TypeId(index as u32);
            match &def.kind {
                TypeKind::Alias(_) => out.push_str(&self.alias(id, def)),
                TypeKind::Enum(e) => out.push_str(&self.enumeration(id, def, e)),
                TypeKind::Struct(s) => out.push_str(&self.structure(id, def, s)),
                TypeKind::Union(u) => out.push_str(&self.union(id, def, u)),
                TypeKind::Opaque { size, align } => {
                    let name = self.type_name(id);
                    out.push_str(&doc(&def.doc, &format!("Foreign type `{}`.", def.name)));
                    out.push_str(&format!(
                        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]\n\
                         #[repr(C, align({align}))]\n\
                         pub struct {name}(\n/// Its bytes.\npub [u8; {size}]);\n"
                    ));
                }
                TypeKind::ContextHandle => {
                    let name = self.type_name(id);
                    out.push_str(&doc(&def.doc, &format!("Context handle `{}`.", def.name)));
                    out.push_str(&format!(
                        "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]\n\
                         pub struct {name}(\n/// 0 is null; at the server a number of its own, \
                         at the client opaque.\npub u64);\n\
                         impl {name} {{ /// No context.\npub const NULL: Self = Self(0);\n\
                         /// Whether it is null.\n#[must_use]\n\
                         pub fn is_null(self) -> bool {{ self.0 == 0 }} }}\n"
                    ));
                }
            }
        }
        out
    }

    fn alias(&self, id: TypeId, def: &TypeDef) -> String {
        let name = self.type_name(id);
        let target = self.owned_shape(self.wire_shape(id));
        if name == target {
            return String::new();
        }
        format!("{}pub type {name} = {target};\n", doc(&def.doc, &format!("`{}`.", def.name)))
    }

    fn enumeration(&self, id: TypeId, def: &TypeDef, e: &Enum) -> String {
        let name = self.type_name(id);
        let variants = self.variants(e);
        let mut out = doc(&def.doc, &format!("Enumeration `{}`.", def.name));
        out.push_str(
            "#[allow(clippy::enum_variant_names, reason = \"the names are the interface's\")]\n\
             #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]\n#[repr(i32)]\n",
        );
        out.push_str(&format!("pub enum {name} {{\n"));
        let capitals = e.members.iter().map(|m| names::capitals(&m.name));
        let second = names::unique(variants.iter().cloned().chain(capitals).collect());
        let second = &second[variants.len()..];
        let (mut aliases, mut matches) = (String::new(), String::new());
        for (at, (member, variant)) in e.members.iter().zip(&variants).enumerate() {
            let text = doc(&member.doc, &format!("`{}`.", member.name));
            let value = member.value;
            match e.members[..at].iter().position(|m| m.value == value) {
                None => {
                    out.push_str(&format!("{text}{variant} = {value},\n"));
                    matches.push_str(&format!("{value} => Ok(Self::{variant}),\n"));
                }
                Some(first) => aliases.push_str(&format!(
                    "{text}pub const {}: Self = Self::{};\n",
                    second[at], variants[first]
                )),
            }
        }
        out.push_str("}\n");
        if !aliases.is_empty() {
            out.push_str(&format!("impl {name} {{ {aliases} }}\n"));
        }
        out.push_str(&format!(
            "impl TryFrom<i32> for {name} {{ type Error = i32;\n\
             fn try_from(value: i32) -> Result<Self, i32> {{ \
             match value {{ {matches} _ => Err(value) }} }} }}\n"
        ));
        out
    }

    /// Names of the members of an enumeration.
    pub(super) fn variants(&self, e: &Enum) -> Vec<String> {
        names::variants(&e.members.iter().map(|m| m.name.as_str()).collect::<Vec<_>>())
    }

    fn structure(&self, id: TypeId, def: &TypeDef, s: &Struct) -> String {
        let copy = s.fields.iter().all(|f| !f.ignore && self.is_copy(&f.ty));
        let copy = if copy { "Copy, " } else { "" };
        let mut out = doc(&def.doc, &format!("Structure `{}`.", def.name));
        out.push_str(&format!(
            "#[derive(Clone, {copy}Debug, PartialEq)]\npub struct {} {{\n",
            self.type_name(id)
        ));
        for (field, sibling) in s.fields.iter().zip(siblings::fields(self, &s.fields)) {
            if sibling.folded.is_none() {
                let text = doc(&field.doc, &format!("`{}`.", field.name));
                out.push_str(&format!("{text}pub {}: {},\n", sibling.name, self.field(field)));
            }
        }
        out.push_str("}\n");
        out
    }

    /// Rust type of a field.
    pub(super) fn field(&self, field: &'a Field) -> String {
        self.owned(&field.ty)
    }

    fn union(&self, id: TypeId, def: &TypeDef, u: &Union) -> String {
        let name = self.type_name(id);
        let tag = self.owned(&u.switch);
        let mut out = doc(&def.doc, &format!("Union `{}`.", def.name));
        out.push_str(&format!("#[derive(Clone, Debug, PartialEq)]\npub enum {name} {{\n"));
        let mut tags = String::new();
        for v in self.union_variants(u) {
            let cases: Vec<String> = v.arm.cases.iter().map(ToString::to_string).collect();
            let what = if cases.is_empty() { "any other".to_owned() } else { cases.join(", ") };
            let field = v.arm.field.as_ref();
            let given = field.map(|f| f.doc.clone()).unwrap_or_default();
            out.push_str(&doc(&given, &format!("Discriminant {what}.")));
            let value = field.map(|f| self.field(f));
            let tag_field = format!("/// The discriminant.\ntag: {tag}");
            let pattern = match (&value, v.has_tag) {
                (Some(value), true) => {
                    out.push_str(&format!(
                        "{} {{ {tag_field}, /// The value.\nvalue: {value} }},\n",
                        v.name
                    ));
                    "{ tag, .. }"
                }
                (None, true) => {
                    out.push_str(&format!("{} {{ {tag_field} }},\n", v.name));
                    "{ tag }"
                }
                (Some(value), false) => {
                    out.push_str(&format!("{}({value}),\n", v.name));
                    "(_)"
                }
                (None, false) => {
                    out.push_str(&format!("{},\n", v.name));
                    ""
                }
            };
            let number = if v.has_tag {
                self.tag_number(u, "*tag")
            } else {
                cases.first().cloned().unwrap_or_default()
            };
            tags.push_str(&format!("Self::{}{pattern} => {number},\n", v.name));
        }
        out.push_str(&format!(
            "}}\nimpl {name} {{ /// The discriminant as it travels.\n#[must_use]\n\
             pub fn tag(&self) -> i64 {{ match self {{ {tags} }} }} }}\n"
        ));
        out
    }

    /// A discriminant as `i64`.
    pub(super) fn tag_number(&self, u: &Union, tag: &str) -> String {
        match self.shape(&u.switch) {
            Shape::Enum(_) => format!("i64::from({tag} as i32)"),
            Shape::Scalar(Scalar::U64) => format!("{tag}.cast_signed()"),
            Shape::Scalar(Scalar::I64) => tag.to_owned(),
            _ => format!("i64::from({tag})"),
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
        let variant =
            |(arm, name): (&'a Arm, String)| Variant { name, arm, has_tag: arm.cases.len() != 1 };
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
    pub(super) fn consts(&self) -> String {
        let names = super::settle::consts(self.module, &self.types);
        self.module.consts.iter().zip(names).map(|(c, name)| constant(c, &name)).collect()
    }
}

fn constant(c: &Const, name: &str) -> String {
    let text = doc(&c.doc, &format!("`{}`.", c.name));
    let (ty, value) = match (&c.ty, &c.value) {
        (ConstType::String, ConstValue::String(bytes)) => {
            ("&std::ffi::CStr".to_owned(), c_string(bytes))
        }
        (ConstType::WideString, ConstValue::String(bytes)) => {
            let text = String::from_utf8_lossy(bytes);
            let words: Vec<String> = text.encode_utf16().map(|w| w.to_string()).collect();
            ("&[u16]".to_owned(), format!("&[{}]", words.join(", ")))
        }
        (ConstType::Scalar(Scalar::Bool), ConstValue::Int(n)) => {
            ("bool".to_owned(), (*n != 0).to_string())
        }
        (ConstType::Scalar(s), ConstValue::Float(f)) => (scalar(*s).to_owned(), float(*s, *f)),
        (ConstType::Scalar(s @ (Scalar::F32 | Scalar::F64)), ConstValue::Int(n)) => {
            (scalar(*s).to_owned(), float(*s, *n as f64))
        }
        (ConstType::Scalar(s), ConstValue::Int(n)) => (scalar(*s).to_owned(), n.to_string()),
        (_, ConstValue::Int(n)) => ("i64".to_owned(), n.to_string()),
        (_, ConstValue::Float(f)) => ("f64".to_owned(), format!("{f:?}")),
        (ConstType::Scalar(_), ConstValue::String(bytes)) => {
            ("&std::ffi::CStr".to_owned(), c_string(bytes))
        }
    };
    format!("{text}pub const {name}: {ty} = {value};\n")
}

fn float(s: Scalar, f: f64) -> String {
    let kind = scalar(s);
    if f.is_finite() {
        format!("{f:?}_{kind}")
    } else if f.is_nan() {
        format!("{kind}::NAN")
    } else if f > 0.0 {
        format!("{kind}::INFINITY")
    } else {
        format!("{kind}::NEG_INFINITY")
    }
}

fn c_string(bytes: &[u8]) -> String {
    let text = bytes.iter().fold(String::new(), |mut out, b| {
        for c in core::ascii::escape_default(*b) {
            out.push(char::from(c));
        }
        out
    });
    format!("c\"{text}\"")
}
