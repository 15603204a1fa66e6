//! The privileges of the server after its start: no more than its work needs, whatever it was
//! started with.
//!
//! Capabilities belong to threads, so they are given up before the first other thread is made. See
//! capabilities(7). Not here: the most that a system service may be given
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
//! A server of several processes (`apart`) shares these out: the prober has the first row, the
//! carrier the third, the front process nothing. The parent has all of them to give. Root's parent
//! also has `CAP_SETUID`, `CAP_SETGID`, `CAP_SETPCAP` and `CAP_KILL`, to confine and to end
//! children of another user.
//!
//! `CAP_SYS_ADMIN` also lifts the limit on descriptors on their way in sockets, which a server of
//! many programs would reach (unix(7), `ETOOMANYREFS`).

use rustix::fs::stat;
use rustix::io::Errno;
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::path::Path;

/// The parts of a server's work that need capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work<'p> {
    /// The server is root's, and looks at processes of every user: those may hold the ends of
    /// root's programs.
    pub is_roots: bool,
    /// The server carries sessions with other hosts.
    pub network: bool,
    /// The server's socket, if that has a name in the file system.
    pub socket: Option<&'p Path>,
}

impl Work<'_> {
    /// Returns the capabilities that the work needs.
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

/// Returns true if the socket is in a directory in which only another user may remove names.
fn is_elsewhere(socket: &Path) -> bool {
    const WRITABLE: u32 = 0o002;
    let found = socket.parent().map(stat);
    matches!(found, Some(Ok(found))
        if found.st_uid != geteuid().as_raw() && found.st_mode & WRITABLE == 0)
}

/// Gives up, for this thread and those that it makes, every capability that `work` does not need,
/// and for ever the chance to gain one by running a program (`PR_SET_NO_NEW_PRIVS`).
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub fn keep_only(work: &Work<'_>) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let taken = work.capabilities();
    let held = capabilities(None)?;
    let looks = CapabilitySet::SYS_PTRACE;
    if taken.contains(looks) && !held.permitted.contains(looks) {
        // Without CAP_SYS_PTRACE, a process may look into another one only if it has all
        // capabilities of that one (ptrace(2)): every capability that is given up would hide
        // processes from `holders`.
        return Ok(());
    }
    keep(taken, held)
}

/// The capabilities of a proxy: it asks for the peer of a connection in another network name space.
const PROXYS: CapabilitySet = CapabilitySet::NET_ADMIN.union(CapabilitySet::SYS_ADMIN);

/// Gives up every capability that a proxy does not need, because it has the descriptors that
/// programs send.
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub fn keep_only_proxys() -> Result<(), Errno> {
    set_no_new_privs(true)?;
    keep(PROXYS, capabilities(None)?)
}

/// The capabilities of a prober: it looks at the descriptors of all processes, and pins pipes of
/// all users.
const PROBERS: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

/// What root's parent needs to start, confine and end children of another user.
const ROOTS_PARENTS: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::KILL);

/// The user and group of the front process if root starts the server and there is no user
/// `sojourn`. The number is in a range that neither distributions nor systemd give out.
const FRONT_USER: u32 = 60_992;

/// Returns true if this process may look into the processes of every user.
#[must_use]
pub fn may_serve_everybody() -> bool {
    let looks = |held: CapabilitySets| held.permitted.contains(CapabilitySet::SYS_PTRACE);
    geteuid().is_root() || capabilities(None).is_ok_and(looks)
}

/// Gives up what no process of the server needs. What is left goes on to the processes that this
/// one starts, also if it is not root's (capabilities(7), "Ambient").
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub(crate) fn keep_for_others(work: &Work<'_>) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    let held = capabilities(None)?;
    if !held.permitted.contains(CapabilitySet::SYS_PTRACE) {
        // As in `keep_only`: the prober can then only look into processes that may do less.
        return Ok(());
    }
    if geteuid().is_root() {
        return keep(work.capabilities() | ROOTS_PARENTS, held);
    }
    keep(work.capabilities(), held)?;
    let given = held.permitted & work.capabilities();
    let sets = CapabilitySets { effective: given, permitted: given, inheritable: given };
    set_capabilities(None, sets)?;
    given.iter().try_for_each(|one| configure_capability_in_ambient_set(one, true))
}

/// Gives up everything that a prober does not need.
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub(crate) fn keep_only_probers() -> Result<(), Errno> {
    let held = capabilities(None)?;
    match held.permitted.contains(CapabilitySet::SYS_PTRACE) {
        true => keep(PROBERS, held),
        // As in `keep_only`.
        false => set_no_new_privs(true),
    }
}

/// Gives up everything that a carrier does not need whose keepers listen beside `socket`.
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub(crate) fn keep_only_carriers(socket: Option<&Path>) -> Result<(), Errno> {
    let work = Work { is_roots: false, network: true, socket };
    keep(work.capabilities(), capabilities(None)?)
}

/// Gives up every capability, and becomes a user of its own if this process is root's. Returns that
/// user; `None` if the process stays what it is, because it is not root's, or because this user
/// name space has no such user.
///
/// # Errors
/// The kernel's; giving up is always allowed.
pub(crate) fn become_front() -> Result<Option<Uid>, Errno> {
    set_no_new_privs(true)?;
    drop_bounds(CapabilitySet::empty());
    let user = if geteuid().is_root() { become_user(front_user()) } else { None };
    keep(CapabilitySet::empty(), capabilities(None)?)?;
    Ok(user)
}

/// A user and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UserIds {
    user: Uid,
    group: Gid,
}

/// Becomes that user; `None` if that is not possible.
fn become_user(UserIds { user, group }: UserIds) -> Option<Uid> {
    // In this order: the first two take rights that the third gives up. A process of a user name
    // space may not be allowed to drop groups, and then has none that matter outside.
    let _ = set_thread_groups(&[]);
    set_thread_res_gid(group, group, group).ok()?;
    set_thread_res_uid(user, user, user).ok()?;
    Some(user)
}

/// Returns the user and group of the front process: those of the user `sojourn`, if there is one.
fn front_user() -> UserIds {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let by_default = user_ids(FRONT_USER, FRONT_USER);
    named(&users, "sojourn").filter(|ids| !ids.user.is_root()).unwrap_or(by_default)
}

/// Finds user and group of that name in the text of passwd(5).
fn named(users: &str, name: &str) -> Option<UserIds> {
    let mut lines = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let line = lines.find(|line| line.first() == Some(&name))?;
    Some(user_ids(line.get(2)?.parse().ok()?, line.get(3)?.parse().ok()?))
}

fn user_ids(user: u32, group: u32) -> UserIds {
    UserIds { user: Uid::from_raw_unchecked(user), group: Gid::from_raw_unchecked(group) }
}

/// Dropping from the bounding set needs CAP_SETPCAP. A process that lacks it cannot gain anything
/// any more either.
fn drop_bounds(taken: CapabilitySet) {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        if !taken.contains(one) && remove_capability_from_bounding_set(one).is_err() {
            break;
        }
    }
}

fn keep(taken: CapabilitySet, held: CapabilitySets) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    // First, as it takes a capability that may be given up below.
    drop_bounds(taken);
    // Kernels before 4.3 have no ambient set.
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
        let one =
            |name: &str| CapabilitySet::from_name(name.strip_prefix("CAP_").unwrap()).unwrap();
        let work = Work { is_roots: true, network: true, socket: None };
        for name in ["CapabilityBoundingSet=", "AmbientCapabilities="] {
            let line = unit.lines().find_map(|line| line.strip_prefix(name));
            let allowed: CapabilitySet = line.unwrap().split_whitespace().map(one).collect();
            assert_eq!(allowed, work.capabilities(), "{name}");
        }
    }

    #[test]
    fn a_user_is_found_by_its_whole_name() {
        let users = "root:x:0:0::/root:/bin/sh\nsojourner:x:7:8::/:\nsojourn:x:101:102::/:\n";
        assert_eq!(named(users, "sojourn"), Some(user_ids(101, 102)));
        assert_eq!(named(users, "nobody"), None);
        assert_eq!(named("sojourn:x:many:1", "sojourn"), None);
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
