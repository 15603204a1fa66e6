//! Build script of the preload library: linker arguments, and a statically linked unwinder.
//!
//! The unwinder is static because the library is loaded into every program: loading `libgcc_s` as
//! well would cost each program more than everything else that the library does at start.
//!
//! Unoptimized builds load `libgcc_s` after all. The C library's unwinder unwinds a cancelled
//! thread through frames of this library; unoptimized frames have values to drop, and for those the
//! program and this library must use the same unwinder.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The program may have installed handlers of this library (signals, `fork`), which must outlive
    // a dlclose(3).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The C functions that other crates export are not meant for the programs that load this
    // library.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // A call from this library to a function that it also exports reaches this library's own
    // function, even if another object exports the same name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // `unwinder` defines the symbols that the usual start files would define.
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    if env::var_os("OPT_LEVEL").is_some_and(|level| level != "0") {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        // The linker searches this folder first for the `libgcc_s` that `std` asks for, and finds a
        // linker script that names the static libraries instead.
        fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
        println!("cargo:rustc-link-search=native={}", out.display());
        if is_linked_by_lld() {
            start_small();
        }
    }
}

/// Returns true if the linker is LLVM's, which it is by default on x86-64.
fn is_linked_by_lld() -> bool {
    let is_usual = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|name| name == "x86_64");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    is_usual && !flags.contains("-linker") && !flags.contains("-lld")
}

/// Lays the library out so that a program which stays small touches few of its pages.
fn start_small() {
    let script = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let script = script.join("start.ld");
    println!("cargo:rerun-if-changed={}", script.display());
    println!("cargo:rustc-cdylib-link-arg=-Wl,--script={}", script.display());
    // The library relocates itself, when it is first needed (`relocation`). Loaders of other C
    // libraries than Android's do not know these tags; `DT_RELR` itself would demand glibc 2.36.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--pack-dyn-relocs=relr");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--use-android-relr-tags");
    // One mapping for constants and code, so that the first page fault maps what the loader reads
    // and what the constructor runs.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--no-rosegment");
}
