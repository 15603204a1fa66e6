//! Generates the stubs of the control interface.

fn main() {
    sojourn_idl::Build::new().idl("../../idl/session.idl").rust().compile_or_exit();
}
