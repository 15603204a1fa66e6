//! Generates Rust stubs of the calculator's interface. `cargo xtask demo` generates C stubs of the
//! same interface.

fn main() {
    sojourn_idl::Build::new()
        .idl("../../idl/examples/calc.idl")
        .acf("../../idl/examples/calc.acf")
        .rust()
        .compile_or_exit();
}
