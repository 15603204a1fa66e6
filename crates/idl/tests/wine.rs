//! The interface files of Wine's development package, where it is installed: at least 95 % are
//! accepted, and whatever is not, file or operation, has a cause that names a construct.
//!
//! The folder is `/usr/include/wine/wine/windows`, or what SOJOURN_WINE_IDL says.
#![allow(clippy::unwrap_used, reason = "a failed helper fails its test")]

use std::path::{Path, PathBuf};

use sojourn_idl::backend::{self, c, rust};
use sojourn_idl::source::FileLoader;
use sojourn_idl::{Compilation, Failure, Options, compile, stubs};

/// Those whose stubs are generated too: small and large, structures of every kind.
const GENERATED: &[&str] = &["oaidl", "objidl", "propsys", "transact", "windows.foundation"];

/// What has to be accepted, in hundredths.
const ACCEPTED_MIN: usize = 95;

fn folder() -> PathBuf {
    let given = std::env::var_os("SOJOURN_WINE_IDL");
    given.map_or_else(|| "/usr/include/wine/wine/windows".into(), PathBuf::from)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        paths.filter(|p| p.extension().is_some_and(|e| e == "idl")).collect();
    files.sort();
    files
}

fn read(file: &Path) -> Result<Compilation, Box<Failure>> {
    compile(&file.display().to_string(), None, &FileLoader::default(), &Options::default())
}

/// What the file has, and what has stubs; every operation without has a cause.
fn count(file: &Path, compilation: &Compilation) -> (usize, usize) {
    let listing = stubs::listing(compilation);
    for entry in listing.iter().filter(|entry| !entry.stubs) {
        let has_construct = entry.construct.is_some_and(|c| !c.is_empty())
            && entry.cause.as_ref().is_some_and(|c| !c.is_empty())
            && entry.place.is_some();
        assert!(has_construct, "{}: {entry:?}", file.display());
    }
    let operations = listing.iter().filter(|entry| entry.kind == "operation");
    let (all, with) =
        operations.fold((0, 0), |(all, with), entry| (all + 1, with + usize::from(entry.stubs)));
    (all, with)
}

/// Stubs are made of what is left of the model, and the Rust among them is Rust.
fn generates(compilation: &Compilation) {
    let options = backend::Options { tests: true, ..backend::Options::default() };
    assert!(!c::generate(&compilation.module, &options).is_empty());
    for output in rust::generate(&compilation.module, &options) {
        assert!(!output.text.starts_with("// cannot be laid out"), "{}", output.path);
    }
}

#[test]
fn files_of_wine_are_accepted() {
    let files = files(&folder());
    if files.is_empty() {
        eprintln!("skipped: {} has no interface files (Debian: libwine-dev)", folder().display());
        return;
    }
    let (mut refused, mut all, mut with) = (Vec::new(), 0, 0);
    for file in &files {
        match read(file) {
            Ok(compilation) => {
                let (of_file, with_stubs) = count(file, &compilation);
                (all, with) = (all + of_file, with + with_stubs);
                let name = file.file_stem().unwrap().to_string_lossy().into_owned();
                if GENERATED.contains(&name.as_str()) {
                    generates(&compilation);
                }
            }
            Err(failure) => {
                let first = failure.diagnostics.iter().find(|d| d.is_error()).unwrap();
                assert!(!first.help.is_empty() && first.span.is_some(), "{failure}");
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                refused.push(format!("{name}: {}: {}", first.code, first.message));
            }
        }
    }
    let accepted = files.len() - refused.len();
    eprintln!(
        "{accepted} of {} files accepted, {with} of {all} operations have stubs",
        files.len()
    );
    eprintln!("{}", refused.join("\n"));
    assert!(accepted * 100 >= files.len() * ACCEPTED_MIN, "{}", refused.join("\n"));
}
