//! Names of what rivals leave in the file system, and the removal of it.
//!
//! Sojourn leaves nothing anywhere; this is for rivals that keep their memory under names.

use std::path::PathBuf;

/// Prefix of the shared memory of this run's iceoryx2 rows.
#[cfg(feature = "rivals")]
pub(super) fn iceoryx_prefix() -> String {
    format!("sojourn_bench_{}_", run())
}

/// Folder of this run's iceoryx2 rows.
#[cfg(feature = "rivals")]
pub(super) fn iceoryx_root() -> String {
    folder().to_string_lossy().into_owned()
}

fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("sojourn-bench-{}", run()))
}

/// The coordinator's process number: its children carry it over the fork.
fn run() -> u32 {
    use std::sync::OnceLock;
    static RUN: OnceLock<u32> = OnceLock::new();
    *RUN.get_or_init(std::process::id)
}

/// Removes everything on drop. Made by the coordinator before it forks.
pub(super) struct Scratch;

impl Scratch {
    /// Fixes the names of this run.
    pub(super) fn new() -> Self {
        let _ = run();
        Self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(folder());
        let prefix = format!("sojourn_bench_{}_", run());
        for entry in std::fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}
