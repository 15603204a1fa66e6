//! Compiles the interface twice, once for each ACF: for the server and for clients. Gives the
//! shared library its name in the same way as the IPC's build script (`crates/ipc-c/build.rs`).

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    for (side, acf) in [("server", "../../idl/udp.acf"), ("client", "../../idl/udp_client.acf")] {
        let build = sojourn_idl::Build::new().idl("../../idl/udp.idl").acf(acf).rust();
        build.out_dir(Path::new(&out).join(side)).compile_or_exit();
    }
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsojourn_udp.so.{major}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The C functions of the IPC are exported by the IPC's own library only.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}
