//! Links the unwinder statically: the shim is loaded into every program, and loading `libgcc_s` as
//! well would cost each of them more than everything else the shim does at start.
//!
//! Not without optimization. A thread that is cancelled is unwound by the C library's unwinder,
//! through frames of ours; unoptimized ones have things to clean up, for which both must use the
//! same unwinder.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Unloading it would leave handlers behind that are no more.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // What other crates export for C is no business of the programs that this is loaded into.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
    // What this library calls by a name that it gives to programs is its own function, whoever else
    // has one of that name.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    // See `unwinder`.
    println!("cargo:rustc-cdylib-link-arg=-nostartfiles");
    if env::var_os("OPT_LEVEL").is_some_and(|level| level != "0") {
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        // The linker looks here first for the library that `std` asks for, and finds a script.
        fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
        println!("cargo:rustc-link-search=native={}", out.display());
    }
}
