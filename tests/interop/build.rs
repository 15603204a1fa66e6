//! Generates the C programs of every example interface, both languages from the files in `idl`, and
//! a table of every request for attacks.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sojourn_idl::Compilation;
use sojourn_idl::backend::{self, c, rust};
use sojourn_idl::ir::{Interface, OnViolation};
use sojourn_idl::source::FileLoader;

type Failure = Box<dyn std::error::Error>;

const EXAMPLES: [&str; 4] = ["calc", "everything", "files", "paper"];

fn main() -> Result<(), Failure> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let examples = here.join("../../idl/examples");
    let programs = out.join("c");
    fs::create_dir_all(&programs)?;
    let mut table = String::new();
    let own = here.join("idl");
    let options = backend::Options { tests: true, ..backend::Options::default() };
    for name in EXAMPLES.into_iter().chain(["corners"]) {
        let folder = if name == "corners" { &own } else { &examples };
        let compiled = compile(folder, &out, name)?;
        if name == "corners" {
            for output in rust::generate(&compiled.module, &options) {
                fs::write(out.join(output.path), output.text)?;
            }
        }
        for output in c::generate(&compiled.module, &options) {
            fs::write(programs.join(output.path), output.text)?;
        }
        requests(&mut table, name, &compiled)?;
    }
    // No random values: its answers depend on how the caller waits.
    let plain = backend::Options::default();
    let waits = compile(&own, &out, "waits")?;
    for output in rust::generate(&waits.module, &plain) {
        fs::write(out.join(output.path), output.text)?;
    }
    for output in c::generate(&waits.module, &plain) {
        fs::write(programs.join(output.path), output.text)?;
    }
    fs::write(out.join("requests.rs"), table)?;
    println!("cargo:rerun-if-changed={}", examples.display());
    println!("cargo:rerun-if-changed={}", own.display());
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}

fn compile(folder: &Path, out: &Path, name: &str) -> Result<Compilation, Failure> {
    let idl = folder.join(format!("{name}.idl"));
    let acf = folder.join(format!("{name}.acf"));
    let acf = match acf.exists() {
        true => Some(by_reference(&acf, &out.join(format!("{name}.acf")))?),
        false => None,
    };
    let loader = FileLoader { include_dirs: vec![folder.to_owned()] };
    let options = sojourn_idl::Options::default();
    Ok(sojourn_idl::compile(&idl.display().to_string(), acf.as_deref(), &loader, &options)?)
}

/// The ACF with thresholds so low that random arrays go in the body as well as by reference; no
/// other word of it is changed. Thresholds are the sender's own business.
fn by_reference(from: &Path, to: &Path) -> Result<String, Failure> {
    let mut text = fs::read_to_string(from)?;
    for key in ["reference_above(", "copy_below("] {
        let mut parts = text.split(key);
        let mut lowered = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (_, rest) = part.split_once(')').ok_or("a key without its closing bracket")?;
            write!(lowered, "{key}8){rest}")?;
        }
        text = lowered;
    }
    fs::write(to, text)?;
    Ok(to.display().to_string())
}

/// A constant `NAME` that lists the requests of the file's interfaces.
fn requests(table: &mut String, name: &str, compiled: &Compilation) -> Result<(), Failure> {
    writeln!(table, "const {}: &[Request] = &[", name.to_uppercase())?;
    let here = |i: &&Interface| !i.imported && !i.is_local;
    for interface in compiled.module.interfaces.iter().filter(here) {
        for op in interface.operations.iter().filter(|op| !op.is_local) {
            let module = format!("{name}::{}_random", interface.name);
            writeln!(
                table,
                "Request {{ interface: {name}::{}_ID, op: {number}, name: \"{}\", oneway: {}, \
                 faults: {}, draw: |seed| {module}::{plain}_in_message(rt::Forms::BODY, \
                 &{module}::{plain}_in(&mut Random::stream(seed, {number}, 1))) }},",
                interface.name.to_uppercase(),
                op.name,
                op.oneway,
                op.acf.on_violation == Some(OnViolation::Fault),
                number = op.opnum,
                plain = op.name,
            )?;
        }
    }
    writeln!(table, "];")?;
    Ok(())
}
