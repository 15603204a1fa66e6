//! What the words of a type stand for: built-in types, names, tags, enumerations.

use super::analyzer::Analyzer;
use super::scope::{Base, Derivation, DerivationKind, Meaning, Shape, Tag};
use crate::ast::{Enum as EnumTree, Name, TypeKind as Tree, TypeSpec};
use crate::diag::{Diagnostic, codes, nearest};
use crate::ir::{Doc, Enum, EnumMember, PtrClass, Scalar, StringTy, Struct, Ty, TypeId, TypeKind};
use crate::source::Span;

/// The name a type gets if it has none of its own.
#[derive(Clone, Debug)]
pub(super) struct Hint {
    pub(super) name: Name,
    /// From a typedef, whose name goes before the tag.
    pub(super) typedef: bool,
    pub(super) doc: Doc,
}

/// What other languages call types, and what they are called here.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bool", "boolean"),
    ("_Bool", "boolean"),
    ("integer", "long"),
    ("int8", "small"),
    ("int16", "short"),
    ("int32", "long"),
    ("int64", "hyper"),
    ("uint8", "byte"),
    ("uint16", "unsigned short"),
    ("uint32", "unsigned long"),
    ("uint64", "unsigned hyper"),
    ("u8", "byte"),
    ("u16", "unsigned short"),
    ("u32", "unsigned long"),
    ("u64", "unsigned hyper"),
    ("i8", "small"),
    ("i16", "short"),
    ("i32", "long"),
    ("i64", "hyper"),
    ("f32", "float"),
    ("f64", "double"),
    ("size_t", "unsigned hyper"),
    ("string", "[string] char *"),
    ("String", "[string] char *"),
    ("fd", "descriptor"),
    ("wchar", "wchar_t"),
];

/// Names of COM's 16-byte identifiers; those with a pointer begin with `REF`.
const UUID_NAMES: &[&str] = &["uuid_t", "GUID", "UUID", "IID", "CLSID"];
const UUID_REFERENCES: &[&str] = &["REFGUID", "REFIID", "REFCLSID"];

/// Name of the structure that stands for all of them in the output.
pub(crate) const UUID_TYPE: &str = "sj_uuid";

/// COM's names of scalars, known after one of its files has been imported.
const COM_SCALARS: &[(&str, Scalar)] = &[
    ("BYTE", Scalar::U8),
    ("UCHAR", Scalar::U8),
    ("CHAR", Scalar::Char),
    ("WCHAR", Scalar::WChar),
    ("OLECHAR", Scalar::WChar),
    ("WORD", Scalar::U16),
    ("USHORT", Scalar::U16),
    ("SHORT", Scalar::I16),
    ("DWORD", Scalar::U32),
    ("ULONG", Scalar::U32),
    ("UINT", Scalar::U32),
    ("LONG", Scalar::I32),
    ("INT", Scalar::I32),
    ("BOOL", Scalar::I32),
    ("SCODE", Scalar::I32),
    ("LONGLONG", Scalar::I64),
    ("ULONGLONG", Scalar::U64),
    ("DWORDLONG", Scalar::U64),
    ("FLOAT", Scalar::F32),
    ("DOUBLE", Scalar::F64),
    ("DATE", Scalar::F64),
    ("VARIANT_BOOL", Scalar::I16),
    ("LCID", Scalar::U32),
    ("DISPID", Scalar::I32),
    ("LARGE_INTEGER", Scalar::I64),
    ("ULARGE_INTEGER", Scalar::U64),
];

/// COM's names of strings, known likewise; `true`: of `wchar_t`.
const COM_STRINGS: &[(&str, bool)] = &[
    ("LPSTR", false),
    ("LPCSTR", false),
    ("LPWSTR", true),
    ("LPCWSTR", true),
    ("LPOLESTR", true),
    ("LPCOLESTR", true),
];

impl Analyzer<'_> {
    /// The type that `spec` names or declares. `None`: reported.
    pub(super) fn base(&mut self, spec: &TypeSpec, hint: Option<&Hint>) -> Option<Base> {
        match &spec.kind {
            Tree::Scalar(scalar) => Some(Base::Ty(Ty::Scalar(*scalar))),
            Tree::Void => Some(Base::Void),
            Tree::Handle => Some(Base::Handle),
            Tree::Descriptor => Some(Base::Ty(Ty::Descriptor)),
            Tree::Named(name) => self.named(name),
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
        self.unknown_type(name);
        None
    }

    fn well_known(&mut self, text: &str, span: Span) -> Option<Base> {
        if is_unknown(text) {
            return Some(Base::Interface(None));
        }
        if UUID_NAMES.contains(&text) {
            return Some(Base::Ty(self.uuid_type(span)));
        }
        if UUID_REFERENCES.contains(&text) {
            let base = Base::Ty(self.uuid_type(span));
            let levels = vec![Derivation { kind: DerivationKind::Pointer, span }];
            return Some(Base::Shaped(Box::new(Shape { base, levels })));
        }
        if !self.com_names {
            return None;
        }
        if let Some((_, wide)) = COM_STRINGS.iter().find(|(n, _)| *n == text) {
            let string = Ty::String(StringTy { wide: *wide, bound: None });
            return Some(Base::Ty(Ty::Pointer(PtrClass::Unique, Box::new(string))));
        }
        let scalar = COM_SCALARS.iter().find(|(n, _)| *n == text)?;
        Some(Base::Ty(Ty::Scalar(scalar.1)))
    }

    /// The structure of sixteen bytes behind `uuid_t`, `GUID` and `IID`.
    fn uuid_type(&mut self, span: Span) -> Ty {
        if let Some(tag) = self.scope.tags.get(UUID_TYPE) {
            return Ty::Named(tag.id);
        }
        let id = self.new_type(UUID_TYPE, span);
        let bytes = crate::ir::Field {
            name: "bytes".to_owned(),
            doc: None,
            ty: Ty::Fixed(Box::new(Ty::Scalar(Scalar::Byte)), 16),
            range: None,
            ignore: false,
        };
        self.set_kind(id, TypeKind::Struct(Struct { fields: vec![bytes] }));
        let pending = self.pending(id);
        pending.is_named = true;
        pending.def.imported = false;
        pending.def.doc = Some("A uuid in the order in which it is written.".to_owned());
        self.scope.tags.insert(UUID_TYPE.to_owned(), Tag { id, word: "struct" });
        Ty::Named(id)
    }

    fn unknown_type(&mut self, name: &Name) {
        let text = name.text.as_str();
        let known = self
            .scope
            .symbols
            .iter()
            .filter(|(_, s)| matches!(s.meaning, Meaning::Type { .. } | Meaning::Interface(_)));
        let built_in = [
            "hyper",
            "long",
            "short",
            "small",
            "char",
            "boolean",
            "byte",
            "float",
            "double",
            "wchar_t",
            "unsigned",
            "void",
            "struct",
            "union",
            "enum",
            "descriptor",
        ];
        let names =
            known.map(|(n, _)| n.as_str()).chain(self.scope.tags.keys().map(String::as_str));
        let is_com = COM_SCALARS.iter().any(|(n, _)| *n == text)
            || COM_STRINGS.iter().any(|(n, _)| *n == text);
        let help = if is_com {
            "COM's names of scalars and strings are known after `import \"wtypes.idl\";`".to_owned()
        } else if let Some((_, here)) = ELSEWHERE.iter().find(|(name, _)| *name == text) {
            format!("here it is called `{here}`")
        } else if text == "IDispatch" {
            "Automation is not part of this language: declare the operations in an interface"
                .to_owned()
        } else {
            match nearest(text, names.chain(built_in)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!(
                    "declare it before its use, import the file that does, or, if it is foreign: typedef [opaque(size, align)] {text};"
                ),
            }
        };
        self.sink.push(
            Diagnostic::error(codes::UNKNOWN_TYPE, name.span, format!("there is no type `{text}`"))
                .help(help),
        );
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
        let mut list: Vec<EnumMember> = Vec::new();
        let mut next: i128 = 0;
        for member in members {
            if let Some(value) = &member.value {
                next = self.int_constant(value).unwrap_or(next);
            }
            let Ok(value) = i32::try_from(next) else {
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
            if self.define(&member.name, Meaning::Member(value)) {
                let (name, doc) = (member.name.text.clone(), member.doc.clone());
                list.push(EnumMember { name, value, doc });
            }
        }
        self.set_kind(id, TypeKind::Enum(Enum { members: list }));
        Some(Base::Ty(Ty::Named(id)))
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

/// The root of COM's interfaces: known everywhere, without operations here.
pub(super) fn is_unknown(name: &str) -> bool {
    name == "IUnknown"
}
