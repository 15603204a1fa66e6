//! Compiling for every command, and printing diagnostics.

use std::path::{Path, PathBuf};

use sojourn_idl::diag::{Diagnostic, Severity, render, to_json};
use sojourn_idl::source::{FileLoader, SourceMap};
use sojourn_idl::{Compilation, Options, compile};

use super::args::Reading;

/// Compiles `file`, for stubs in Rust or for anything else. `None`: mistakes have been reported.
pub(super) fn compiled(file: &Path, reading: &Reading, for_rust: bool) -> Option<Compilation> {
    let loader = FileLoader { include_dirs: reading.include_dirs.clone() };
    let options = Options { max_is_count: reading.max_is_count, for_rust };
    let acf = acf_of(file, reading).map(|p| p.display().to_string());
    match compile(&file.display().to_string(), acf.as_deref(), &loader, &options) {
        Ok(compilation) => {
            print_all(&compilation.diagnostics, &compilation.sources, reading.json);
            Some(compilation)
        }
        Err(failure) => {
            print_all(&failure.diagnostics, &failure.sources, reading.json);
            None
        }
    }
}

/// The ACF asked for, or the one that lies beside the IDL file.
fn acf_of(file: &Path, reading: &Reading) -> Option<PathBuf> {
    if reading.no_acf || reading.acf.is_some() {
        return reading.acf.clone();
    }
    let beside = file.with_extension("acf");
    (beside != file && beside.is_file()).then_some(beside)
}

/// Prints diagnostics: for people to standard error, as JSON to standard output.
pub(super) fn print_all(diagnostics: &[Diagnostic], sources: &SourceMap, json: bool) {
    for diagnostic in diagnostics {
        if json {
            println!("{}", to_json(diagnostic, sources));
        } else {
            eprintln!("{}", render(diagnostic, sources));
        }
    }
    let errors = diagnostics.iter().filter(|d| d.severity == Severity::Error).count();
    if errors > 0 && !json {
        let plural = if errors == 1 { "" } else { "s" };
        eprintln!("{errors} error{plural}; nothing has been written");
        if let Some(first) = diagnostics.iter().find(|d| d.is_error()) {
            eprintln!("more about an error: sojourn-idl --explain {}", first.code);
        }
    }
}
