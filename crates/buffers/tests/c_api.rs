//! Tests of the C interface from C programs, which plain `cc` builds with the pkg-config file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_lab::c_interface::{CInterface, Installed, run};
use std::sync::LazyLock;

const INTERFACE: CInterface = CInterface {
    folder: env!("CARGO_MANIFEST_DIR"),
    target: env!("CARGO_TARGET_TMPDIR"),
    version: env!("CARGO_PKG_VERSION"),
    name: "buffers",
    built_name: "buffers",
};

static INSTALLED: LazyLock<Installed> = LazyLock::new(|| INTERFACE.install().unwrap());

#[test]
fn c_programs_talk_in_place() {
    let program = INSTALLED.compile("talk", &["talk"]).unwrap();
    for kind in ["tcp", "unix", "pipe"] {
        for dies in [None, Some("sender"), Some("receiver")] {
            let said = run(INSTALLED.command(&program).arg(kind).args(dies)).unwrap();
            assert_eq!(said, "passed 0\n", "{kind} {dies:?}");
        }
    }
}

#[test]
fn the_shared_library_exports_the_header_s_functions_and_no_others() {
    INSTALLED.check_exports().unwrap();
}

#[test]
fn the_header_is_c_plus_plus_as_well() {
    INTERFACE.check_as_cpp().unwrap();
}
