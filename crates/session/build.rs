//! Generates the stubs of the control interface from `idl/session.idl`.

fn main() {
    sojourn_idl::Build::new()
        .idl("../../idl/session.idl")
        .acf("../../idl/session.acf")
        .rust()
        .compile_or_exit();
}
