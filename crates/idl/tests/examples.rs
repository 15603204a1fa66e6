//! The examples of the project compile without a word.

use std::path::{Path, PathBuf};

use sojourn_idl::source::FileLoader;
use sojourn_idl::{Compilation, Options, compile};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../idl/examples")
}

fn build(name: &str) -> Compilation {
    let idl = examples().join(format!("{name}.idl"));
    let acf = examples().join(format!("{name}.acf"));
    let acf = acf.exists().then(|| acf.display().to_string());
    let loader = FileLoader::default();
    match compile(&idl.display().to_string(), acf.as_deref(), &loader, &Options::default()) {
        Ok(compilation) => compilation,
        Err(failure) => panic!("{failure}"),
    }
}

#[test]
fn every_example_is_formatted() {
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        match sojourn_idl::format_source(&path.display().to_string(), &text) {
            Ok(formatted) => assert_eq!(formatted, text, "{}", path.display()),
            Err(failure) => panic!("{failure}"),
        }
    }
}

#[test]
fn every_example_compiles() {
    for name in ["paper", "calc", "files", "common", "everything"] {
        let compilation = build(name);
        assert_eq!(compilation.rendered(), "", "{name}");
    }
}
