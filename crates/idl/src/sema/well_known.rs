//! Names of types that nobody declares: identifiers, COM's scalars and strings; and what is said of
//! names that mean nothing. Not here: names that files declare (`types`, `typedefs`).

use super::analyzer::Analyzer;
use super::scope::{Base, Derivation, DerivationKind, Meaning, Shape, Tag};
use crate::ast::Name;
use crate::diag::{Diagnostic, codes, nearest};
use crate::ir::{PtrClass, Scalar, StringTy, Struct, Ty, TypeKind};
use crate::source::Span;

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

/// Types that other systems' IDL has and this one has not, with the way out.
pub(super) const FOREIGN: &[(&str, &str)] = &[
    ("pipe", "use an array with size_is, or pass one end of a pipe as `descriptor`"),
    ("SAFEARRAY", "use an array with size_is"),
    ("BSTR", "use `[string] wchar_t *`"),
    ("VARIANT", "use a union with a discriminant"),
    ("long_double", "use double"),
];

/// Names of COM's 16-byte identifiers; those with a pointer begin with `REF` or `LP`.
const UUID_NAMES: &[&str] = &["uuid_t", "GUID", "UUID", "IID", "CLSID", "FMTID"];
const UUID_REFERENCES: &[&str] = &[
    "REFGUID", "REFIID", "REFCLSID", "REFFMTID", "LPGUID", "LPCGUID", "LPIID", "LPCLSID", "LPFMTID",
];

/// Name of the structure that stands for all of them in the output.
const UUID_TYPE: &str = "sj_uuid";

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
    ("INT8", Scalar::I8),
    ("UINT8", Scalar::U8),
    ("INT16", Scalar::I16),
    ("UINT16", Scalar::U16),
    ("INT32", Scalar::I32),
    ("UINT32", Scalar::U32),
    ("LONG32", Scalar::I32),
    ("ULONG32", Scalar::U32),
    ("DWORD32", Scalar::U32),
    ("INT64", Scalar::I64),
    ("UINT64", Scalar::U64),
    ("LONG64", Scalar::I64),
    ("ULONG64", Scalar::U64),
    ("DWORD64", Scalar::U64),
    ("INT_PTR", Scalar::I64),
    ("UINT_PTR", Scalar::U64),
    ("LONG_PTR", Scalar::I64),
    ("ULONG_PTR", Scalar::U64),
    ("DWORD_PTR", Scalar::U64),
    ("HANDLE_PTR", Scalar::U64),
    ("SHANDLE_PTR", Scalar::I64),
    ("SIZE_T", Scalar::U64),
    ("SSIZE_T", Scalar::I64),
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
    pub(super) fn well_known(&mut self, text: &str, span: Span) -> Option<Base> {
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

    pub(super) fn foreign(&mut self, name: &str, span: Span, way_out: &str) {
        self.error(codes::FOREIGN_TYPE, span, format!("`{name}` does not exist here"), way_out);
    }

    /// `SAFEARRAY(T)`: in COM's files a pointer to such an array, of whatever elements.
    pub(super) fn safe_array(&mut self, span: Span) -> Option<Base> {
        let known = self.scope.symbols.get("LPSAFEARRAY").map(|s| s.meaning.clone());
        if let Some(Meaning::Type { base, .. }) = known {
            return Some(base);
        }
        self.foreign("SAFEARRAY", span, "use an array with size_is");
        None
    }

    pub(super) fn unknown_type(&mut self, name: &Name) {
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
}

/// The root of COM's interfaces: known everywhere, without operations here.
pub(super) fn is_unknown(name: &str) -> bool {
    name == "IUnknown"
}
