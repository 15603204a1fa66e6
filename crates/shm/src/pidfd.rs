//! What a process descriptor tells of its process (pidfd_open(2)).
//!
//! Not here: the same by `/proc/self/fdinfo`, which kernels before 6.13 need.

use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// The answer to [`PIDFD_GET_INFO`], in its first version (`struct pidfd_info`, `linux/pidfd.h`).
#[repr(C)]
#[derive(Debug, Default)]
struct PidfdInfo {
    /// What is asked for, then what was answered: flags like [`INFO_PID`].
    mask: u64,
    cgroup: u64,
    /// The process's number in the caller's process name space.
    pid: u32,
    /// Numbers of processes and users, and the exit code.
    others: [u32; 11],
}

const INFO_PID: u64 = 1;
const PIDFD_GET_INFO: Opcode = opcode::read_write::<PidfdInfo>(0xFF, 11);

/// Returns the number that the process has in the caller's process name space; 0 if it has none
/// there, or has ended. `None` if the kernel does not answer that: it is older than 6.13, or this
/// is no process descriptor.
#[must_use]
pub fn number_of(process: BorrowedFd<'_>) -> Option<u32> {
    let mut info = PidfdInfo { mask: INFO_PID, ..PidfdInfo::default() };
    // SAFETY: the request reads and writes this structure, whose size is part of its number.
    let ask = unsafe { Updater::<PIDFD_GET_INFO, PidfdInfo>::new(&mut info) };
    // SAFETY: a descriptor of another kind refuses the request, which changes nothing.
    match unsafe { ioctl(process, ask) } {
        Ok(()) if info.mask & INFO_PID != 0 => Some(info.pid),
        Err(Errno::SRCH) => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use rustix::process::{Pid, PidfdFlags, getpid, pidfd_open};

    #[test]
    fn a_process_is_told_while_it_is_there() {
        assert_eq!(size_of::<PidfdInfo>(), 64, "the request's number has the first version's size");
        let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
        let Some(number) = number_of(own.as_fd()) else { return };
        assert_eq!(number, std::process::id());
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        assert_eq!(number_of(process.as_fd()), Some(0), "it has ended");
    }

    #[test]
    fn another_file_tells_nothing() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(number_of(file.as_fd()), None);
    }
}
