//! The processes of clients: each is the one that connected, whatever its number means by now.
//!
//! Not here: rights (`registry`), the ends of a process (`holders`).

use super::{Sojournd, fault};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Fault;
use sojourn_session::{FAULT_ARGUMENT, FAULT_RESOURCES};
use std::collections::HashMap;
use std::sync::{MutexGuard, PoisonError};

impl Sojournd {
    pub(super) fn lock_peers(&self) -> MutexGuard<'_, HashMap<ClientId, Result<OwnedFd, Errno>>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client has connected, as that process.
    pub(crate) fn came(&self, client: ClientId, process: Result<OwnedFd, Errno>) {
        self.lock_peers().insert(client, process);
    }

    /// Returns the process that says hello. The process that connected may have handed the
    /// connection on and ended, and its number be another's by now. So the kernel is asked for the
    /// process that made the connection (`SO_PEERPIDFD`), and that process must be there. While its
    /// descriptor says so the number is its own (`holders` looks by the number, and `counted`
    /// checks it afterwards).
    pub(super) fn process(&self, client: ClientId, pid: Pid) -> Result<OwnedFd, Fault> {
        let process = match self.lock_peers().remove(&client) {
            Some(Ok(process)) => process,
            // Before Linux 6.5 the kernel cannot answer. The process that connected a moment ago is
            // taken to be there. If its number is another's by now, the look at that other one's
            // descriptors does not find the offered end.
            None | Some(Err(Errno::NOPROTOOPT)) => {
                pidfd_open(pid, PidfdFlags::empty()).map_err(|_| fault(FAULT_RESOURCES))?
            }
            Some(Err(_)) => return Err(fault(FAULT_ARGUMENT)),
        };
        if has_ended(&process) { Err(fault(FAULT_ARGUMENT)) } else { Ok(process) }
    }
}

/// Returns true if the process of a descriptor has ended (pidfd_open(2): it is readable then).
pub(super) fn has_ended(process: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut set = [PollFd::new(&process, PollFlags::IN)];
    poll(&mut set, Some(&now)) != Ok(0)
}
