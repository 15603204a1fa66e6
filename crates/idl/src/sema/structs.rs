//! Structures and what fields and arms have in common.

use std::collections::HashMap;

use super::analyzer::Analyzer;
use super::declare::{Position, Subject};
use super::scope::Siblings;
use super::types::Hint;
use crate::ast::{Member, Name, find};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Field, PtrClass, Struct, Ty, TypeId, TypeKind};
use crate::source::Span;

impl Analyzer<'_> {
    pub(super) fn structure(&mut self, id: TypeId, members: &[Member]) {
        let names: Vec<Name> = members.iter().map(|m| m.declarator.name.clone()).collect();
        self.duplicate_members(&names, "field");
        let mut siblings = Siblings { names, are_fields: true, ..Siblings::default() };
        let outer = self.pending(id).def.name.clone();
        let mut fields = Vec::new();
        for (owner, member) in members.iter().enumerate() {
            siblings.owner = owner;
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
        let name = &member.declarator.name;
        let hint = Hint {
            name: Name { text: format!("{outer}_{}", name.text), span: name.span },
            typedef: false,
            doc: None,
        };
        let base = self.base(&member.ty, Some(&hint))?;
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

    /// Whether a context handle is part of the type.
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
