//! The table `memory`: the traced programs of a case run here, and one case in the traced virtual
//! machine where QEMU and the kernel are (`cargo xtask papers --table memory` brings both).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use sojourn_lab::{Built, Running};

/// Longest time of a case, of which the machine takes about ten seconds.
const LIMIT: Duration = Duration::from_secs(120);

fn traced(words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sojourn-bench"));
    command.arg("traced").args(words);
    let finished = Running::start(command).unwrap().finish(LIMIT).unwrap();
    finished.success("traced").map_err(|error| error.to_string())
}

/// The programs check every byte that they get, and the markers do nothing outside of a trace.
#[test]
fn the_programs_of_a_case_run_without_a_trace() {
    assert_eq!(traced(&["inside", "pipe-kernel"]).unwrap(), "measured pipe-kernel\n");
    let refused = traced(&["inside", "pipe"]).unwrap_err();
    assert!(refused.contains("no case"), "{refused}");
}

fn succeeds(output: std::io::Result<Output>) -> bool {
    output.is_ok_and(|output| output.status.success())
}

/// Boots, traces and reports: the plugin, the markers, the image and the models together.
#[test]
fn a_pipe_is_traced_in_a_virtual_machine() {
    let release = Built::without_check().unwrap().path("");
    let parts = [release.join("examples/libplugin.so"), release.join("../memory/vmlinuz")];
    let has_qemu = succeeds(Command::new("qemu-system-x86_64").arg("--version").output());
    if !has_qemu || !parts.iter().all(|part| Path::exists(part)) {
        eprintln!("skipped: QEMU, its plugin or the kernel is not there");
        return;
    }
    let report: sojourn_memory::Report =
        serde_json::from_str(&traced(&["machine", "pipe-kernel"]).unwrap()).unwrap();
    let (direct, full) = (report.direct_mapped, report.fully_associative);
    // Each of 400 exchanges is eight system calls or more, of two programs that take turns.
    assert!(direct.user.instructions > 400 * 50 && direct.system.instructions > 400 * 2_000);
    assert_eq!(direct.instructions(), full.instructions());
    assert_eq!(direct.instructions(), report.today.instructions());
    assert!(direct.system.fetch_misses > 0 && direct.system.writes > direct.user.writes);
    // Kernel and programs cannot drive each other out of caches of their own.
    assert!(report.separate.user.fetch_misses <= direct.user.fetch_misses);
    assert!(report.working_set.system_instructions > report.working_set.user_instructions);
}
