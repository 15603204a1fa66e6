//! Compiles the eBPF programs of the packet filter (`bpf/filter.bpf.c`) and of what comes past it
//! (`bpf/unfiltered.bpf.c`) with clang.
//!
//! Without clang the crate still builds. Loading the programs then fails, with the name of the
//! package to install.

use std::env;
use std::error::Error;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAMS: [&str; 2] = ["filter", "unfiltered"];
const FOLDER: &str = "../../bpf";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={FOLDER}/filter");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rustc-check-cfg=cfg(have_programs)");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?);
    let mut have_all = true;
    for name in PROGRAMS {
        let source = format!("{FOLDER}/{name}.bpf.c");
        println!("cargo::rerun-if-changed={source}");
        have_all &= compile(&source, &out.join(name).with_extension("bpf.o"))?;
    }
    if have_all {
        println!("cargo::rustc-cfg=have_programs");
    }
    Ok(())
}

/// Compiles a program; returns false if there is no clang.
fn compile(source: &str, object: &Path) -> Result<bool, Box<dyn Error>> {
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror"]);
    // The kernel's headers include some headers of the architecture, which clang does not look for
    // with this target.
    clang.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    // The same headers of Debian's packages for building on another machine.
    clang.arg(format!("-I/usr/{arch}-linux-gnu/include"));
    // The debug information names the folder of the compilation. A relative name makes builds in
    // all folders alike.
    clang.args(["-fdebug-compilation-dir", "."]);
    clang.args(["-c", source, "-o"]).arg(object);
    match clang.status() {
        Ok(status) if status.success() => return Ok(true),
        Ok(_) => return Err(format!("clang does not compile {source}").into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("cargo::warning=no packet filter: install clang");
            // Cargo takes a missing file as changed, so this build script runs again, and looks for
            // clang, at each build. The path of clang would not do, because a package installs
            // files with times older than this build.
            println!("cargo::rerun-if-changed={}", object.with_extension("missing").display());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(false)
}
