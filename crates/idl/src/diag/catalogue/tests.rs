//! Every code has an entry; every bad sample gives its code and nothing else; every good one
//! compiles without a word.

use super::{Explanation, Sample, entries, entry};
use crate::compile::{Compilation, Failure, Options, compile};
use crate::diag::{Diagnostic, Severity, codes};
use crate::source::MemoryLoader;

fn run(loader: &MemoryLoader, acf: bool) -> Result<Compilation, Box<Failure>> {
    let options = Options { for_rust: true, ..Options::default() };
    compile("sample.idl", acf.then_some("sample.acf"), loader, &options)
}

fn loaded(idl: &[u8]) -> MemoryLoader {
    MemoryLoader::new().with("sample.idl", idl)
}

fn diagnostics(sample: &Sample) -> (Vec<Diagnostic>, String) {
    let result = match sample {
        Sample::Idl(idl) => run(&loaded(idl.as_bytes()), false),
        Sample::Acf(idl, acf) => run(&loaded(idl.as_bytes()).with("sample.acf", acf), true),
        Sample::Made(make, _) => run(&loaded(&make()), false),
        Sample::Missing => run(&MemoryLoader::new(), false),
        Sample::Against { old, new } => {
            let new = run(&loaded(new.as_bytes()), false).unwrap();
            let old = if old.starts_with('{') {
                (*old).to_owned()
            } else {
                crate::compat::dump(&run(&loaded(old.as_bytes()), false).unwrap().module)
            };
            let found = crate::compat::check(&new, "old.dump", &old);
            let shown = found.iter().map(|d| crate::diag::render(d, &new.sources)).collect();
            return (found, shown);
        }
    };
    match result {
        Ok(done) => (done.diagnostics.clone(), done.rendered()),
        Err(failure) => (failure.diagnostics.clone(), failure.rendered()),
    }
}

fn check(entry: &Explanation) -> Result<(), String> {
    let (bad, shown) = diagnostics(&entry.bad);
    if bad.is_empty() || bad.iter().any(|d| d.code != entry.code) {
        return Err(format!("{}: the bad sample gives\n{shown}", entry.code));
    }
    if bad.iter().any(|d| d.help.is_empty() && d.severity != Severity::Note) {
        return Err(format!("{}: no way out in\n{shown}", entry.code));
    }
    let (good, shown) = diagnostics(&entry.good);
    if !good.is_empty() {
        return Err(format!("{}: the good sample gives\n{shown}", entry.code));
    }
    Ok(())
}

#[test]
fn every_code_has_one_entry_in_order() {
    let listed: Vec<_> = entries().map(|e| e.code).collect();
    assert_eq!(listed, codes::ALL);
}

#[test]
fn every_sample_does_what_it_says() {
    let failures: Vec<String> = entries().filter_map(|e| check(e).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn explanations_show_both_samples() {
    let text = entry(codes::NO_DIRECTION).unwrap().explain();
    assert!(text.contains("void f(long a)") && text.contains("void f([in] long a)"), "{text}");
    assert!(text.starts_with("SJ0501: "));
}
