//! Compiles the interface twice, as its two ACFs want it: for the server and for clients.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let sides = [("server", "../../idl/protocol.acf"), ("client", "../../idl/protocol_client.acf")];
    for (side, acf) in sides {
        let build = sojourn_idl::Build::new().idl("../../idl/protocol.idl").acf(acf).rust();
        build.out_dir(Path::new(&out).join(side)).compile_or_exit();
    }
}
