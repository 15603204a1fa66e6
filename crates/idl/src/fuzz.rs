//! Entry for fuzzing: whatever the bytes, the compiler must answer and not fall over.

use crate::compile::{Options, compile};
use crate::diag;
use crate::source::MemoryLoader;

/// Feeds `data` to everything that reads text: as an IDL file, and what follows the first zero
/// byte as an ACF; formats it; shows every diagnostic; documents and dumps what compiles.
///
/// # Panics
/// Never on correct code: a panic is what the fuzzer looks for.
pub fn fuzz_parse(data: &[u8]) {
    let (idl, acf) = match data.iter().position(|b| *b == 0) {
        Some(at) => (&data[..at], Some(&data[at + 1..])),
        None => (data, None),
    };
    let mut loader = MemoryLoader::new().with("main.idl", idl).with("other.idl", "typedef long o;");
    if let Some(acf) = acf {
        loader = loader.with("main.acf", acf);
    }
    let acf = acf.map(|_| "main.acf");
    match compile("main.idl", acf, &loader, &Options::default()) {
        Ok(compilation) => {
            assert!(!compilation.diagnostics.iter().any(diag::Diagnostic::is_error));
            let dump = crate::compat::dump(&compilation.module);
            assert!(crate::compat::check(&compilation, "dump", &dump).is_empty());
            let _ = (
                crate::docgen::markdown(&compilation.module),
                crate::docgen::html(&compilation.module),
            );
        }
        Err(failure) => {
            assert!(failure.diagnostics.iter().any(diag::Diagnostic::is_error));
            for d in &failure.diagnostics {
                assert!(!d.help.is_empty() || !d.is_error(), "no way out: {d:?}");
                let _ = diag::to_json(d, &failure.sources);
            }
            let _ = failure.rendered();
        }
    }
    let text = String::from_utf8_lossy(idl);
    if let Ok(once) = crate::format_source("main.idl", &text) {
        let twice = crate::format_source("main.idl", &once);
        assert!(twice.is_ok_and(|twice| twice == once), "formatting is not stable");
    }
}
