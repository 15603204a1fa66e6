//! Generates Rust, with tests, from every example interface.

use std::env;
use std::fs;
use std::path::Path;

use sojourn_idl::backend::{self, rust};
use sojourn_idl::source::FileLoader;

const EXAMPLES: [&str; 4] = ["calc", "everything", "files", "paper"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = env::var("OUT_DIR")?;
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..");
    for name in EXAMPLES {
        let idl = root.join(format!("idl/examples/{name}.idl"));
        let acf = root.join(format!("idl/examples/{name}.acf"));
        let acf = acf.exists().then(|| acf.display().to_string());
        let loader = FileLoader { include_dirs: vec![root.join("idl/examples")] };
        let compiled = sojourn_idl::compile(
            &idl.display().to_string(),
            acf.as_deref(),
            &loader,
            &sojourn_idl::Options::default(),
        )?;
        let options = backend::Options { tests: true, ..backend::Options::default() };
        for output in rust::generate(&compiled.module, &options) {
            fs::write(Path::new(&out).join(output.path), output.text)?;
        }
    }
    println!("cargo:rerun-if-changed={}", root.join("idl/examples").display());
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}
