//! Structures and what fields and arms have in common.

use std::collections::HashMap;

use super::analyzer::Analyzer;
use super::declare::{Position, Subject};
use super::scope::Siblings;
use super::types::Hint;
use crate::ast::{
    Args, Attr, Enum, Expr, ExprKind, Member, Name, TypeKind as Words, TypeSpec, Union, find,
};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Field, PtrClass, Struct, Ty, TypeId, TypeKind};
use crate::source::Span;

impl Analyzer<'_> {
    pub(super) fn structure(&mut self, id: TypeId, members: &[Member]) {
        self.defining(id, |this| this.fields(id, members));
    }

    fn fields(&mut self, id: TypeId, members: &[Member]) {
        let names: Vec<Name> = members.iter().map(|m| m.declarator.name.clone()).collect();
        self.duplicate_members(&names, "field");
        let mut siblings = Siblings { names, are_fields: true, ..Siblings::default() };
        let outer = self.pending(id).def.name.clone();
        let mut fields = Vec::new();
        for (owner, member) in members.iter().enumerate() {
            siblings.owner = owner;
            let selected = if self.is_com { selected_by_sibling(member, members) } else { None };
            let member = selected.as_ref().unwrap_or(member);
            let field = self.field(&outer, member, Position::Field, &mut siblings);
            // A field that could not be understood keeps its place, so that indices stay right.
            fields.push(field.unwrap_or_else(|| Self::no_field(&member.declarator.name.text)));
        }
        self.check_field_uses(&fields, &siblings);
        self.set_kind(id, TypeKind::Struct(Struct { fields }));
    }

    fn no_field(name: &str) -> Field {
        let ty = crate::ir::Ty::Scalar(crate::ir::Scalar::I32);
        Field { name: name.to_owned(), doc: None, ty, range: None, ignore: false }
    }

    /// Reports names that occur twice in a list.
    pub(super) fn duplicate_members(&mut self, names: &[Name], what: &str) {
        let mut seen: HashMap<&str, Span> = HashMap::new();
        for name in names.iter().filter(|n| !n.text.is_empty()) {
            if let Some(first) = seen.insert(&name.text, name.span) {
                self.sink.push(
                    Diagnostic::error(
                        codes::DUPLICATE_MEMBER,
                        name.span,
                        format!("there is a {what} `{}` already", name.text),
                    )
                    .label(first, "first declared here")
                    .help("rename one of them"),
                );
            }
        }
    }

    /// A field or the member of an arm. `None`: reported.
    pub(super) fn field(
        &mut self,
        outer: &str,
        member: &Member,
        position: Position,
        siblings: &mut Siblings,
    ) -> Option<Field> {
        // Those that only arms have (`case`) are not among them any more.
        self.check_places(&member.attrs, 'F');
        self.check_field_form(member)?;
        let name = &member.declarator.name;
        let hint = Hint {
            name: Name { text: format!("{outer}_{}", name.text), span: name.span },
            typedef: false,
            doc: None,
        };
        let base = self.base_with_switch(&member.attrs, &member.ty, Some(&hint))?;
        let levels = self.steps(&member.declarator)?;
        let ignore = find(&member.attrs, "ignore").is_some();
        let subject = Subject { attrs: &member.attrs, name, span: member.ty.span, base, levels };
        let built = self.declare(subject, position, siblings)?;
        let range = self.range(&member.attrs, &built.ty);
        self.check_field_type(member, &built.ty, ignore);
        self.check_text(&built.ty, false, name);
        Some(Field {
            name: name.text.clone(),
            doc: Self::doc_with_help(member.doc.as_ref(), &member.attrs),
            ty: built.ty,
            range,
            ignore,
        })
    }

    /// Refuses forms of fields that only C has, as bit fields. `None` if one was reported.
    fn check_field_form(&mut self, member: &Member) -> Option<()> {
        if let Some(span) = member.bits {
            self.error(
                codes::BIT_FIELD,
                span,
                "bit fields do not travel: their layout is each compiler's own".to_owned(),
                "use an unsigned integer with constants for the bits",
            );
            return None;
        }
        if member.declarator.name.text.is_empty() {
            self.error(
                codes::ANONYMOUS_TYPE,
                member.span,
                "this field has no name".to_owned(),
                "give it one",
            );
            return None;
        }
        Some(())
    }

    fn check_field_type(&mut self, member: &Member, ty: &Ty, ignore: bool) {
        let nullable = matches!(self.strip(ty), Ty::Pointer(class, _) if *class != PtrClass::Ref);
        if ignore && !nullable {
            self.error(
                codes::IGNORE_PLACE,
                member.span,
                "`ignore` leaves a pointer null at the receiver: this cannot be".to_owned(),
                "make it a `unique` pointer, or take `ignore` out",
            );
        }
        if self.holds_context(ty, 0) {
            self.error(
                codes::CONTEXT_PLACE,
                member.span,
                "a context handle is a parameter of its own".to_owned(),
                "pass it beside the structure",
            );
        }
    }

    /// Returns true if a context handle is part of the type.
    pub(super) fn holds_context(&self, ty: &Ty, depth: u32) -> bool {
        if depth > 64 {
            return false;
        }
        match ty {
            Ty::Named(id) => match self.kind(*id) {
                Some(TypeKind::ContextHandle) => true,
                Some(TypeKind::Alias(target)) => self.holds_context(target, depth + 1),
                _ => false,
            },
            Ty::Fixed(element, _) | Ty::Pointer(_, element) => {
                self.holds_context(element, depth + 1)
            }
            Ty::Array(array) => self.holds_context(&array.element, depth + 1),
            _ => false,
        }
    }
}

/// A union that is defined in a field, with the type of the field that selects its arm for its
/// discriminant: files of COM leave `switch_type` out, or name a wider type.
fn selected_by_sibling(member: &Member, members: &[Member]) -> Option<Member> {
    if !matches!(&member.ty.kind, Words::Union(Union { arms: Some(_), switch: None, .. })) {
        return None;
    }
    let Args::Exprs(list) = &find(&member.attrs, "switch_is")?.args else { return None };
    let Some(Expr { kind: ExprKind::Name(name), span }) = list.first()?.as_ref() else {
        return None;
    };
    let sibling = members.iter().find(|m| m.declarator.name.text == *name)?;
    let is_plain = sibling.declarator.levels.is_empty() && is_reference(&sibling.ty);
    let mut member = is_plain.then(|| member.clone())?;
    member.attrs.retain(|attr| attr.name.text != "switch_type");
    let args = Args::Type(Box::new(sibling.ty.clone()));
    let name = Name { text: "switch_type".to_owned(), span: *span };
    member.attrs.push(Attr { name, args, span: *span });
    Some(member)
}

/// Returns true if a type can be named again: it is not defined where it stands.
fn is_reference(ty: &TypeSpec) -> bool {
    matches!(&ty.kind, Words::Scalar(_) | Words::Named(_) | Words::Enum(Enum { members: None, .. }))
}
