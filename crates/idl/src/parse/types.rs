//! Types and declarators.

use super::cursor::{Bail, Parsed};
use super::parser::Parser;
use crate::ast::{
    Declarator, Enum, EnumMember, Expr, Level, LevelKind, Name, Struct, TypeKind, TypeSpec,
};
use crate::diag::codes;
use crate::ir::Scalar;
use crate::lex::Kind;
use crate::source::Span;

/// Most pointers and dimensions of one declarator.
const LEVELS_MAX: usize = 16;

/// Words of C compilers that say how a function is called.
const CALLING_CONVENTIONS: &[&str] = &[
    "__stdcall",
    "__cdecl",
    "__fastcall",
    "_stdcall",
    "stdcall",
    "STDMETHODCALLTYPE",
    "WINAPI",
    "CALLBACK",
    "STDAPICALLTYPE",
];

impl Parser<'_> {
    /// A type, with `const` before or behind it.
    pub(crate) fn type_spec(&mut self) -> Parsed<TypeSpec> {
        self.qualifiers();
        let start = self.cursor.peek().span;
        let kind = self.type_kind()?;
        let end = self.cursor.previous().map_or(start, |t| t.span);
        self.qualifiers();
        Ok(TypeSpec { kind, span: start.to(end) })
    }

    /// `const` says nothing about what travels; `volatile` says something that cannot be.
    fn qualifiers(&mut self) {
        loop {
            if self.cursor.is_word("volatile") {
                let span = self.cursor.peek().span;
                self.cursor.error(
                    codes::QUALIFIER,
                    span,
                    "`volatile` has no meaning for what travels in messages".to_owned(),
                    "take it out",
                );
                self.cursor.advance();
            } else if !self.cursor.eat_word("const") {
                return;
            }
        }
    }

    fn type_kind(&mut self) -> Parsed<TypeKind> {
        let Some(word) = self.cursor.peek().ident() else {
            return Err(self.cursor.unexpected("a type"));
        };
        match word {
            "struct" => self.structure(),
            "enum" => self.enumeration(),
            "union" => self.union(),
            "interface" => {
                self.cursor.advance();
                let name = self.path("the name of an interface")?;
                Ok(TypeKind::Interface(name))
            }
            "void" => self.word(TypeKind::Void),
            "handle_t" => self.word(TypeKind::Handle),
            "descriptor" => self.word(TypeKind::Descriptor),
            "SAFEARRAY" if self.cursor.peek_at(1).is("(") => {
                self.cursor.advance();
                self.cursor.skip_balanced();
                Ok(TypeKind::SafeArray)
            }
            _ => match self.scalar()? {
                Some(scalar) => Ok(TypeKind::Scalar(scalar)),
                None => self.named_type(),
            },
        }
    }

    /// The name of a type, perhaps with the namespaces it is in, perhaps with parameters.
    fn named_type(&mut self) -> Parsed<TypeKind> {
        let name = self.path("a type")?;
        if self.cursor.is("<") {
            self.skip_angles();
            return Ok(TypeKind::Parameterised(name));
        }
        Ok(TypeKind::Named(name))
    }

    fn word(&mut self, kind: TypeKind) -> Parsed<TypeKind> {
        self.cursor.advance();
        Ok(kind)
    }

    /// Built-in scalar types of one or several words; `None` if none begins here.
    fn scalar(&mut self) -> Parsed<Option<Scalar>> {
        let first = self.cursor.peek();
        let mut words: Vec<&str> = Vec::new();
        while let Some(word) = self.cursor.peek().ident() {
            let belongs = matches!(
                word,
                "unsigned"
                    | "signed"
                    | "hyper"
                    | "long"
                    | "int"
                    | "short"
                    | "small"
                    | "char"
                    | "__int64"
                    | "__int32"
                    | "__int16"
                    | "__int8"
            );
            if !belongs {
                break;
            }
            words.push(word);
            self.cursor.advance();
        }
        if words.is_empty() {
            return Ok(self.one_word_scalar(first.ident().unwrap_or("")));
        }
        let scalar = integer(&words);
        if scalar.is_none() {
            let end = self.cursor.previous().map_or(first.span, |t| t.span);
            self.cursor.error(
                codes::TYPE_WORDS,
                first.span.to(end),
                format!("`{}` is no type", words.join(" ")),
                "integers are small (8 bits), short (16), long (32) and hyper (64), each also unsigned",
            );
        }
        Ok(Some(scalar.unwrap_or(Scalar::I32)))
    }

    fn one_word_scalar(&mut self, word: &str) -> Option<Scalar> {
        let scalar = match word {
            "boolean" => Scalar::Bool,
            "byte" => Scalar::Byte,
            "wchar_t" => Scalar::WChar,
            "float" => Scalar::F32,
            "double" => Scalar::F64,
            "error_status_t" => Scalar::ErrorStatus,
            "HRESULT" | "int32_t" => Scalar::I32,
            "int8_t" => Scalar::I8,
            "uint8_t" => Scalar::U8,
            "int16_t" => Scalar::I16,
            "uint16_t" => Scalar::U16,
            "uint32_t" => Scalar::U32,
            "int64_t" => Scalar::I64,
            "uint64_t" => Scalar::U64,
            _ => return None,
        };
        self.cursor.advance();
        Some(scalar)
    }

    fn structure(&mut self) -> Parsed<TypeKind> {
        let doc = self.cursor.advance().doc.clone();
        let tag = self.tag()?;
        let fields = if self.cursor.is("{") { Some(self.fields()?) } else { None };
        self.tag_or_body(tag.as_ref(), fields.is_some(), "struct")?;
        Ok(TypeKind::Struct(Struct { doc, tag, fields }))
    }

    pub(super) fn tag(&mut self) -> Parsed<Option<Name>> {
        match self.cursor.peek().ident() {
            Some("switch") | None => Ok(None),
            Some(_) => self.cursor.name("the name of a type").map(Some),
        }
    }

    pub(super) fn tag_or_body(&mut self, tag: Option<&Name>, body: bool, word: &str) -> Parsed<()> {
        if tag.is_none() && !body {
            return Err(self.cursor.unexpected(&format!("a name or `{{` after `{word}`")));
        }
        Ok(())
    }

    fn enumeration(&mut self) -> Parsed<TypeKind> {
        let doc = self.cursor.advance().doc.clone();
        let tag = self.tag()?;
        let members = if self.cursor.eat("{") { Some(self.enum_members()?) } else { None };
        self.tag_or_body(tag.as_ref(), members.is_some(), "enum")?;
        Ok(TypeKind::Enum(Enum { doc, tag, members }))
    }

    fn enum_members(&mut self) -> Parsed<Vec<EnumMember>> {
        let mut members: Vec<EnumMember> = Vec::new();
        while !self.cursor.is("}") && !self.cursor.at_end() {
            match self.enum_member() {
                Ok(member) => members.push(member),
                Err(Bail) => self.cursor.skip_to(&[","]),
            }
            let separated = self.cursor.eat(",");
            if let Some(member) = members.last_mut().filter(|m| m.doc.is_none()) {
                member.doc = self.doc_behind();
            }
            if !separated && !self.cursor.is("}") {
                self.cursor.unexpected("`,` or `}` after a member of an enumeration");
                self.cursor.skip_to(&[","]);
                if !self.cursor.eat(",") {
                    break;
                }
            }
        }
        self.cursor.expect("}", "the members of an enumeration")?;
        Ok(members)
    }

    fn enum_member(&mut self) -> Parsed<EnumMember> {
        let doc = self.cursor.peek().doc.clone();
        self.attrs();
        let name = self.cursor.name("the name of a member")?;
        let value = if self.cursor.eat("=") { Some(self.expr()?) } else { None };
        Ok(EnumMember { doc, name, value })
    }

    /// The comment behind the construct just read: on its last token or the one before.
    pub(super) fn doc_behind(&self) -> Option<String> {
        self.cursor.previous().and_then(|t| t.doc_after.clone())
    }

    /// Pointers, a name, dimensions.
    pub(crate) fn declarator(&mut self, what: &str) -> Parsed<Declarator> {
        self.cursor.enter()?;
        let result = self.declarator_here(what);
        self.cursor.leave();
        self.bounded(result?)
    }

    /// A declarator, unless it has too many steps.
    pub(super) fn bounded(&mut self, declarator: Declarator) -> Parsed<Declarator> {
        if declarator.levels.len() > LEVELS_MAX {
            self.cursor.error(
                codes::TOO_DEEP,
                declarator.name.span,
                format!("more than {LEVELS_MAX} pointers and dimensions in one declaration"),
                "give the inner parts names with typedef",
            );
            return Err(Bail);
        }
        Ok(declarator)
    }

    fn declarator_here(&mut self, what: &str) -> Parsed<Declarator> {
        let mut pointers = self.pointers();
        let (name, mut levels) = if self.cursor.eat("(") {
            let inner = self.declarator(what)?;
            self.cursor.expect(")", "the declaration")?;
            (inner.name, inner.levels)
        } else {
            (self.cursor.name(what)?, Vec::new())
        };
        loop {
            if self.cursor.is("[") {
                levels.push(self.dimension()?);
            } else if self.cursor.is("(") {
                let span = self.cursor.peek().span;
                self.cursor.skip_balanced();
                levels.push(Level { kind: LevelKind::Function, span });
            } else {
                break;
            }
        }
        levels.append(&mut pointers);
        Ok(Declarator { name, levels })
    }

    /// `*`s; calling conventions between them have no meaning and are skipped.
    pub(super) fn pointers(&mut self) -> Vec<Level> {
        let mut levels = Vec::new();
        loop {
            let span = self.cursor.peek().span;
            if self.cursor.eat("*") {
                levels.push(Level { kind: LevelKind::Pointer, span });
            } else if self.cursor.is_word("const") || self.cursor.is_word("volatile") {
                self.qualifiers();
            } else if !self.eat_calling_convention() {
                return levels;
            }
        }
    }

    fn eat_calling_convention(&mut self) -> bool {
        CALLING_CONVENTIONS.iter().any(|word| {
            let is_name = self.cursor.peek_at(1).is("(") && *word == "stdcall";
            !is_name && self.cursor.eat_word(word)
        })
    }

    fn dimension(&mut self) -> Parsed<Level> {
        let start = self.cursor.expect("[", "the name")?;
        let kind = if self.cursor.is("]") {
            LevelKind::Open
        } else if self.cursor.is("*") && self.cursor.peek_at(1).is("]") {
            self.cursor.advance();
            LevelKind::Open
        } else {
            let low = self.expr()?;
            if self.cursor.eat("..") { self.upper_bound(low)? } else { LevelKind::Bound(low) }
        };
        let end = self.cursor.expect("]", "the size of a dimension")?;
        Ok(Level { kind, span: start.to(end) })
    }

    fn upper_bound(&mut self, low: Expr) -> Parsed<LevelKind> {
        if self.cursor.is("*") && self.cursor.peek_at(1).is("]") {
            self.cursor.advance();
            return Ok(LevelKind::Bounds(low, None));
        }
        Ok(LevelKind::Bounds(low, Some(self.expr()?)))
    }

    /// A declarator whose name has been left out, after an error.
    pub(super) fn nameless(span: Span) -> Declarator {
        Declarator { name: Name { text: String::new(), span }, levels: Vec::new() }
    }
}

/// Returns true if the token can begin a type, to give better messages.
pub(super) fn begins_type(kind: &Kind) -> bool {
    matches!(kind, Kind::Ident(_))
}

/// Returns the integer type of these specifiers, in any order; `None` if they are none.
fn integer(words: &[&str]) -> Option<Scalar> {
    let is_unsigned = words.contains(&"unsigned");
    let is_signed = words.contains(&"signed");
    let mut core: Vec<&str> =
        words.iter().copied().filter(|w| !matches!(*w, "unsigned" | "signed")).collect();
    if core.len() > 1 {
        core.retain(|w| *w != "int");
    }
    match (core.as_slice(), is_unsigned) {
        _ if is_signed && is_unsigned => None,
        (["hyper" | "__int64"] | ["long", "long"], false) => Some(Scalar::I64),
        (["hyper" | "__int64"] | ["long", "long"], true) => Some(Scalar::U64),
        (["long" | "int" | "__int32"] | [], false) => Some(Scalar::I32),
        (["long" | "int" | "__int32"] | [], true) => Some(Scalar::U32),
        (["short" | "__int16"], false) => Some(Scalar::I16),
        (["short" | "__int16"], true) => Some(Scalar::U16),
        (["small" | "__int8"], false) => Some(Scalar::I8),
        (["small" | "__int8"], true) => Some(Scalar::U8),
        (["char"], false) if is_signed => Some(Scalar::I8),
        (["char"], _) => Some(Scalar::Char),
        _ => None,
    }
}
