//! The holders of a socket or a pipe, from `/proc`: all processes that this user may inspect, under
//! Sojourn or not.
//!
//! Not here: sessions of programs under Sojourn (`sessions`).

use crate::living_thread;
use sojourn_session::{Inode, ProcessId};
use std::fs;
use std::path::Path;

/// Returns the processes that have a descriptor of this inode.
pub(super) fn of(inode: Inode) -> Vec<ProcessId> {
    let names = [format!("socket:[{inode}]"), format!("pipe:[{inode}]")];
    let is_it = |link: &Path| names.iter().any(|name| link == Path::new(name));
    let holds = |pid: &ProcessId| {
        let Ok(list) = fs::read_dir(living_thread::folder(Path::new("/proc"), *pid).join("fd"))
        else {
            return false;
        };
        list.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|link| is_it(&link)))
    };
    let Ok(list) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(holds).collect()
}

/// Returns true if there is such a process, and it has not ended.
pub(super) fn is_alive(pid: ProcessId) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| lives(&text))
}

/// Returns true if `/proc/PID/stat` is that of a process with a thread that has not ended.
fn lives(stat: &str) -> bool {
    // The fields are behind the program's name, which may have any characters: first the state,
    // which is the first thread's, and as the eighteenth the number of threads.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let threads = fields.split(' ').nth(17).and_then(|count| count.parse().ok()).unwrap_or(1);
    !fields.starts_with(['Z', 'X']) || threads > 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    #[test]
    fn this_process_holds_its_pipe_and_nobody_an_inode_that_is_none() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", reader.as_raw_fd())).unwrap();
        let text = link.to_str().unwrap().to_owned();
        let inode =
            text.trim_start_matches("pipe:[").trim_end_matches(']').parse().map(Inode).unwrap();
        assert!(of(inode).contains(&ProcessId::own()));
        assert!(of(Inode(u64::MAX)).is_empty());
    }

    #[test]
    fn a_process_lives_as_long_as_any_of_its_threads() {
        let stat = |state, threads| {
            format!("7 (a) b) {state} 1 7 7 0 -1 4 0 0 0 0 0 0 0 0 20 0 {threads} 0 1 0 0")
        };
        let all = [("S", 1), ("Z", 1), ("Z", 2), ("X", 1)].map(|(state, of)| stat(state, of));
        assert_eq!(all.each_ref().map(|stat| lives(stat)), [true, false, true, false]);
        assert!(!lives("7 (a"));
    }

    #[test]
    fn a_process_that_is_not_there_is_not_alive() {
        assert!(is_alive(ProcessId::own()));
        assert!(!is_alive(ProcessId(u32::MAX)));
    }
}
