//! Which operations of COM's files get stubs, and why the others do not.
//!
//! # Theory of operation
//! Files of COM declare much that no message can carry. While such a file is read, a finding that
//! says no more than "this cannot travel" (`CANNOT_TRAVEL`) is no error: it becomes the cause why
//! the type or operation that is being read is declared only. So does a missing name where the
//! file imports nothing: it is a part of another one, which has the name (`OF_A_PART`).
//!
//! At the end causes are handed on: a type that mentions one that cannot travel cannot travel
//! either, nor can an operation with such a parameter. Only arms of unions go alone. What is left
//! travels as everywhere else. All other findings stay errors.

use super::analyzer::{Analyzer, PendingType};
use super::order::{for_each, for_each_in_kind};
use crate::diag::{Diagnostic, Held, HeldCode, codes};
use crate::ir::{
    Cause, DeclaredOperation, DeclaredType, InterfaceId, Operation, Ty, TypeId, TypeKind,
};
use crate::source::Span;

/// Findings that keep something from travelling and say nothing else, with what is to blame.
const CANNOT_TRAVEL: Held = &[
    HeldCode::new(codes::FOREIGN_TYPE, "foreign type"),
    HeldCode::new(codes::FUNCTION_POINTER, "function pointer"),
    HeldCode::new(codes::BIT_FIELD, "bit field"),
    HeldCode::new(codes::VARIADIC, "variable parameters"),
    HeldCode::new(codes::CONST_TYPE, "constant of a structured type"),
    HeldCode::new(codes::CONST_MISMATCH, "constant of a structured type"),
    HeldCode::new(codes::ANONYMOUS_TYPE, "field without a name"),
    HeldCode::new(codes::INCOMPLETE_TYPE, "base that is defined later"),
    HeldCode::new(codes::ARRAY_SIZE, "array without elements"),
    HeldCode::new(codes::UNSIZED_ARRAY, "array without a size"),
    HeldCode::new(codes::STRING_ELEMENT, "string of no characters"),
    HeldCode::new(codes::VOID, "pointer to void"),
    HeldCode::new(codes::INTERFACE_BY_VALUE, "interface by value"),
    HeldCode::new(codes::NO_SWITCH_TYPE, "union without discriminant"),
    HeldCode::new(codes::NO_SWITCH_IS, "union without discriminant"),
    HeldCode::new(codes::SWITCH_TYPE, "discriminant"),
    HeldCode::new(codes::SWITCH_IS_PLACE, "discriminant"),
    HeldCode::new(codes::ARM_WITHOUT_CASE, "union without discriminant"),
    HeldCode::new(codes::CASE_RANGE, "discriminant"),
    HeldCode::new(codes::HANDLE_PLACE, "binding handle"),
    HeldCode::new(codes::ATTRIBUTE_CONFLICT, "attributes that contradict one another"),
    HeldCode::new(codes::REFUSED_ATTRIBUTE, "attribute that does not exist here"),
    HeldCode::new(codes::POINTER_CLASS_PLACE, "pointer class without a pointer"),
    HeldCode::new(codes::SIZE_SLOTS, "size of what is no array"),
    HeldCode::new(codes::SIBLING_TYPE, "size or identifier of another type"),
    HeldCode::new(codes::SIBLING_DIRECTION, "size that does not travel along"),
    HeldCode::new(codes::RANGE, "range"),
    HeldCode::new(codes::IGNORE_PLACE, "ignored field"),
    HeldCode::new(codes::CONTEXT_PLACE, "context handle inside something"),
    HeldCode::new(codes::NOT_AN_INTEGER, "size that is no number"),
    HeldCode::new(codes::NO_DIRECTION, "parameter without direction"),
    HeldCode::new(codes::OUT_POINTER, "out parameter without a place"),
    HeldCode::new(codes::OUT_NULLABLE, "out parameter that may be null"),
    HeldCode::new(codes::OUT_STRING, "out string without a size"),
    HeldCode::new(codes::RETVAL, "retval"),
    HeldCode::new(codes::RESULT_TYPE, "array as a result"),
];

/// Findings that whoever includes the file may not have.
const OF_A_PART: Held = &[
    HeldCode::new(codes::UNKNOWN_TYPE, "name that the file does not declare"),
    HeldCode::new(codes::UNKNOWN_VALUE, "name that the file does not declare"),
    HeldCode::new(codes::UNKNOWN_BASE, "base that the file does not declare"),
];

/// Something that was read from a file of COM.
pub(super) struct Tolerated<T> {
    pub(super) value: T,
    /// Why it cannot travel; `None` if nothing is known against it.
    pub(super) cause: Option<Cause>,
}

impl Analyzer<'_> {
    /// Reads something. In a file of COM, what keeps it from travelling is answered, not reported.
    pub(super) fn tolerantly<T>(&mut self, read: impl FnOnce(&mut Self) -> T) -> Tolerated<T> {
        if !self.is_com {
            return Tolerated { value: read(self), cause: None };
        }
        let of_a_part: &[Held] = &[CANNOT_TRAVEL, OF_A_PART];
        self.sink.hold(if self.is_part { of_a_part } else { &[CANNOT_TRAVEL] });
        let value = read(self);
        let held = self.sink.release();
        Tolerated { value, cause: held.map(|held| cause(held.blamed, &held.diagnostic)) }
    }

    /// As [`Self::tolerantly`], for something that defines the type `id`.
    pub(super) fn defining(&mut self, id: TypeId, read: impl FnOnce(&mut Self)) {
        if let Some(cause) = self.tolerantly(read).cause {
            self.cannot_travel(id, cause);
        }
    }

    /// The first cause counts.
    pub(super) fn cannot_travel(&mut self, id: TypeId, cause: Cause) {
        let pending = self.pending(id);
        let message = format!("`{}` cannot travel: {}", pending.def.name, cause.message);
        pending.cause.get_or_insert(Cause { message, ..cause });
    }

    /// The end of the analysis of COM's files: what cannot travel is taken out of the model.
    pub(super) fn settle(&mut self) {
        if !self.is_com {
            return;
        }
        self.hand_causes_on();
        for interface in 0..self.interfaces.len() {
            self.settle_interface(interface);
        }
        self.hide_local_bases();
        for pending in &mut self.types {
            let Some(cause) = pending.cause.clone() else { continue };
            pending.is_defined = false;
            let (name, imported) = (pending.def.name.clone(), pending.def.imported);
            self.module.declared_types.push(DeclaredType { name, imported, cause });
        }
    }

    /// Until nothing changes: whoever mentions what cannot travel cannot travel.
    fn hand_causes_on(&mut self) {
        loop {
            let dropped = self.drop_arms();
            let found: Vec<(usize, Cause)> = (0..self.types.len())
                .filter(|i| self.types[*i].is_defined && self.types[*i].cause.is_none())
                .filter_map(|i| {
                    let mut cause = None;
                    for_each_in_kind(&self.types[i].def.kind, &mut |ty| {
                        cause = cause.take().or_else(|| self.obstacle(ty));
                    });
                    Some((i, cause?))
                })
                .collect();
            if found.is_empty() && !dropped {
                return;
            }
            for (i, cause) in found {
                self.types[i].cause = Some(cause);
            }
        }
    }

    /// Arms that cannot travel are taken out of unions that have others: values that select one
    /// are refused, and the rest travels. Whether there was one.
    fn drop_arms(&mut self) -> bool {
        let mut dropped = Vec::new();
        let live = |t: &PendingType| t.is_defined && t.cause.is_none();
        for (i, pending) in self.types.iter().enumerate().filter(|(_, t)| live(t)) {
            let TypeKind::Union(union) = &pending.def.kind else { continue };
            let causes = union.arms.iter().map(|arm| {
                let mut cause = None;
                for_each(&arm.field.as_ref()?.ty, &mut |ty| {
                    cause = cause.take().or_else(|| self.obstacle(ty));
                });
                cause
            });
            let causes: Vec<Option<Cause>> = causes.collect();
            if causes.iter().any(Option::is_some) && causes.iter().any(Option::is_none) {
                dropped.push((i, causes));
            }
        }
        for (i, causes) in &dropped {
            let def = &mut self.types[*i].def;
            let TypeKind::Union(union) = &mut def.kind else { continue };
            let all = std::mem::take(&mut union.arms).into_iter().zip(causes);
            for (arm, cause) in all {
                let Some(cause) = cause.clone() else {
                    union.arms.push(arm);
                    continue;
                };
                let name = arm.field.map_or_else(String::new, |f| f.name);
                let (name, imported) = (format!("{}.{name}", def.name), def.imported);
                self.module.declared_types.push(DeclaredType { name, imported, cause });
            }
        }
        !dropped.is_empty()
    }

    /// Why this very type, without what it consists of, cannot travel.
    fn obstacle(&self, ty: &Ty) -> Option<Cause> {
        match ty {
            Ty::Named(id) | Ty::Union(id, _) => {
                let used = self.types.get(id.0 as usize)?;
                // The innermost cause counts, however many types are in between.
                used.cause.clone().or_else(|| {
                    (!used.is_defined).then(|| Cause {
                        construct: "type without definition",
                        message: format!("`{}` is announced, but never defined", used.def.name),
                        span: used.span,
                    })
                })
            }
            Ty::Interface(reference) => self.unreachable(reference.interface?),
            _ => None,
        }
    }

    /// Why there can be no reference to an interface.
    fn unreachable(&self, id: InterfaceId) -> Option<Cause> {
        let pending = self.interfaces.get(id.0 as usize)?;
        let (construct, what) = match &pending.interface {
            Some(interface) if interface.is_local => {
                ("reference to a local interface", "is `local`: it has no endpoint")
            }
            Some(_) => return None,
            None => ("interface without definition", "is announced, but never defined"),
        };
        let message = format!("`{}` {what}", pending.name);
        Some(Cause { construct, message, span: pending.span })
    }

    fn settle_interface(&mut self, index: usize) {
        let Some(mut interface) = self.interfaces[index].interface.clone() else { return };
        let (mut kept, mut declared) = (Vec::new(), std::mem::take(&mut interface.declared));
        for operation in std::mem::take(&mut interface.operations) {
            let Some(mut cause) = self.obstacle_of(&operation) else {
                kept.push(operation);
                continue;
            };
            let Operation { name, opnum, is_local, .. } = operation;
            if is_local || interface.is_local {
                let place = self.places.get(&format!("{}.{name}", interface.name)).copied();
                cause = local(place.unwrap_or(cause.span));
            }
            declared.push(DeclaredOperation { name, opnum, cause });
        }
        declared.sort_by_key(|op| op.opnum);
        if !interface.imported && !interface.is_local {
            for operation in &declared {
                self.warn(&interface.name, operation);
            }
        }
        (interface.operations, interface.declared) = (kept, declared);
        self.interfaces[index].interface = Some(interface);
    }

    fn obstacle_of(&self, operation: &Operation) -> Option<Cause> {
        let mut cause = None;
        for ty in operation.result.iter().chain(operation.params.iter().map(|p| &p.ty)) {
            for_each(ty, &mut |ty| cause = cause.take().or_else(|| self.obstacle(ty)));
        }
        cause
    }

    /// Whoever wrote the operation expects stubs, unless it is `local`.
    fn warn(&mut self, interface: &str, operation: &DeclaredOperation) {
        let Cause { construct, message, span } = &operation.cause;
        if *construct == LOCAL {
            return;
        }
        let name = format!("{interface}.{}", operation.name);
        let at = self.places.get(&name).copied().unwrap_or(*span);
        self.sink.push(
            Diagnostic::warning(
                codes::DECLARED_ONLY,
                at,
                format!("`{name}` is declared only ({construct}): {message}"),
            )
            .label(*span, "here")
            .help("say how it travels, or add `local` if it is not meant to"),
        );
    }

    /// An interface that extends a `local` one has stubs for its own operations only.
    fn hide_local_bases(&mut self) {
        let interfaces = self.interfaces.iter().filter_map(|i| i.interface.as_ref());
        let mut bases: Vec<InterfaceId> =
            interfaces.filter(|i| !i.is_local).filter_map(|i| i.base).collect();
        let mut seen = vec![false; self.interfaces.len()];
        while let Some(base) = bases.pop() {
            if std::mem::replace(&mut seen[base.0 as usize], true) {
                continue;
            }
            let Some(interface) = &mut self.interfaces[base.0 as usize].interface else { continue };
            if interface.is_local {
                interface.operations.iter_mut().for_each(|op| op.is_local = true);
            }
            bases.extend(interface.base);
        }
    }
}

/// The construct that `local` is.
pub(super) const LOCAL: &str = "local";

fn cause(construct: &'static str, found: &Diagnostic) -> Cause {
    let span = found.span.unwrap_or_default();
    Cause { construct, message: found.message.clone(), span }
}

/// The cause of an operation that is `local`, whatever else is the matter with it.
pub(crate) fn local(span: Span) -> Cause {
    let message = "it is `local`: it runs in the process of its caller".to_owned();
    Cause { construct: LOCAL, message, span }
}
