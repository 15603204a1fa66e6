//! Fields, parameters and the arms of unions.

use super::cursor::{Bail, Parsed};
use super::parser::Parser;
use super::types::begins_type;
use crate::ast::{
    Arm, Attr, Declarator, Expr, Member, Name, Struct, Switch, TypeKind, TypeSpec, Union,
};
use crate::diag::codes;
use crate::ir::Doc;
use crate::lex::Kind;
use crate::source::Span;

/// What stands before the name of a field, a parameter or an arm.
struct MemberHead {
    doc: Doc,
    attrs: Vec<Attr>,
    ty: TypeSpec,
    /// Attributes and type as written.
    span: Span,
}

impl Parser<'_> {
    /// `{ fields }` of a structure.
    pub(super) fn fields(&mut self) -> Parsed<Vec<Member>> {
        self.cursor.expect("{", "the name of the structure")?;
        self.cursor.enter()?;
        let mut fields = Vec::new();
        while !self.cursor.is("}") && !self.cursor.at_end() {
            if self.field_line(&mut fields).is_err() {
                self.cursor.skip_item();
            }
        }
        self.cursor.leave();
        self.cursor.expect("}", "the fields of the structure")?;
        Ok(fields)
    }

    /// `[attrs] T a, *b;`
    fn field_line(&mut self, fields: &mut Vec<Member>) -> Parsed<()> {
        let MemberHead { doc, attrs, ty, span } = self.member_head()?;
        let first = fields.len();
        loop {
            let declarator = self.field_declarator(&ty, "the name of a field")?;
            let bits = self.bits()?;
            let (doc, attrs, ty) = (doc.clone(), attrs.clone(), ty.clone());
            fields.push(Member { doc, attrs, ty, declarator, bits, span });
            if !self.cursor.eat(",") {
                break;
            }
        }
        self.cursor.expect_end(";", "a field")?;
        let behind = self.doc_behind();
        for field in &mut fields[first..] {
            field.doc = field.doc.take().or_else(|| behind.clone());
        }
        Ok(())
    }

    /// The name of a field; C lets inner structures, unions and bit fields have none.
    fn field_declarator(&mut self, ty: &TypeSpec, what: &str) -> Parsed<Declarator> {
        if is_body(ty) && self.cursor.is(";") || self.cursor.is(":") {
            return Ok(Self::nameless(ty.span));
        }
        self.declarator(what)
    }

    /// `: 3`
    fn bits(&mut self) -> Parsed<Option<Span>> {
        let span = self.cursor.peek().span;
        if !self.cursor.eat(":") {
            return Ok(None);
        }
        self.expr()?;
        Ok(Some(span))
    }

    fn member_head(&mut self) -> Parsed<MemberHead> {
        let first = self.cursor.peek();
        let mut doc = first.doc.clone();
        let attrs = self.attrs();
        let end = self.cursor.previous().filter(|_| !attrs.is_empty()).map(|t| t.span);
        doc = doc.or_else(|| self.cursor.peek().doc.clone());
        let ty = self.type_spec()?;
        let span = end.map_or(ty.span, |e| first.span.to(e));
        Ok(MemberHead { doc, attrs, ty, span })
    }

    /// `( parameters )` of an operation.
    pub(super) fn params(&mut self) -> Parsed<Vec<Member>> {
        self.cursor.expect("(", "the name of an operation")?;
        let mut params = Vec::new();
        if self.cursor.eat(")") {
            return Ok(params);
        }
        if self.cursor.is_word("void") && self.cursor.peek_at(1).is(")") {
            self.cursor.advance();
            self.cursor.advance();
            return Ok(params);
        }
        loop {
            match self.param(params.len()) {
                Ok(param) => params.push(param),
                Err(Bail) => self.cursor.skip_to(&[",", ")"]),
            }
            let separated = self.cursor.eat(",");
            if let Some(last) = params.last_mut().filter(|p| p.doc.is_none()) {
                last.doc = self.doc_behind();
            }
            if separated {
                continue;
            }
            if self.cursor.eat(")") {
                return Ok(params);
            }
            self.cursor.unexpected("`,` or `)` after a parameter");
            self.cursor.skip_to(&[",", ")"]);
            if !self.cursor.eat(",") {
                self.cursor.eat(")");
                return Ok(params);
            }
        }
    }

    /// Parameter number `number` of an operation.
    fn param(&mut self, number: usize) -> Parsed<Member> {
        if self.cursor.is(".") || self.cursor.is("..") {
            let span = self.cursor.peek().span;
            while self.cursor.eat(".") || self.cursor.eat("..") {}
            let ty = TypeSpec { kind: TypeKind::Variadic, span };
            let declarator = Self::nameless(span);
            return Ok(Member { doc: None, attrs: Vec::new(), ty, declarator, bits: None, span });
        }
        let MemberHead { doc, attrs, ty, span } = self.member_head()?;
        let declarator = self.param_declarator(number)?;
        Ok(Member { doc, attrs, ty, declarator, bits: None, span })
    }

    /// The name of a parameter; files of COM leave some out.
    fn param_declarator(&mut self, number: usize) -> Parsed<Declarator> {
        let pointers = self.pointers();
        if self.is_com && (self.cursor.is(",") || self.cursor.is(")")) {
            let span = self.cursor.previous().map_or(self.cursor.peek().span, |t| t.span);
            let name = Name { text: format!("param{number}"), span };
            return self.bounded(Declarator { name, levels: pointers });
        }
        let mut declarator = self.declarator("the name of a parameter")?;
        declarator.levels.extend(pointers);
        self.bounded(declarator)
    }

    /// `union tag { arms }` or `union tag switch (T name) member { arms }`.
    pub(super) fn union(&mut self) -> Parsed<TypeKind> {
        let doc = self.cursor.advance().doc.clone();
        let tag = self.tag()?;
        let switch = if self.cursor.is_word("switch") { Some(self.switch()?) } else { None };
        let arms = if self.cursor.is("{") { Some(self.arms(switch.is_some())?) } else { None };
        self.tag_or_body(tag.as_ref(), arms.is_some(), "union")?;
        if switch.is_some() && arms.is_none() {
            return Err(self.cursor.unexpected("`{` after the head of a union"));
        }
        Ok(TypeKind::Union(Union { doc, tag, switch, arms }))
    }

    fn switch(&mut self) -> Parsed<Switch> {
        self.cursor.advance();
        self.cursor.expect("(", "`switch`")?;
        let ty = Box::new(self.type_spec()?);
        let name = self.cursor.name("the name of the discriminant")?;
        self.cursor.expect(")", "the discriminant")?;
        let named = self.cursor.peek().ident().is_some();
        let member = if named { Some(self.cursor.name("the name of the union")?) } else { None };
        Ok(Switch { ty, name, member })
    }

    fn arms(&mut self, encapsulated: bool) -> Parsed<Vec<Arm>> {
        self.cursor.expect("{", "the name of the union")?;
        self.cursor.enter()?;
        let mut arms = Vec::new();
        while !self.cursor.is("}") && !self.cursor.at_end() {
            let arm = if encapsulated { self.case_arm() } else { self.attribute_arm() };
            match arm {
                Ok(arm) => arms.push(arm),
                Err(Bail) => self.cursor.skip_item(),
            }
        }
        self.cursor.leave();
        self.cursor.expect("}", "the arms of the union")?;
        Ok(arms)
    }

    /// `case 1: case 2: T name;`
    fn case_arm(&mut self) -> Parsed<Arm> {
        let first = self.cursor.peek();
        let doc = first.doc.clone();
        let (mut cases, mut default) = (Vec::new(), None);
        loop {
            let span = self.cursor.peek().span;
            if self.cursor.eat_word("case") {
                cases.push(self.expr()?);
            } else if self.cursor.eat_word("default") {
                default = Some(span);
            } else if cases.is_empty() && default.is_none() {
                return Err(self.cursor.unexpected("`case VALUE:` or `default:`"));
            } else {
                break;
            }
            self.cursor.expect(":", "the case")?;
        }
        let end = self.cursor.previous().map_or(first.span, |t| t.span);
        let mut member = self.arm_member(Vec::new())?;
        if let Some(member) = member.as_mut() {
            member.doc = member.doc.take().or(doc);
        }
        Ok(Arm { span: first.span.to(end), cases, default, member })
    }

    /// `[case(1, 2)] T name;`
    fn attribute_arm(&mut self) -> Parsed<Arm> {
        let first = self.cursor.peek();
        let doc = first.doc.clone();
        if self.cursor.is_word("case") || self.cursor.is_word("default") {
            self.cursor.error(
                codes::CASE_STYLE,
                first.span,
                "`case` labels belong to unions with `switch (...)`".to_owned(),
                "write `[case(VALUE)] T name;`, or make it `union tag switch (T kind) u { ... }`",
            );
            return Err(Bail);
        }
        let mut attrs = self.attrs();
        let end = self.cursor.previous().map_or(first.span, |t| t.span);
        let default = attrs.iter().find(|a| a.name.text == "default").map(|a| a.span);
        let mut cases: Vec<Expr> = Vec::new();
        for attr in attrs.iter().filter(|a| a.name.text == "case") {
            if let crate::ast::Args::Exprs(list) = &attr.args {
                cases.extend(list.iter().flatten().cloned());
            }
        }
        attrs.retain(|a| !matches!(a.name.text.as_str(), "case" | "default"));
        let mut member = self.arm_member(attrs)?;
        if let Some(member) = member.as_mut() {
            member.doc = member.doc.take().or(doc);
        }
        Ok(Arm { span: first.span.to(end), cases, default, member })
    }

    /// `T name;`, or `;` for an empty arm.
    fn arm_member(&mut self, before: Vec<Attr>) -> Parsed<Option<Member>> {
        if self.cursor.eat(";") {
            return Ok(None);
        }
        if !begins_type(&self.cursor.peek().kind) && !self.cursor.is("[") {
            self.cursor.expect_end(";", "an empty arm")?;
            return Ok(None);
        }
        let MemberHead { doc, mut attrs, ty, span } = self.member_head()?;
        let declarator = match self.cursor.peek().kind {
            Kind::Punct(";") if !is_body(&ty) => {
                self.cursor.unexpected("the name of the arm");
                Self::nameless(ty.span)
            }
            _ => self.field_declarator(&ty, "the name of the arm")?,
        };
        attrs.extend(before);
        self.cursor.expect_end(";", "an arm")?;
        let doc = doc.or_else(|| self.doc_behind());
        Ok(Some(Member { doc, attrs, ty, declarator, bits: None, span }))
    }
}

/// Returns true if a structure or union is defined where it is used.
fn is_body(ty: &TypeSpec) -> bool {
    matches!(
        &ty.kind,
        TypeKind::Struct(Struct { fields: Some(_), .. })
            | TypeKind::Union(Union { arms: Some(_), .. })
    )
}
