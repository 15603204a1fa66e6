//! Names of what rivals leave in the file system, and the removal of it.
//!
//! Sojourn leaves nothing anywhere; this is for rivals that keep their memory under names.

use std::path::{Path, PathBuf};

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

#[cfg(feature = "rivals")]
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("sojourn-bench-{}", run()))
}

/// The coordinator's process number: its children carry it over the fork.
fn run() -> u32 {
    use std::sync::OnceLock;
    static RUN: OnceLock<u32> = OnceLock::new();
    *RUN.get_or_init(std::process::id)
}

/// Removes everything of this run on drop, and what runs that were killed have left when it is
/// made. Made by the coordinator before it forks.
pub(super) struct Scratch;

impl Scratch {
    /// Fixes the names of this run.
    pub(super) fn new() -> Self {
        let own = run();
        sweep(|run| run != own && !Path::new("/proc").join(run.to_string()).exists());
        Self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let own = run();
        sweep(|run| run == own);
    }
}

/// Removes what belongs to the runs that `doomed` names by their process numbers.
fn sweep(doomed: impl Fn(u32) -> bool) {
    for (folder, prefix) in
        [(std::env::temp_dir(), "sojourn-bench-"), (PathBuf::from("/dev/shm"), "sojourn_bench_")]
    {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if run_of(&entry.file_name().to_string_lossy(), prefix).is_some_and(&doomed) {
                let _ = std::fs::remove_dir_all(entry.path());
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

/// The process number in a name of ours.
fn run_of(name: &str, prefix: &str) -> Option<u32> {
    let rest = name.strip_prefix(prefix)?;
    rest.split('_').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::run_of;

    #[test]
    fn only_names_of_ours_name_a_run() {
        assert_eq!(run_of("sojourn_bench_42_data", "sojourn_bench_"), Some(42));
        assert_eq!(run_of("sojourn-bench-42", "sojourn-bench-"), Some(42));
        assert_eq!(run_of("sojourn-bench-notes.txt", "sojourn-bench-"), None);
        assert_eq!(run_of("other", "sojourn-bench-"), None);
    }
}
