//! Unions of both kinds.

use std::collections::HashMap;

use super::analyzer::Analyzer;
use super::consts::limits;
use super::declare::Position;
use super::scope::{Base, Siblings};
use super::types::Hint;
use crate::ast::{Arm as ArmTree, Name, Switch, TypeSpec, Union as Tree};
use crate::diag::{Diagnostic, codes};
use crate::ir::{Arm, Encapsulation, Scalar, Ty, TypeId, TypeKind, Union};
use crate::source::Span;

impl Analyzer<'_> {
    /// A union; `switch_type` is the attribute's type for the non-encapsulated kind.
    pub(super) fn union(
        &mut self,
        tree: &Tree,
        spec: &TypeSpec,
        hint: Option<&Hint>,
        switch_type: Option<&TypeSpec>,
    ) -> Option<Base> {
        let id = self.tagged("union", tree.tag.as_ref(), tree.arms.is_some(), spec, hint)?;
        if tree.arms.is_some() {
            self.set_doc(id, tree.doc.as_ref(), hint);
            self.defining(id, |this| this.union_body(id, tree, spec, switch_type));
        }
        Some(self.base_of(id))
    }

    fn union_body(
        &mut self,
        id: TypeId,
        tree: &Tree,
        spec: &TypeSpec,
        switch_type: Option<&TypeSpec>,
    ) {
        let switch = match (&tree.switch, switch_type) {
            (Some(switch), _) => self.switch_type(&switch.ty),
            (None, Some(ty)) => self.switch_type(ty),
            (None, None) => {
                self.sink.push(
                    Diagnostic::error(
                        codes::NO_SWITCH_TYPE,
                        spec.span,
                        "this union does not say what selects its arm",
                    )
                    .help("write `typedef [switch_type(long)] union { ... } name;` and switch_is at each use")
                    .help("or `union name switch (long kind) u { case 1: ... };`"),
                );
                None
            }
        };
        let arms = self.arms(id, tree.arms.as_deref().unwrap_or(&[]), switch.as_ref());
        let switch_ty = switch.unwrap_or(Ty::Scalar(Scalar::I32));
        let encapsulated = tree.switch.as_ref().map(|s| self.member_names(s));
        self.set_kind(id, TypeKind::Union(Union { switch: switch_ty, encapsulated, arms }));
    }

    fn member_names(&mut self, switch: &Switch) -> Encapsulation {
        let member = switch.member.as_ref().map_or("tagged_union", |m| m.text.as_str());
        if let Some(name) = switch.member.as_ref().filter(|m| m.text == switch.name.text) {
            self.duplicate_members(&[switch.name.clone(), name.clone()], "member");
        }
        Encapsulation { tag: switch.name.text.clone(), member: member.to_owned() }
    }

    fn switch_type(&mut self, spec: &TypeSpec) -> Option<Ty> {
        let base = self.base(spec, None)?;
        let fits = match super::analyzer::plain(&base) {
            Some(ty) => self.is_discriminant(ty),
            None => false,
        };
        if let (true, Base::Ty(ty)) = (fits, base) {
            return Some(ty);
        }
        self.error(
            codes::SWITCH_TYPE,
            spec.span,
            "this type cannot select the arm of a union".to_owned(),
            "discriminants are integers, char, wchar_t, boolean and enumerations",
        );
        None
    }

    /// Integers, characters, booleans, enumerations.
    pub(super) fn is_discriminant(&self, ty: &Ty) -> bool {
        match self.scalar_of(ty) {
            Some(scalar) => limits(scalar).is_some(),
            None => self.is_enum(&Base::Ty(ty.clone())),
        }
    }

    fn arms(&mut self, id: TypeId, trees: &[ArmTree], switch: Option<&Ty>) -> Vec<Arm> {
        let outer = self.pending(id).def.name.clone();
        let names: Vec<Name> =
            trees.iter().filter_map(|a| Some(a.member.as_ref()?.declarator.name.clone())).collect();
        self.duplicate_members(&names, "arm");
        let mut seen: HashMap<Option<i128>, Span> = HashMap::new();
        let mut arms = Vec::new();
        for tree in trees {
            let cases = self.cases(tree, switch, &mut seen);
            let mut alone = Siblings::default();
            let field =
                tree.member.as_ref().and_then(|m| self.field(&outer, m, Position::Arm, &mut alone));
            arms.push(Arm { cases, field });
        }
        if trees.is_empty() && !self.sink.has_errors() {
            let span = self.pending(id).span;
            self.error(
                codes::EMPTY_UNION,
                span,
                "a union needs an arm: no value of it could travel".to_owned(),
                "add one; `default: ;` is an empty one",
            );
        }
        arms
    }

    /// Values of an arm. An arm that is the default too has none.
    fn cases(
        &mut self,
        tree: &ArmTree,
        switch: Option<&Ty>,
        seen: &mut HashMap<Option<i128>, Span>,
    ) -> Vec<i128> {
        let mut cases = Vec::new();
        if tree.cases.is_empty() && tree.default.is_none() && switch.is_some() {
            self.error(
                codes::ARM_WITHOUT_CASE,
                tree.span,
                "this arm is never selected".to_owned(),
                "write `[case(VALUE)]` or `[default]` before it",
            );
        }
        if let Some(span) = tree.default {
            self.once(None, span, seen);
        }
        for case in &tree.cases {
            let Some(value) = self.int_constant(case) else { continue };
            if let Some(switch) = switch {
                self.case_fits(value, case.span, switch);
            }
            if self.once(Some(value), case.span, seen) {
                cases.push(value);
            }
        }
        if tree.default.is_some() { Vec::new() } else { cases }
    }

    fn once(
        &mut self,
        value: Option<i128>,
        span: Span,
        seen: &mut HashMap<Option<i128>, Span>,
    ) -> bool {
        let Some(first) = seen.insert(value, span) else { return true };
        seen.insert(value, first);
        let what = value.map_or("the default".to_owned(), |v| format!("case {v}"));
        self.sink.push(
            Diagnostic::error(codes::DUPLICATE_CASE, span, format!("{what} occurs twice"))
                .label(first, "first here")
                .help("each value selects one arm"),
        );
        false
    }

    fn case_fits(&mut self, value: i128, span: Span, switch: &Ty) {
        let fits = match (self.scalar_of(switch), self.strip(switch)) {
            (Some(scalar), _) => limits(scalar).is_none_or(|limits| limits.contains(value)),
            (None, Ty::Named(id)) => match self.kind(*id) {
                Some(TypeKind::Enum(e)) => e.members.iter().any(|m| i128::from(m.value) == value),
                _ => true,
            },
            _ => true,
        };
        if !fits {
            self.error(
                codes::CASE_RANGE,
                span,
                format!("the discriminant can never be {value}"),
                "cases are values of the discriminant's type",
            );
        }
    }
}
