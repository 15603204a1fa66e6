//! The number that a peer's process has here.
//!
//! A process has a number in each process name space that sees it (pid_namespaces(7)). The server
//! tells its own, by which a peer may be nobody here, or somebody else. The peer's process
//! descriptor tells the number here, as long as /proc is of this name space. Not here: the uses of
//! the number (`Session::peer_process_is_gone`).

use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use sojourn_session::ProcessId;
use sojourn_shm::pidfd::number_of;
use std::fs::read_to_string;

/// Returns the number of the process in this process's own name space; 0 if it has none, has ended,
/// or the number cannot be had.
pub(super) fn number_here(process: &OwnedFd) -> ProcessId {
    if let Some(number) = number_of(process.as_fd()) {
        return ProcessId(number);
    }
    if !sees_itself() {
        return ProcessId::NONE;
    }
    // The calling thread has a table of its own. A look there makes waitpid(2) of this process's
    // parent spin on a busy machine (`host::descriptors`), which is why the kernel is asked first.
    let path = format!("/proc/thread-self/fdinfo/{}", process.as_raw_fd());
    read_to_string(path).ok().and_then(|text| number_in(&text)).map_or(ProcessId::NONE, ProcessId)
}

/// Returns true if /proc has the numbers of this process's own name space.
fn sees_itself() -> bool {
    let (pid, tid) = (std::process::id(), rustix::thread::gettid().as_raw_nonzero());
    let seen = std::fs::read_link("/proc/thread-self");
    seen.is_ok_and(|seen| seen.as_os_str() == format!("{pid}/task/{tid}").as_str())
}

/// Reads the number in the description of a process descriptor. One that has ended has -1.
fn number_in(text: &str) -> Option<u32> {
    text.lines().find_map(|line| line.strip_prefix("Pid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

    #[test]
    fn processes_here_have_the_numbers_that_they_have() {
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        assert_eq!(number_here(&own), ProcessId::own());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        assert_eq!(number_here(&process), ProcessId::NONE, "it has ended");
        let no_process = std::fs::File::open("/dev/null").unwrap().into();
        assert_eq!(number_here(&no_process), ProcessId::NONE);
        assert_eq!(number_in("pos:\t0\nPid:\t0\n"), Some(0), "it is in another name space");
        assert_eq!(number_in("Pid:\t-1\n"), None);
    }
}
