//! Build script of the loader: a statically linked unwinder, as in the preload library
//! (`crates/preload/build.rs`), because each start of a loaded program would load `libgcc_s`.

use std::{env, fs, path::PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    // The linker searches this folder first for the `libgcc_s` that `std` asks for, and finds a
    // linker script that names the static libraries instead.
    fs::write(out.join("libgcc_s.so"), "INPUT(-lgcc_eh -lgcc)\n").expect("OUT_DIR is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
    if env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|name| name == "x86_64") {
        // The kernel starts the loader itself, which starts the dynamic loader when the program
        // first needs the C library (`first`, `host`).
        println!("cargo:rustc-link-arg-bins=-Wl,--no-dynamic-linker");
        println!("cargo:rustc-link-arg-bins=-Wl,--entry=sojourn_first");
    }
}
