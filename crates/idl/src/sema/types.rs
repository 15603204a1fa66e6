//! What the words of a type stand for: built-in types, names, tags, enumerations.

use super::analyzer::Analyzer;
use super::scope::{Base, Meaning, Tag};
use super::well_known::{FOREIGN, is_unknown};
use crate::ast::{Enum as EnumTree, EnumMember as MemberTree, Name, TypeKind as Tree, TypeSpec};
use crate::diag::{Diagnostic, codes};
use crate::ir::{
    Const, ConstType, ConstValue, Doc, Enum, EnumMember, Scalar, Ty, TypeId, TypeKind,
};

/// The name a type gets if it has none of its own.
#[derive(Clone, Debug)]
pub(super) struct Hint {
    pub(super) name: Name,
    /// From a typedef, whose name goes before the tag.
    pub(super) typedef: bool,
    pub(super) doc: Doc,
}

impl Analyzer<'_> {
    /// The type that `spec` names or declares. `None`: reported.
    pub(super) fn base(&mut self, spec: &TypeSpec, hint: Option<&Hint>) -> Option<Base> {
        match &spec.kind {
            Tree::Scalar(scalar) => Some(Base::Ty(Ty::Scalar(*scalar))),
            Tree::Void => Some(Base::Void),
            Tree::Handle => Some(Base::Handle),
            Tree::Descriptor => Some(Base::Ty(Ty::Descriptor)),
            Tree::Named(name) => self.named(name),
            Tree::Parameterised(name) => {
                self.foreign(
                    &name.text,
                    name.span,
                    "write an interface for the types that are meant",
                );
                None
            }
            Tree::SafeArray => self.safe_array(spec.span),
            Tree::Variadic => {
                self.error(
                    codes::VARIADIC,
                    spec.span,
                    "an operation has a fixed number of parameters".to_owned(),
                    "pass an array with size_is",
                );
                None
            }
            Tree::Interface(name) if is_unknown(&name.text) => Some(Base::Interface(None)),
            Tree::Interface(name) => {
                let id = self.announce_interface(name)?;
                Some(Base::Interface(Some(id)))
            }
            Tree::Struct(tree) => {
                let id =
                    self.tagged("struct", tree.tag.as_ref(), tree.fields.is_some(), spec, hint)?;
                if let Some(fields) = &tree.fields {
                    self.set_doc(id, tree.doc.as_ref(), hint);
                    self.structure(id, fields);
                }
                Some(Base::Ty(Ty::Named(id)))
            }
            Tree::Enum(tree) => self.enumeration(tree, spec, hint),
            Tree::Union(tree) => self.union(tree, spec, hint, None),
        }
    }

    /// The documentation of a definition: that of the typedef, or its own.
    pub(super) fn set_doc(&mut self, id: TypeId, own: Option<&String>, hint: Option<&Hint>) {
        let outer = hint.filter(|h| h.typedef).and_then(|h| h.doc.clone());
        let pending = self.pending(id);
        pending.def.doc = outer.or_else(|| own.cloned()).or_else(|| pending.def.doc.take());
    }

    fn named(&mut self, name: &Name) -> Option<Base> {
        let text = name.text.as_str();
        if is_unknown(text) {
            return Some(Base::Interface(None));
        }
        if let Some(symbol) = self.scope.symbols.get(text) {
            let at = symbol.span;
            return match &symbol.meaning {
                Meaning::Type { base, .. } => Some(base.clone()),
                Meaning::Interface(id) => Some(Base::Interface(Some(*id))),
                Meaning::Const(_) | Meaning::Member(_) => {
                    self.sink.push(
                        Diagnostic::error(
                            codes::NOT_A_TYPE,
                            name.span,
                            format!("`{text}` is a value, not a type"),
                        )
                        .label(at, "declared here")
                        .help("give the type a name of its own"),
                    );
                    None
                }
            };
        }
        if let Some(tag) = self.scope.tags.get(text).copied() {
            return Some(self.base_of(tag.id));
        }
        if let Some(base) = self.well_known(text, name.span) {
            return Some(base);
        }
        if self.prelude(text) {
            return self.named(name);
        }
        match FOREIGN.iter().find(|(foreign, _)| *foreign == text) {
            Some((_, way_out)) => self.foreign(text, name.span, way_out),
            None => self.unknown_type(name),
        }
        None
    }

    /// A use of a type by number.
    pub(super) fn base_of(&mut self, id: TypeId) -> Base {
        match &self.pending(id).def.kind {
            TypeKind::Union(u) if u.encapsulated.is_none() => Base::Union(id),
            _ => Base::Ty(Ty::Named(id)),
        }
    }

    /// The type number behind `struct tag`, `enum tag` or `union tag`, made if need be.
    pub(super) fn tagged(
        &mut self,
        word: &'static str,
        tag: Option<&Name>,
        defines: bool,
        spec: &TypeSpec,
        hint: Option<&Hint>,
    ) -> Option<TypeId> {
        let id = match tag {
            Some(tag) => self.tag_id(word, tag, defines)?,
            None => match hint {
                Some(hint) => self.new_type(&hint.name.text, hint.name.span),
                None => {
                    self.error(
                        codes::ANONYMOUS_TYPE,
                        spec.span,
                        format!("this {word} needs a name"),
                        &format!("write `{word} NAME {{ ... }}`, or declare it with typedef"),
                    );
                    return None;
                }
            },
        };
        let typedef = hint.filter(|h| h.typedef);
        let pending = self.pending(id);
        if let Some(hint) =
            typedef.filter(|_| !pending.is_named && (defines || !pending.is_defined))
        {
            pending.def.name.clone_from(&hint.name.text);
            pending.span = hint.name.span;
            pending.is_named = true;
        }
        if defines {
            pending.is_named = true;
        }
        Some(id)
    }

    fn tag_id(&mut self, word: &'static str, tag: &Name, defines: bool) -> Option<TypeId> {
        let Some(known) = self.scope.tags.get(&tag.text).copied() else {
            let id = self.new_type(&tag.text, tag.span);
            self.scope.tags.insert(tag.text.clone(), Tag { id, word });
            return Some(id);
        };
        let first = self.pending(known.id).span;
        if known.word != word {
            self.sink.push(
                Diagnostic::error(
                    codes::TAG_KIND,
                    tag.span,
                    format!("`{}` is a {}, not a {word}", tag.text, known.word),
                )
                .label(first, "declared here")
                .help(format!("write `{} {}`", known.word, tag.text)),
            );
            return None;
        }
        if defines && self.pending(known.id).is_defined {
            self.sink.push(
                Diagnostic::error(
                    codes::DUPLICATE_NAME,
                    tag.span,
                    format!("`{word} {}` is defined twice", tag.text),
                )
                .label(first, "first defined here")
                .help("rename or remove one of them"),
            );
            return None;
        }
        Some(known.id)
    }

    fn enumeration(
        &mut self,
        tree: &EnumTree,
        spec: &TypeSpec,
        hint: Option<&Hint>,
    ) -> Option<Base> {
        let id = self.tagged("enum", tree.tag.as_ref(), tree.members.is_some(), spec, hint)?;
        let Some(members) = &tree.members else { return Some(Base::Ty(Ty::Named(id))) };
        self.set_doc(id, tree.doc.as_ref(), hint);
        if members.is_empty() && !self.sink.has_errors() {
            self.error(
                codes::EMPTY_ENUM,
                spec.span,
                "an enumeration needs a member: no value of it could travel".to_owned(),
                "add one, or use an integer type",
            );
        }
        let prefix = self.in_namespace.then(|| self.pending(id).def.name.clone());
        let list = self.members(members, prefix.as_deref());
        self.set_kind(id, TypeKind::Enum(Enum { members: list }));
        Some(Base::Ty(Ty::Named(id)))
    }

    /// `enum { A, B };` of a file of COM: constants, and no type. Whether this is one.
    pub(super) fn nameless_enum(&mut self, spec: &TypeSpec) -> bool {
        let Tree::Enum(EnumTree { tag: None, members: Some(members), .. }) = &spec.kind else {
            return false;
        };
        let imported = self.import_depth > 0;
        for EnumMember { name, value, doc } in self.members(members, None) {
            let (ty, value) = (ConstType::Scalar(Scalar::I32), ConstValue::Int(value.into()));
            self.module.consts.push(Const { name, doc, ty, value, imported });
        }
        true
    }

    /// Members with their values; inside a namespace with the name of their type before them.
    fn members(&mut self, trees: &[MemberTree], prefix: Option<&str>) -> Vec<EnumMember> {
        let mut list: Vec<EnumMember> = Vec::new();
        let mut next: i128 = 0;
        for member in trees {
            if let Some(value) = &member.value {
                next = self.int_constant(value).unwrap_or(next);
            }
            let Ok(value) = i32::try_from(self.wrapped(next)) else {
                let span = member.value.as_ref().map_or(member.name.span, |v| v.span);
                self.error(
                    codes::ENUM_RANGE,
                    span,
                    format!("{next} does not fit into an enumeration"),
                    "enumerations have 32 bits with sign; for more use constants",
                );
                continue;
            };
            next += 1;
            let mut name = member.name.clone();
            if let Some(prefix) = prefix {
                name.text = format!("{prefix}_{}", name.text);
            }
            if self.define(&name, Meaning::Member(value)) {
                list.push(EnumMember { name: name.text, value, doc: member.doc.clone() });
            }
        }
        list
    }

    /// COM writes flags with the highest bit set: 0x80000000 is the least number of 32 bits.
    pub(super) fn wrapped(&self, value: i128) -> i128 {
        let top = i128::from(u32::MAX);
        if self.is_com && value > i128::from(i32::MAX) && value <= top {
            value - top - 1
        } else {
            value
        }
    }

    /// The type behind any chain of aliases.
    pub(super) fn strip<'t>(&'t self, ty: &'t Ty) -> &'t Ty {
        let mut ty = ty;
        for _ in 0..256 {
            let Ty::Named(id) = ty else { break };
            let Some(TypeKind::Alias(target)) = self.kind(*id) else { break };
            ty = target;
        }
        ty
    }

    /// What a type is; `None` if it is only announced so far.
    pub(super) fn kind(&self, id: TypeId) -> Option<&TypeKind> {
        self.types.get(id.0 as usize).filter(|t| t.is_defined).map(|t| &t.def.kind)
    }

    /// The scalar behind any aliases.
    pub(super) fn scalar_of(&self, ty: &Ty) -> Option<Scalar> {
        match self.strip(ty) {
            Ty::Scalar(scalar) => Some(*scalar),
            _ => None,
        }
    }

    pub(super) fn is_enum(&self, base: &Base) -> bool {
        let Some(Ty::Named(id)) = super::analyzer::plain(base).map(|ty| self.strip(ty)) else {
            return false;
        };
        matches!(self.kind(*id), Some(TypeKind::Enum(_)))
    }
}
