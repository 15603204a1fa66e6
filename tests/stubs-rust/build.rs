//! Generates Rust, with tests, from every example interface and a file of COM.

use std::env;
use std::fs;
use std::path::Path;

use sojourn_idl::backend::{self, rust};
use sojourn_idl::source::FileLoader;

const EXAMPLES: [&str; 4] = ["calc", "everything", "files", "paper"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let here = env::var("CARGO_MANIFEST_DIR")?;
    let examples = Path::new(&here).join("../../idl/examples");
    for name in EXAMPLES {
        generate(&examples, name)?;
    }
    let own = Path::new(&here).join("idl");
    generate(&own, "local")?;
    let com = Path::new(&here).join("../../crates/idl/tests/c");
    generate(&com, "com")?;
    for watched in [examples.as_path(), &own, &com, Path::new("build.rs")] {
        println!("cargo:rerun-if-changed={}", watched.display());
    }
    Ok(())
}

fn generate(folder: &Path, name: &str) -> Result<(), Box<dyn std::error::Error>> {
    let idl = folder.join(format!("{name}.idl"));
    let acf = folder.join(format!("{name}.acf"));
    let acf = acf.exists().then(|| acf.display().to_string());
    let loader = FileLoader { include_dirs: vec![folder.to_owned()] };
    let compiled = sojourn_idl::compile(
        &idl.display().to_string(),
        acf.as_deref(),
        &loader,
        &sojourn_idl::Options::default(),
    )?;
    let options = backend::Options { tests: true, ..backend::Options::default() };
    let out = env::var("OUT_DIR")?;
    for output in rust::generate(&compiled.module, &options) {
        fs::write(Path::new(&out).join(output.path), output.text)?;
    }
    Ok(())
}
