//! The folder below `/proc` that shows what a process has: its descriptors, memory, name spaces and
//! environment.
//!
//! That is the process's own folder, unless its first thread has ended while others go on
//! (pthread_exit(3)): `/proc/PID` shows the first thread, which has nothing any more. Not here:
//! what is read there (`sessions::processes`, `time::holders`).

use sojourn_session::ProcessId;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Returns the process's folder in `proc`, or that of one of its threads if the first has ended.
pub(crate) fn folder(proc: &Path, pid: ProcessId) -> PathBuf {
    let own = proc.join(pid.to_string());
    // Threads of the kernel have no memory either, and nobody else has theirs. The first byte is
    // enough: the kernel writes the list as it is read.
    let has_memory = |folder: &Path| {
        let first = File::open(folder.join("maps")).and_then(|mut maps| maps.read(&mut [0]));
        first.is_ok_and(|len| len > 0)
    };
    if has_memory(&own) {
        return own;
    }
    let threads = fs::read_dir(own.join("task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).find(|thread| has_memory(thread)).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_first_thread_has_ended_is_seen_by_another() {
        let proc = std::env::temp_dir().join(format!("sojourn-threads-{}", std::process::id()));
        for (folder, maps) in
            [("7", ""), ("7/task/7", ""), ("7/task/9", "x"), ("8", "x"), ("6", "")]
        {
            fs::create_dir_all(proc.join(folder)).unwrap();
            fs::write(proc.join(folder).join("maps"), maps).unwrap();
        }
        let of = |pid| folder(&proc, ProcessId(pid)).strip_prefix(&proc).unwrap().to_owned();
        let found = [6, 7, 8, 5].map(of);
        fs::remove_dir_all(&proc).unwrap();
        assert_eq!(found, ["6", "7/task/9", "8", "5"].map(PathBuf::from));
    }
}
