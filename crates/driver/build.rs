//! Compiles `idl/device.idl` twice, once for each ACF: for the driver and for its clients.

use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let sides = [("server", "../../idl/device.acf"), ("client", "../../idl/device_client.acf")];
    for (side, acf) in sides {
        let build = sojourn_idl::Build::new().idl("../../idl/device.idl").acf(acf).rust();
        build.out_dir(Path::new(&out).join(side)).compile_or_exit();
    }
}
