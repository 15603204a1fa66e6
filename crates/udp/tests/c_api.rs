//! Tests of the C interface from C programs, which plain `cc` builds with the pkg-config file and
//! which run as processes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Server, host};
use sojourn_lab::c_interface::{CInterface, Installed, run};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::LazyLock;

const INTERFACE: CInterface = CInterface {
    folder: env!("CARGO_MANIFEST_DIR"),
    target: env!("CARGO_TARGET_TMPDIR"),
    version: env!("CARGO_PKG_VERSION"),
    name: "udp",
    built_name: "udp",
};

static INSTALLED: LazyLock<Installed> = LazyLock::new(|| INTERFACE.install().unwrap());

#[test]
fn c_programs_talk_with_each_other() {
    let Some(host) = host() else { return };
    let program = INSTALLED.compile("echo", &["echo"]).unwrap();
    let server = Server::start(Some(&host), &[]);
    let client = |words: &[&str]| {
        let mut command = INSTALLED.command(&program);
        command.arg(&server.path).args(words);
        command
    };
    let mut serving = client(&["serve"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(serving.stdout.take().unwrap()).lines();
    let port = lines.next().unwrap().unwrap();
    assert!(run(&mut client(&["ask", &port])).unwrap().ends_with("passed\n"));
    assert_eq!(lines.next().unwrap().unwrap(), "passed");
    assert!(serving.wait().unwrap().success());
}

#[test]
fn the_shared_library_exports_the_header_s_functions_and_no_others() {
    INSTALLED.check_exports().unwrap();
}

#[test]
fn the_header_is_c_plus_plus_as_well() {
    INTERFACE.check_as_cpp().unwrap();
}
