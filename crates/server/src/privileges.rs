//! What the server may do after its start: no more than its work takes, whatever it was started
//! with.
//!
//! Capabilities belong to threads, so they are given up before the first other thread is made. See
//! capabilities(7). Not here: what a system service may be given at most
//! (`systemd/sojournd.service`).
//!
//! | for | it takes |
//! |---|---|
//! | everybody's sessions | `CAP_SYS_PTRACE`, `CAP_DAC_READ_SEARCH`: a look at the descriptors of all processes (`holders`) |
//! | sessions in other network name spaces | `CAP_NET_ADMIN` to find the name space, `CAP_SYS_ADMIN` to enter it (`identity`) |
//! | sessions with other hosts | `CAP_NET_ADMIN` (repair mode, filters on interfaces), `CAP_NET_RAW` (packet sockets, and raw ones), `CAP_BPF` (the filter's programs), `CAP_SYS_ADMIN` (a port's name space), `CAP_NET_BIND_SERVICE` (a session that comes home is bound again, to a port below 1024, too) |
//! | the same, in a user's proxy | `CAP_NET_ADMIN`, `CAP_SYS_ADMIN`, and nothing else |
//! | a socket in somebody else's directory | `CAP_DAC_OVERRIDE`: its name is removed at the end |
//!
//! `CAP_SYS_ADMIN` also lifts the limit on descriptors on their way in sockets, which a server of
//! many programs would reach.

use rustix::fs::stat;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::path::Path;

/// What a server does that takes capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'p> {
    /// It is root's, and looks at processes of every user: those may hold what root's programs
    /// have.
    pub is_roots: bool,
    /// It carries sessions with other hosts.
    pub network: bool,
    /// Its socket, where that has a name in the file system.
    pub socket: Option<&'p Path>,
}

impl Work<'_> {
    /// The capabilities that it takes.
    #[must_use]
    pub fn capabilities(&self) -> CapabilitySet {
        let mut taken = CapabilitySet::empty();
        if self.is_roots {
            taken |= CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
            taken |= CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
        }
        if self.network {
            taken |= CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
            taken |= CapabilitySet::BPF | CapabilitySet::SYS_ADMIN;
            taken |= CapabilitySet::NET_BIND_SERVICE;
        }
        if self.socket.is_some_and(is_elsewhere) {
            taken |= CapabilitySet::DAC_OVERRIDE;
        }
        taken
    }
}

/// Whether the socket is in a directory in which only another user may remove names.
fn is_elsewhere(socket: &Path) -> bool {
    const WRITABLE: u32 = 0o002;
    let found = socket.parent().map(stat);
    matches!(found, Some(Ok(found))
        if found.st_uid != geteuid().as_raw() && found.st_mode & WRITABLE == 0)
}

/// Gives up, for this thread and those that it makes, every capability that `work` does not take,
/// and for ever the chance to gain one by running a program.
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub fn keep_only(work: &Work<'_>) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let taken = work.capabilities();
    let held = capabilities(None)?;
    let looks = CapabilitySet::SYS_PTRACE;
    if taken.contains(looks) && !held.permitted.contains(looks) {
        // Without it, only who may do all that another process may looks into that process
        // (ptrace(2)): nothing can be spared.
        return Ok(());
    }
    keep(taken, held)
}

/// What a proxy does that takes capabilities: it asks who is at the other end of a connection in
/// another network name space.
const PROXYS: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN);

/// Gives up every capability that a proxy does not take: it has what programs send.
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub fn keep_only_proxys() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    keep(PROXYS, capabilities(None)?)
}

fn keep(taken: CapabilitySet, held: CapabilitySets) -> Result<(), Errno> {
    // Needs CAP_SETPCAP, so it comes first; whoever lacks it cannot gain anything any more either.
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !taken.contains(one) && remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
    // Kernels before 4.3 have no such set.
    let _ = clear_ambient_capability_set();
    let permitted = held.permitted & taken;
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: permitted, permitted, inheritable })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Work<'_> = Work { is_roots: false, network: false, socket: None };

    #[test]
    fn a_users_server_takes_nothing() {
        assert_eq!(PLAIN.capabilities(), CapabilitySet::empty());
    }

    #[test]
    fn only_a_server_with_sessions_of_other_hosts_takes_packets() {
        let packets = CapabilitySet::NET_RAW | CapabilitySet::BPF;
        for is_roots in [false, true] {
            let work = Work { is_roots, ..PLAIN };
            assert!(!work.capabilities().intersects(packets));
            assert!(Work { network: true, ..work }.capabilities().contains(packets));
        }
    }

    #[test]
    fn the_unit_allows_what_the_work_takes_and_no_more() {
        let unit = include_str!("../systemd/sojournd.service");
        let line = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
        let one =
            |name: &str| CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap()).unwrap();
        let allowed: CapabilitySet = line.unwrap().split_whitespace().map(one).collect();
        let work = Work { is_roots: true, network: true, socket: None };
        assert_eq!(allowed, work.capabilities());
    }

    #[test]
    fn a_directory_of_ones_own_takes_nothing() {
        let folder = std::env::temp_dir().join(format!("sojournd-rights-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        assert!(!is_elsewhere(&folder.join("server")));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&folder, Some(1), None).unwrap();
            assert!(is_elsewhere(&folder.join("server")));
        }
        std::fs::remove_dir(&folder).unwrap();
    }
}
