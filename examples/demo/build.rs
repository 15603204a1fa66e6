//! Compiles the calculator's interface to Rust; `cargo xtask demo` compiles the same file to C.

fn main() {
    sojourn_idl::Build::new()
        .idl("../../idl/examples/calc.idl")
        .acf("../../idl/examples/calc.acf")
        .rust()
        .compile_or_exit();
}
