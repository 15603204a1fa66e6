//! The comparison of two dumps.

use super::dump::{Dump, DumpInterface, DumpMember, DumpOperation, DumpParam, DumpType};
use crate::compile::Compilation;
use crate::diag::{Code, Diagnostic, Severity, codes};

/// Everything in `new` that breaks the promise `old`.
pub(super) fn compare(old: &Dump, new: &Dump, compilation: &Compilation) -> Vec<Diagnostic> {
    let mut comparison = Comparison { compilation, found: Vec::new() };
    for interface in &old.interfaces {
        match new.interfaces.iter().find(|i| i.name == interface.name) {
            Some(now) => comparison.interface(interface, now),
            None => comparison.report(
                codes::COMPAT_INTERFACE_REMOVED,
                "",
                format!("interface `{}` is gone", interface.name),
                "bring it back; or, if nobody uses it any more, make a new dump",
            ),
        }
    }
    for ty in &old.types {
        if let Some(now) = new.types.iter().find(|t| t.name == ty.name) {
            comparison.ty(ty, now);
        }
    }
    comparison.found
}

struct Comparison<'a> {
    compilation: &'a Compilation,
    found: Vec<Diagnostic>,
}

impl Comparison<'_> {
    /// An error at the declaration of `place` (`interface`, `interface.operation`, `type`).
    fn report(&mut self, code: Code, place: &str, message: String, help: &str) {
        let span = self.compilation.places.get(place).copied();
        self.found
            .push(Diagnostic::new(Severity::Error, code, span, message).help(help.to_owned()));
    }

    fn interface(&mut self, old: &DumpInterface, new: &DumpInterface) {
        let name = new.name.as_str();
        if old.uuid != new.uuid {
            let message = format!("the uuid of `{name}` was {}", old.uuid);
            let help = "a changed uuid makes another interface: restore it, or give the interface another name";
            self.report(codes::COMPAT_UUID, name, message, help);
        }
        if old.major != new.major {
            let message = format!("the major version of `{name}` was {}", old.major);
            let help = "servers refuse clients of another major version: restore it, or let the server offer the old version as an interface of its own";
            self.report(codes::COMPAT_MAJOR, name, message, help);
            return;
        }
        let grown = new.operations.len() > old.operations.len();
        if new.minor < old.minor || grown && new.minor == old.minor {
            let (message, help) = if grown {
                (
                    format!("`{name}` has new operations but still minor version {}", old.minor),
                    format!("raise it: version({}.{})", new.major, old.minor.saturating_add(1)),
                )
            } else {
                (
                    format!("the minor version of `{name}` was {} already", old.minor),
                    format!("write version({}.{}) or more", old.major, old.minor),
                )
            };
            self.report(codes::COMPAT_MINOR, name, message, &help);
        }
        for operation in &old.operations {
            self.operation(operation, new);
        }
    }

    fn operation(&mut self, old: &DumpOperation, interface: &DumpInterface) {
        let elsewhere = interface.operations.iter().find(|o| o.name == old.name);
        if let Some(moved) = elsewhere.filter(|o| o.number != old.number) {
            let message =
                format!("`{}` was operation {}, now it is {}", old.name, old.number, moved.number);
            let place = format!("{}.{}", interface.name, old.name);
            let help = "add operations at the end, never before or between others, nor in a base interface";
            return self.report(codes::COMPAT_OPERATION_MOVED, &place, message, help);
        }
        let now = interface.operations.iter().find(|o| o.number == old.number);
        let Some(now) = now.filter(|n| n.name == old.name || same_shape(old, n)) else {
            let message = format!("operation {} `{}` is gone", old.number, old.name);
            let help = "keep it, even if it only answers a fault: its number cannot be used again";
            return self.report(codes::COMPAT_OPERATION_REMOVED, &interface.name, message, help);
        };
        let place = format!("{}.{}", interface.name, now.name);
        if now.name != old.name {
            self.renamed(&place, format!("operation {} was called `{}`", old.number, old.name));
        }
        if let Some(change) = change(old, now) {
            let help = "restore it, and add a new operation for the new meaning";
            let message = format!("`{}` has changed: {change}", now.name);
            return self.report(codes::COMPAT_OPERATION_CHANGED, &place, message, help);
        }
        for (old, now) in old.params.iter().zip(&now.params).filter(|(o, n)| o.name != n.name) {
            self.renamed(&place, format!("parameter `{}` was called `{}`", now.name, old.name));
        }
    }

    fn renamed(&mut self, place: &str, message: String) {
        let span = self.compilation.places.get(place).copied();
        self.found.push(
            Diagnostic::new(Severity::Warning, codes::COMPAT_RENAMED, span, message)
                .help("names do not travel, but programs that use them no longer compile"),
        );
    }

    fn ty(&mut self, old: &DumpType, new: &DumpType) {
        let Some(change) = type_change(old, new) else { return };
        let help = "restore it, and declare a new type for new operations";
        let message = format!("`{}` has changed: {change}", old.name);
        self.report(codes::COMPAT_TYPE_CHANGED, &old.name, message, help);
    }
}

fn same_shape(old: &DumpOperation, new: &DumpOperation) -> bool {
    change(old, new).is_none()
}

/// What is different on the wire; `None`: nothing.
fn change(old: &DumpOperation, new: &DumpOperation) -> Option<String> {
    if old.oneway != new.oneway {
        return Some(format!("it was {}oneway", if old.oneway { "" } else { "not " }));
    }
    if old.result != new.result {
        return Some(format!("its result was `{}`, now it is `{}`", old.result, new.result));
    }
    if old.params.len() != new.params.len() {
        let (was, is) = (old.params.len(), new.params.len());
        return Some(format!("it had {was} parameters, now {is}"));
    }
    let mut pairs = old.params.iter().zip(&new.params);
    let shown = |p: &DumpParam| format!("[{}] {}", p.direction, p.ty);
    pairs.find(|(o, n)| (&o.direction, &o.ty) != (&n.direction, &n.ty)).map(|(o, n)| {
        format!("parameter `{}` was `{}`, now it is `{}`", n.name, shown(o), shown(n))
    })
}

fn type_change(old: &DumpType, new: &DumpType) -> Option<String> {
    if old.kind != new.kind {
        return Some(format!("it was a {}, now a {}", old.kind, new.kind));
    }
    let differs = |(o, n): &(&DumpMember, &DumpMember)| match old.kind.as_str() {
        "struct" | "enum" => o.ty != n.ty,
        _ => o != n,
    };
    if let Some((o, n)) = old.members.iter().zip(&new.members).find(differs) {
        return Some(format!("`{} {}` is now `{} {}`", o.name, o.ty, n.name, n.ty));
    }
    let (was, is) = (old.members.len(), new.members.len());
    (was != is).then(|| format!("it had {was} members, now {is}"))
}
