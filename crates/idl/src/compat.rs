//! Compatibility: what an interface promises on the wire, and whether it still does.
//!
//! A *dump* is that promise as JSON, to be stored beside the interface when it is released. Later
//! versions may add operations at the end and then must raise the minor version; everything that
//! changes numbers, layouts or meanings of what existed is refused. Names of operations and
//! parameters do not travel: renaming them is a warning.

mod compare;
mod dump;

use crate::compile::Compilation;
use crate::diag::{Diagnostic, Severity, codes};
use crate::ir::Module;
use dump::{Dump, FORMAT, of};

/// The promise of `module` as text, to be stored.
#[must_use]
pub fn dump(module: &Module) -> String {
    let dump = of(module);
    // Strings and numbers always have a JSON form.
    let mut text = serde_json::to_string_pretty(&dump).unwrap_or_default();
    text.push('\n');
    text
}

/// What in `new` breaks the promise `old` (the text of a dump that was read from `path`).
#[must_use]
pub fn check(new: &Compilation, path: &str, old: &str) -> Vec<Diagnostic> {
    let parsed: Result<Dump, _> = serde_json::from_str(old);
    let problem = match parsed {
        Ok(old) if old.format == FORMAT => return compare::compare(&old, &of(&new.module), new),
        Ok(old) => format!("its format is {}, this tool knows {FORMAT}", old.format),
        Err(e) => e.to_string(),
    };
    let message = format!("`{path}` is no dump: {problem}");
    vec![
        Diagnostic::new(Severity::Error, codes::COMPAT_DUMP, None, message)
            .help("make one with `sojourn-idl dump`"),
    ]
}
