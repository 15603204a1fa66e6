//! The names under which rivals keep memory in the file system, and the removal of those files.
//!
//! Sojourn itself leaves no files.

use std::path::{Path, PathBuf};

/// Returns the prefix of the shared memory of this run's iceoryx2 rows.
#[cfg(feature = "rivals")]
pub(super) fn iceoryx_prefix() -> String {
    format!("sojourn_bench_{}_", run())
}

/// Returns the folder of this run's iceoryx2 rows.
#[cfg(feature = "rivals")]
pub(super) fn iceoryx_root() -> String {
    folder().to_string_lossy().into_owned()
}

#[cfg(feature = "rivals")]
fn folder() -> PathBuf {
    std::env::temp_dir().join(format!("sojourn-bench-{}", run()))
}

/// Returns the coordinator's process number. The first call is in the coordinator, so that its
/// children have the same number after the fork.
fn run() -> u32 {
    use std::sync::OnceLock;
    static RUN: OnceLock<u32> = OnceLock::new();
    *RUN.get_or_init(std::process::id)
}

/// The files of this run: removed on drop. When it is made, the files of runs that were killed are
/// removed too. The coordinator makes it before it forks.
pub(super) struct Scratch;

impl Scratch {
    /// Fixes the names of this run and removes the files of runs that no longer exist.
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

/// Removes the files of the runs whose process numbers `doomed` accepts.
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

/// Returns the process number in a name with one of this benchmark's prefixes.
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
