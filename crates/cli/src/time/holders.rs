//! The holders of a socket or a pipe, from `/proc`: all processes that this user may inspect, under
//! Sojourn or not.
//!
//! Not here: sessions of programs under Sojourn (`sessions`).

use sojourn_session::Inode;
use std::fs;
use std::path::Path;

/// Returns the processes that have a descriptor of this inode.
pub(super) fn of(inode: Inode) -> Vec<u32> {
    let names = [format!("socket:[{inode}]"), format!("pipe:[{inode}]")];
    let is_it = |link: &Path| names.iter().any(|name| link == Path::new(name));
    let holds = |pid: &u32| {
        let Ok(list) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        list.flatten().any(|entry| fs::read_link(entry.path()).is_ok_and(|link| is_it(&link)))
    };
    let Ok(list) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = list.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(holds).collect()
}

/// Returns true if there is such a process, and it has not ended.
pub(super) fn is_alive(pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The state is behind the program's name, which may have any characters.
    let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !"ZX".contains(state))
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
        assert!(of(inode).contains(&std::process::id()));
        assert!(of(Inode(u64::MAX)).is_empty());
    }

    #[test]
    fn a_process_that_is_not_there_is_not_alive() {
        assert!(is_alive(std::process::id()));
        assert!(!is_alive(u32::MAX));
    }
}
