//! Generates Rust of the interfaces in which everything is called like something else
//! (`crates/idl/tests/names/samples.rs`): `names.rs`, a module for each sample.

#[path = "../../crates/idl/tests/names/samples.rs"]
mod samples;

use std::env;
use std::fs;
use std::path::Path;

use sojourn_idl::backend::{self, rust};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = env::var("OUT_DIR")?;
    let mut modules = String::new();
    for sample in samples::samples() {
        let compiled = sample.compile()?;
        let options = backend::Options::default();
        for output in rust::generate(&compiled.module, &options) {
            fs::write(Path::new(&out).join(&output.path), output.text)?;
            let name = &sample.name;
            modules.push_str(&format!(
                "/// Names.\npub mod {name} {{ include!(concat!(env!(\"OUT_DIR\"), \"/{}\")); }}\n",
                output.path
            ));
        }
    }
    fs::write(Path::new(&out).join("names.rs"), modules)?;
    for watched in ["../../crates/idl/tests/names", "build.rs"] {
        println!("cargo:rerun-if-changed={watched}");
    }
    Ok(())
}
