//! Programs with a sanitizer run as without the library, also as children of programs that have the
//! library. The sanitizer's run-time library is a shared one or linked into the program. Compilers
//! that cannot make such a program are left out.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A compiler and its options for each sanitizer.
const MAKERS: [(&str, &[&str]); 12] = [
    ("gcc", &["-fsanitize=address"]),
    ("gcc", &["-fsanitize=address", "-static-libasan"]),
    ("gcc", &["-fsanitize=thread"]),
    ("gcc", &["-fsanitize=thread", "-static-libtsan"]),
    ("gcc", &["-fsanitize=leak"]),
    ("gcc", &["-fsanitize=undefined"]),
    ("clang", &["-fsanitize=address"]),
    ("clang", &["-fsanitize=address", "-shared-libasan"]),
    ("clang", &["-fsanitize=thread"]),
    ("clang", &["-fsanitize=memory"]),
    ("clang", &["-fsanitize=leak"]),
    ("clang", &["-fsanitize=undefined"]),
];

/// Builds the program. Returns `None` if this compiler cannot build it, or if it does not run here
/// without the library.
fn made(at: usize) -> Option<PathBuf> {
    let (compiler, options) = MAKERS[at];
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/sanitized.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sanitized-{at}"));
    let output = Command::new(compiler)
        .args(["-g", "-w", "-pthread"])
        .args(options)
        .arg("-o")
        .args([&program, &source])
        .output();
    let runs = output.is_ok_and(|output| output.status.success())
        && common::run(Command::new(&program)).status.success();
    runs.then_some(program)
}

#[test]
fn sanitized_programs_run_as_they_do_plainly() {
    let server = common::server("sanitizers");
    let mut tried = 0;
    for (at, (compiler, options)) in MAKERS.iter().enumerate() {
        let Some(program) = made(at) else {
            eprintln!("left out: {compiler} {options:?}");
            continue;
        };
        let script = format!("{}; exit $?", program.display());
        for words in [vec![program.to_str().unwrap()], vec!["sh", "-c", &script]] {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).env("SOJOURN_SERVER", server.address());
            command.env("SOJOURN_MOVE_AFTER_CALLS", "0");
            let output = common::run(common::preloaded(command));
            let said = String::from_utf8_lossy(&output.stdout);
            let erred = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && said == "ok\n" && erred.is_empty(),
                "{compiler} {options:?} {words:?}: {}\n{said}{erred}",
                output.status
            );
        }
        tried += 1;
    }
    assert!(tried > 0, "no compiler has a sanitizer");
}
