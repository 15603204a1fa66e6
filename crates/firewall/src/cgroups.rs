//! eBPF programs of control groups (`BPF_PROG_TYPE_CGROUP_SKB` and others): whether the control
//! group of a session's socket has any that see its packets or its events.
//!
//! systemd's `IPAddressDeny=` and network policies of containers are such programs. A socket
//! belongs to the control group in which it was made (`sk_cgrp_data`), whose number sock_diag(7)
//! tells; its programs and those of the groups above it are asked for by the group's folder. A
//! number without a folder counts as a group with programs. Not here: the folders (`folders`), the
//! programs themselves, which are not understood.

use crate::attributes::find;
use crate::bpf::{self, Attachment};
use crate::folders::{Folders, GroupId};
use crate::netlink::{Question, ask, dump};
use crate::session::{Family, Session};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::net::netlink;
use sojourn_wire::Protocol;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// Groups that are remembered; beyond that all are asked for anew.
const KNOWN_MAX: usize = 1024;
/// `BPF_CGROUP_INET_INGRESS`, `BPF_CGROUP_INET_EGRESS` and `BPF_CGROUP_SOCK_OPS`; of UDP also
/// `BPF_CGROUP_UDP4_SENDMSG`, `..6_SENDMSG`, `..4_RECVMSG` and `..6_RECVMSG`.
const OF_ALL: [u32; 3] = [0, 1, 3];
const OF_UDP: [u32; 4] = [14, 15, 19, 20];
/// `BPF_F_QUERY_EFFECTIVE`: with the programs of the groups above.
const EFFECTIVE: u32 = 1;
/// `SOCK_DIAG_BY_FAMILY` and `INET_DIAG_CGROUP_ID` (since Linux 5.9).
const BY_FAMILY: u16 = 20;
const CGROUP_ID: u16 = 21;
/// Length of `struct inet_diag_msg`.
const DIAG_LEN: usize = 72;

/// A control group's programs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    /// True if there are programs that see packets or events of all sockets; and if there are some
    /// that see those of UDP sockets alone.
    concerns: [bool; 2],
}

/// The control groups of sessions that were asked about.
#[derive(Debug)]
pub(crate) struct ControlGroups {
    /// The folder of the hierarchy; `None` if there is none, so that nobody can attach a program.
    mount: Option<PathBuf>,
    known: HashMap<GroupId, Group>,
    folders: Folders,
}

impl ControlGroups {
    pub(crate) fn new() -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self {
            mount: mounts.lines().find_map(hierarchy_of),
            known: HashMap::new(),
            folders: Folders::default(),
        }
    }

    /// Returns the group whose programs could say something about the session's packets.
    pub(crate) fn concerning(&mut self, session: &Session) -> Option<String> {
        let mount = self.mount.clone()?;
        let ids = match groups_of(session) {
            Ok(ids) => ids,
            // The socket is gone.
            Err(Errno::NOENT) => return None,
            Err(error) => return Some(format!("its control group, which is not told: {error}")),
        };
        let udp = session.protocol == Protocol::Udp;
        ids.into_iter().find_map(|id| {
            let Some(group) = self.group(&mount, id) else {
                return Some(format!("control group {}, which has no folder here", id.0));
            };
            let name = group.folder.strip_prefix(&mount).unwrap_or(&group.folder).display();
            let [any, of_udp] = group.concerns;
            (any || udp && of_udp).then(|| format!("eBPF programs of control group /{name}"))
        })
    }

    /// Asks again for the programs of all groups that are known. Returns true if they have changed.
    pub(crate) fn resurvey(&mut self) -> bool {
        let mut has_changed = false;
        for (id, group) in &mut self.known {
            // The programs of a group that was removed still see its sockets' packets.
            let Some(now) = programs(&group.folder, *id) else { continue };
            has_changed |= now != group.concerns;
            group.concerns = now;
        }
        has_changed
    }

    fn group(&mut self, mount: &Path, id: GroupId) -> Option<&Group> {
        if !self.known.contains_key(&id) {
            if self.known.len() >= KNOWN_MAX {
                self.known.clear();
            }
            let folder = self.folders.find(mount, id)?;
            let concerns = programs(&folder, id)?;
            self.known.insert(id, Group { folder, concerns });
        }
        self.known.get(&id)
    }
}

/// Returns the mount point in a line of `/proc/self/mountinfo` (proc(5)), if it is the hierarchy of
/// version 2.
fn hierarchy_of(line: &str) -> Option<PathBuf> {
    let (before, after) = line.split_once(" - ")?;
    after.starts_with("cgroup2 ").then_some(())?;
    before.split(' ').nth(4).map(PathBuf::from)
}

/// Asks for the programs of the group at `folder`; `None` if another group is there now.
fn programs(folder: &Path, id: GroupId) -> Option<[bool; 2]> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let group = openat(CWD, folder, flags, Mode::empty()).ok()?;
    (rustix::fs::fstat(&group).ok()?.st_ino == id.0).then_some(())?;
    let any = |kinds: &[u32]| kinds.iter().any(|kind| has_programs(&group, *kind));
    Some([any(&OF_ALL), any(&OF_UDP)])
}

/// Returns true if programs of that kind see the packets or events of the group's sockets, or if
/// the kernel does not tell.
fn has_programs(group: &OwnedFd, kind: u32) -> bool {
    let target = group.as_raw_fd().cast_unsigned();
    match bpf::programs_at(Attachment { target, kind, flags: EFFECTIVE }, &mut []) {
        Ok(count) => count > 0,
        // The kernel has no such programs, or none at all.
        Err(error) => !matches!(error, Errno::INVAL | Errno::NOSYS),
    }
}

/// Returns the control groups of the sockets that may be the session's: one of TCP; of UDP several
/// may have its address.
fn groups_of(session: &Session) -> Result<Vec<GroupId>, Errno> {
    let body = request(session);
    let question = Question { protocol: Some(netlink::SOCK_DIAG), kind: BY_FAMILY, body: &body };
    if session.protocol == Protocol::Tcp {
        let mut all = Vec::new();
        ask(question, |message| all.extend(group_in(message.body)))?;
        return Ok(all);
    }
    let mut all = dump(&[question], Vec::new, |all, message| {
        if is_session_s(message.body, session) {
            all.extend(group_in(message.body));
        }
    })?;
    all.sort_unstable_by_key(|id: &GroupId| id.0);
    all.dedup();
    Ok(all)
}

/// Makes the `struct inet_diag_req_v2` of a session.
fn request(session: &Session) -> [u8; 56] {
    const ANY_COOKIE: [u8; 8] = [0xff; 8];
    let mut body = [0; 56];
    body[0] = match session.family() {
        Family::V4 => libc::AF_INET as u8,
        Family::V6 => libc::AF_INET6 as u8,
    };
    body[1] = session.number();
    body[4..8].fill(0xff);
    body[48..].copy_from_slice(&ANY_COOKIE);
    // Of a dump all sockets are told.
    if let (Protocol::Tcp, Some(remote)) = (session.protocol, session.remote) {
        for (end, port, address) in [(session.local, 8, 12), (remote, 10, 28)] {
            body[port..port + 2].copy_from_slice(&end.port().to_be_bytes());
            match end.ip().to_canonical() {
                IpAddr::V4(ip) => body[address..address + 4].copy_from_slice(&ip.octets()),
                IpAddr::V6(ip) => body[address..address + 16].copy_from_slice(&ip.octets()),
            }
        }
    }
    body
}

/// Returns true if a told socket (`struct inet_diag_msg`) may be the session's.
fn is_session_s(told: &[u8], session: &Session) -> bool {
    let port = |at: usize| {
        told.get(at..at + 2).and_then(|port| port.try_into().ok()).map(u16::from_be_bytes)
    };
    let is_end = |end: SocketAddr, at: usize| port(at) == Some(end.port());
    let is_remote = session.remote.is_none_or(|remote| is_end(remote, 6) || port(6) == Some(0));
    is_end(session.local, 4) && is_remote
}

/// Returns the control group in a told socket. A kernel that does not tell has none for it.
fn group_in(told: &[u8]) -> Option<GroupId> {
    let id = find(told.get(DIAG_LEN..)?, CGROUP_ID)?;
    id.try_into().ok().map(|id| GroupId(u64::from_ne_bytes(id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_found_in_the_list_of_mounts() {
        let line = "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(hierarchy_of(line), Some(PathBuf::from("/sys/fs/cgroup")));
        assert_eq!(hierarchy_of("35 24 0:30 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu"), None);
        assert_eq!(hierarchy_of("- cgroup2 "), None);
    }

    #[test]
    fn the_group_of_a_socket_has_a_folder() {
        let groups = ControlGroups::new();
        let Some(mount) = groups.mount else { return };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let local = listener.local_addr().unwrap();
        let caller = std::net::TcpStream::connect(local).unwrap();
        let session = |protocol, local, remote| Session {
            protocol,
            local,
            remote,
            interface: None,
            is_established: true,
        };
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap().to_owned();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for session in [
            session(Protocol::Tcp, caller.local_addr().unwrap(), Some(local)),
            session(Protocol::Udp, socket.local_addr().unwrap(), None),
        ] {
            let ids = groups_of(&session).unwrap();
            // A kernel before 5.9 does not tell.
            let Some(id) = ids.first() else { return };
            let folder = Folders::default().find(&mount, *id);
            assert_eq!(folder, Some(mount.join(&own)), "{session:?}");
        }
        drop(listener);
        let gone = session(Protocol::Tcp, local, "127.0.0.1:1".parse().ok());
        assert_eq!(groups_of(&gone), Err(Errno::NOENT));
    }
}
