//! Compiles the time stamps' eBPF programs (`bpf/time.bpf.c`) with clang.
//!
//! Without clang the crate still builds: loading then answers that the programs are not there, and
//! which package to install. Read `bpf/time.bpf.c` first.

use std::env;
use std::error::Error;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "../../bpf/time.bpf.c";
const HEADERS: &str = "../../bpf/time";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed={HEADERS}");
    println!("cargo::rerun-if-env-changed=PATH");
    println!("cargo::rustc-check-cfg=cfg(have_programs)");
    // Which system calls there are, and where their arguments stand.
    let machine = match env::var("CARGO_CFG_TARGET_ARCH")?.as_str() {
        "x86_64" => "x86",
        "aarch64" => "arm64",
        // Loading answers that nothing was built.
        _ => return Ok(()),
    };
    let object = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR")?).join("time.bpf.o");
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Werror"]);
    clang.arg(format!("-D__TARGET_ARCH_{machine}"));
    // The kernel's headers include some of the machine's, which clang does not look for with this
    // target.
    clang.arg(format!("-I/usr/include/{arch}-linux-gnu"));
    // The same headers of Debian's packages for building on another machine.
    clang.arg(format!("-I/usr/{arch}-linux-gnu/include"));
    // The object names the folder of its compilation: a relative name makes builds alike.
    clang.args(["-fdebug-compilation-dir", "."]);
    clang.args(["-c", SOURCE, "-o"]).arg(&object);
    match clang.status() {
        Ok(status) if status.success() => println!("cargo::rustc-cfg=have_programs"),
        Ok(_) => return Err("clang does not compile bpf/time.bpf.c".into()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("cargo::warning=no time stamps in the kernel: install clang");
            // A file that is never there always counts as changed: each build looks for clang.
            println!("cargo::rerun-if-changed={}", object.with_extension("missing").display());
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
