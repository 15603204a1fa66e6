//! Generates the stubs of the control interface from `idl/session.idl`, and those of the protocol
//! server's interface from `idl/protocol.idl`: twice, as its two ACFs want them.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    sojourn_idl::Build::new()
        .idl("../../idl/session.idl")
        .acf("../../idl/session.acf")
        .rust()
        .compile_or_exit();
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let sides = [("server", "../../idl/protocol.acf"), ("client", "../../idl/protocol_client.acf")];
    for (side, acf) in sides {
        let build = sojourn_idl::Build::new().idl("../../idl/protocol.idl").acf(acf).rust();
        build.out_dir(Path::new(&out).join(side)).compile_or_exit();
    }
}
