//! Which operations of a file have stubs, and why the others have none: for people and programs.
//!
//! Not here: the decision, which the front end takes (`sema::remote`). Imported files are left
//! out: their stubs are generated from those files.

use serde::Serialize;

use crate::compile::Compilation;
use crate::diag::{Location, location};
use crate::ir::{Cause, Interface};
use crate::source::{SourceMap, Span};

/// One line of the listing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StubEntry<'a> {
    /// `operation`, `type`, `arm` of a union, or `dispinterface`.
    pub kind: &'static str,
    /// `interface.operation`, or the name.
    pub name: String,
    /// Number of the operation in its interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u16>,
    /// True if there are stubs.
    pub stubs: bool,
    /// What keeps it from having stubs, in a few words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub construct: Option<&'a str>,
    /// The same as a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// Where the construct stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Location<'a>>,
}

impl StubEntry<'_> {
    /// As one line of JSON, without a line end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, numbers and truth values always have a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// As one line for people, without a line end.
    #[must_use]
    pub fn to_text(&self) -> String {
        let number = self.number.map_or_else(String::new, |n| format!(" (number {n})"));
        match (&self.cause, self.construct) {
            (Some(cause), Some(construct)) => {
                format!("{} {}{number}: declared only, {construct}: {cause}", self.kind, self.name)
            }
            _ => format!("{} {}{number}: stubs", self.kind, self.name),
        }
    }
}

/// Everything that the main file declares, interfaces first, in order of their operations.
#[must_use]
pub fn listing(compilation: &Compilation) -> Vec<StubEntry<'_>> {
    let (module, sources) = (&compilation.module, &compilation.sources);
    let mut entries = Vec::new();
    for interface in module.interfaces.iter().filter(|i| !i.imported) {
        operations(compilation, interface, &mut entries);
    }
    for ty in module.declared_types.iter().filter(|ty| !ty.imported) {
        let kind = if ty.name.contains('.') { "arm" } else { "type" };
        entries.push(declared(kind, ty.name.clone(), None, &ty.cause, sources));
    }
    for dispatch in module.dispatches.iter().filter(|d| !d.imported) {
        let span = compilation.places.get(&dispatch.name).copied().unwrap_or_default();
        let cause = crate::sema::dispatched(span);
        entries.push(declared("dispinterface", dispatch.name.clone(), None, &cause, sources));
    }
    entries
}

fn operations<'a>(
    compilation: &'a Compilation,
    interface: &'a Interface,
    entries: &mut Vec<StubEntry<'a>>,
) {
    let first = entries.len();
    let sources = &compilation.sources;
    for op in &interface.operations {
        let name = format!("{}.{}", interface.name, op.name);
        let (kind, number) = ("operation", Some(op.opnum));
        if op.is_local || interface.is_local {
            let span = compilation.places.get(&name).copied().unwrap_or_default();
            entries.push(declared(kind, name, number, &crate::sema::local(span), sources));
        } else {
            let (construct, cause, place) = (None, None, None);
            entries.push(StubEntry { kind, name, number, stubs: true, construct, cause, place });
        }
    }
    for op in &interface.declared {
        let name = format!("{}.{}", interface.name, op.name);
        entries.push(declared("operation", name, Some(op.opnum), &op.cause, sources));
    }
    entries[first..].sort_by_key(|entry| entry.number);
}

fn declared<'a>(
    kind: &'static str,
    name: String,
    number: Option<u16>,
    cause: &Cause,
    sources: &'a SourceMap,
) -> StubEntry<'a> {
    let place = Some(cause.span).filter(|s| *s != Span::default());
    StubEntry {
        kind,
        name,
        number,
        stubs: false,
        construct: Some(cause.construct),
        cause: Some(cause.message.clone()),
        place: place.and_then(|span| location(sources, span)),
    }
}
