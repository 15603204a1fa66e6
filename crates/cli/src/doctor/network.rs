//! Checks for sessions with other hosts: the server and its rights, the kernel's features, and the
//! programs that are attached now.
//!
//! A check that takes rights is left out without them. Not here: the processes that hold attached
//! programs (`attached`).

use super::attached::{self, Attached};
use super::item::Item;
use crate::args::ServerArgs;
use crate::client::Client;
use crate::sessions::PROC;
use rustix::fd::AsRawFd as _;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::CapabilitySet;
use sojourn_filter::{Failed, PACKAGE, features};
use sojourn_session::ProcessId;
use std::{fs, io};

/// The capabilities of a carrier, with their names.
const RIGHTS: [(CapabilitySet, &str); 3] = [
    (CapabilitySet::NET_ADMIN, "CAP_NET_ADMIN"),
    (CapabilitySet::NET_RAW, "CAP_NET_RAW"),
    (CapabilitySet::BPF, "CAP_BPF"),
];
/// The process name of the keeper, which holds sessions between two servers.
const KEEPER: &str = "sojourn-keeper";
/// The name of the carrier's thread or process.
const CARRIER: &str = "sojourn-carrier";
const STAYS: &str = "sessions with other hosts stay in the kernel";

/// The results of the checks.
pub(super) struct NetworkFindings {
    pub(super) items: Vec<Item>,
    /// Sojourn's programs in the kernel; `None` if this user may not read the list.
    pub(super) attached: Option<Vec<Attached>>,
}

/// Runs all checks.
pub(super) fn findings(server_args: &ServerArgs) -> NetworkFindings {
    let server = Client::connect(server_args)
        .ok()
        .map(|client| client.pid)
        .filter(|pid| *pid != ProcessId::NONE);
    let carrying = server.filter(|pid| is_asked_to_carry(*pid));
    let mut items = vec![carrier(server, carrying)];
    let own =
        rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |own| own.effective);
    let carries = carrying.map(|pid| carrier_of(pid).unwrap_or(pid));
    items.push(match carries.and_then(capabilities_of) {
        Some(held) => rights(held, "the server"),
        None => rights(own, "this user"),
    });
    items.push(filter());
    items.push(keeper(server, keepers(PROC)));
    // The list is read before the other checks, because these attach programs for a moment.
    let attached = attached::list();
    let is_tried = RIGHTS.iter().all(|(right, _)| own.contains(*right));
    items.extend(if is_tried { kernel() } else { vec![untried()] });
    items.push(attached_programs(attached.as_deref()));
    NetworkFindings { items, attached: attached.ok() }
}

/// Returns true if the server was started with `--network`.
fn is_asked_to_carry(pid: ProcessId) -> bool {
    let line = fs::read(format!("{PROC}/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0)
        .any(|word| word == b"--network" || word.starts_with(b"--network="))
}

/// Returns the process with the carrier of a server: a child process, or the server's own if the
/// carrier is a thread. `None` if there is no carrier: it ends at once without rights.
fn carrier_of(pid: ProcessId) -> Option<ProcessId> {
    let is_carrier =
        |comm: &std::path::Path| fs::read_to_string(comm).is_ok_and(|name| name.trim() == CARRIER);
    let threads = fs::read_dir(format!("{PROC}/{pid}/task")).into_iter().flatten().flatten();
    for thread in threads.map(|thread| thread.path()) {
        if is_carrier(&thread.join("comm")) {
            return Some(pid);
        }
        let children = fs::read_to_string(thread.join("children")).unwrap_or_default();
        let mut children = children.split_whitespace().filter_map(|child| child.parse().ok());
        let carries = |child: &ProcessId| is_carrier(format!("{PROC}/{child}/comm").as_ref());
        if let Some(child) = children.find(carries) {
            return Some(child);
        }
    }
    None
}

fn carrier(server: Option<ProcessId>, carrying: Option<ProcessId>) -> Item {
    const NAME: &str = "network-server";
    match (server, carrying) {
        (_, Some(pid)) => match carrier_of(pid) {
            Some(carrier) => {
                Item::ok(NAME, format!("process {carrier} carries sessions with other hosts"))
            }
            None => Item::limited(
                NAME,
                format!("process {pid} was started with --network and does not carry: {STAYS}"),
                "what is missing it has said on standard error, at its start",
            ),
        },
        (Some(pid), None) => Item {
            advice: "to have them carried as well, start it with --network".into(),
            ..Item::ok(NAME, format!("process {pid} serves this host only: {STAYS}"))
        },
        (None, None) => Item {
            advice: "to have them carried, as root: sojournd --system --network".into(),
            ..Item::ok(NAME, format!("no server answers: {STAYS}"))
        },
    }
}

/// Returns the effective capabilities of a process, from `/proc`.
fn capabilities_of(pid: ProcessId) -> Option<CapabilitySet> {
    effective(&fs::read_to_string(format!("{PROC}/{pid}/status")).ok()?)
}

fn effective(status: &str) -> Option<CapabilitySet> {
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(set.trim(), 16).ok().map(CapabilitySet::from_bits_retain)
}

fn rights(held: CapabilitySet, whose: &str) -> Item {
    const NAME: &str = "network-rights";
    let lacking = RIGHTS.iter().filter(|(right, _)| !held.contains(*right));
    let lacking: Vec<_> = lacking.map(|(_, name)| *name).collect();
    match lacking.is_empty() {
        true if !held.contains(CapabilitySet::SYS_ADMIN) => Item {
            advice: "with CAP_SYS_ADMIN it makes ports for programs without CAP_NET_RAW; theirs stay in the kernel".into(),
            ..Item::ok(NAME, format!("{whose} has CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF"))
        },
        true => Item::ok(
            NAME,
            format!("{whose} has CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF and, for ports, CAP_SYS_ADMIN"),
        ),
        false => Item::limited(
            NAME,
            format!("{whose} lacks {}: {STAYS}", lacking.join(", ")),
            "a server that carries them must have these: start it as root, or by systemd with AmbientCapabilities=",
        ),
    }
}

fn filter() -> Item {
    const NAME: &str = "packet-filter";
    match features::is_built() {
        true => Item::ok(NAME, "built in"),
        false => Item::limited(
            NAME,
            format!("not built in: {STAYS}"),
            format!("install the package {PACKAGE} and build Sojourn again"),
        ),
    }
}

/// Lists the keepers: processes that hold sessions for the next server.
fn keepers(proc: &str) -> Vec<ProcessId> {
    let processes = fs::read_dir(proc).into_iter().flatten().flatten();
    let is_one = |process: &fs::DirEntry| {
        fs::read_to_string(process.path().join("comm")).is_ok_and(|name| name.trim() == KEEPER)
    };
    let number = |process: fs::DirEntry| process.file_name().to_str()?.parse().ok();
    processes.filter(is_one).filter_map(number).collect()
}

fn keeper(server: Option<ProcessId>, keepers: Vec<ProcessId>) -> Item {
    const NAME: &str = "keeper";
    let numbers = keepers.iter().map(ProcessId::to_string).collect::<Vec<_>>().join(", ");
    match (keepers.is_empty(), server) {
        (true, _) => Item::ok(NAME, "none: no session with another host is away"),
        (false, Some(_)) => Item::ok(
            NAME,
            format!("process {numbers} holds what the next server needs, should this one die"),
        ),
        (false, None) => Item::limited(
            NAME,
            format!("process {numbers} holds sessions with other hosts, and no server answers"),
            "start the server again: what has to go home waits five seconds for it, and is then reset",
        ),
    }
}

fn untried() -> Item {
    Item {
        advice: "sudo sojourn doctor".into(),
        ..Item::ok("network-kernel", "not tried: eBPF, packet sockets and TCP_REPAIR take rights")
    }
}

/// Checks the kernel's features by their use.
fn kernel() -> Vec<Item> {
    let with = "use a kernel with";
    let fanout = features::fanout().map_err(|failed| failed.source);
    vec![
        tried("bpf", "eBPF programs can be loaded", features::programs(), || {
            format!("{with} CONFIG_BPF_SYSCALL; where a filter forbids bpf(2), allow it")
        }),
        tried(
            "bpf-links",
            "programs on interfaces go with their server",
            features::links(),
            || {
                "Linux 6.6 attaches programs by link; here they stay on an interface when a server is killed, until the next one".into()
            },
        ),
        tried("packet-fanout", "programs share one tap on an interface", fanout, || {
            format!("{with} CONFIG_PACKET and eBPF fanout (Linux 4.3)")
        }),
        tried(
            "sk_lookup",
            "sessions whose packets change their interface go home",
            features::unfiltered(),
            || "Linux 5.9 has it; without it sessions with other hosts stay in the kernel".into(),
        ),
        tried("af_xdp", "AF_XDP sockets can be made", features::xdp_sockets(), || {
            format!("{with} CONFIG_XDP_SOCKETS; packet sockets do as well")
        }),
        tried("tcp_repair", "TCP sessions can be taken out of their sockets", repair(), || {
            format!("every Linux can; what imitates one may not: {STAYS}")
        }),
    ]
}

fn tried(
    name: &'static str,
    found: &str,
    result: io::Result<()>,
    advice: impl FnOnce() -> String,
) -> Item {
    match result {
        Ok(()) => Item::ok(name, found),
        // A refusal by a seccomp filter or by missing rights tells nothing about the kernel's
        // features.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Item::limited(
            name,
            format!("forbidden here: {error}"),
            "it takes the rights of root outside of user namespaces (CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW), and a system call filter may forbid it: give the container both, or start the server outside",
        ),
        Err(error) => Item::limited(name, error.to_string(), advice()),
    }
}

/// Puts a socket that was never connected into repair mode.
fn repair() -> io::Result<()> {
    const TCP_REPAIR: i32 = 19;
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    let on: i32 = 1;
    // SAFETY: the kernel reads an int.
    let status = unsafe {
        let (value, len) = ((&raw const on).cast(), size_of::<i32>() as u32);
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, TCP_REPAIR, value, len)
    };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Checks that each of Sojourn's programs in the kernel is held by a process.
fn attached_programs(attached: Result<&[Attached], &Failed>) -> Item {
    const NAME: &str = "attached";
    let attached = match attached {
        Ok(attached) => attached,
        Err(error) => {
            let found = match error.source.kind() {
                io::ErrorKind::PermissionDenied => "to see it takes CAP_SYS_ADMIN".into(),
                _ => format!("cannot be seen: {error}"),
            };
            let advice = "sudo sojourn doctor".into();
            return Item { advice, ..Item::ok(NAME, found) };
        }
    };
    let left: Vec<_> = attached.iter().filter(|one| one.is_left_over).collect();
    match (left.first(), attached.len()) {
        (Some(one), _) => Item::limited(
            NAME,
            format!("{} programs are left over from a server that was killed", left.len()),
            format!(
                "the next server that carries sessions over the interface removes them, and so does: tc qdisc del dev {} clsact",
                if one.interface.is_empty() { "INTERFACE" } else { &one.interface }
            ),
        ),
        (None, 0) => Item::ok(NAME, "nothing"),
        (None, count) => Item::ok(NAME, format!("programs and ports: {count}, listed below")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::item::State;
    use super::*;

    #[test]
    fn rights_are_read_and_what_lacks_is_named() {
        let held = effective("Name:\tsojournd\nCapEff:\t0000008000003000\nCapBnd:\t0\n").unwrap();
        let item = rights(held, "it");
        assert_eq!(item.state, State::Ok);
        assert!(item.advice.contains("ports"), "{}", item.advice);
        let held = effective("CapEff:\t0000000000001000\n").unwrap();
        let item = rights(held, "it");
        assert_eq!(item.state, State::Limited);
        assert!(item.found.starts_with("it lacks CAP_NET_RAW, CAP_BPF:"), "{}", item.found);
        assert_eq!(effective("Name:\tx\n"), None);
    }

    #[test]
    fn what_is_forbidden_is_not_blamed_on_the_kernel() {
        let denied =
            tried("x", "", Err(io::ErrorKind::PermissionDenied.into()), || "Linux 6.6".into());
        assert!(denied.found.starts_with("forbidden") && !denied.advice.contains("Linux"));
        let old = tried("x", "", Err(io::ErrorKind::Unsupported.into()), || "Linux 6.6".into());
        assert_eq!((old.state, old.advice.as_str()), (State::Limited, "Linux 6.6"));
    }

    #[test]
    fn a_keeper_without_a_server_is_told() {
        let kept = |numbers: &[u32]| numbers.iter().copied().map(ProcessId).collect::<Vec<_>>();
        let server = ProcessId(1);
        let states =
            [keeper(None, vec![]), keeper(Some(server), kept(&[2])), keeper(None, kept(&[2, 3]))];
        assert_eq!(states.map(|item| item.state), [State::Ok, State::Ok, State::Limited]);
        assert!(keeper(None, kept(&[2, 3])).found.contains("2, 3"));
        assert!(keepers("/nowhere").is_empty());
    }

    #[test]
    fn a_server_is_known_by_how_it_was_started() {
        assert!(!is_asked_to_carry(ProcessId::own()));
        assert_eq!(carrier_of(ProcessId::own()), None);
        let states =
            [carrier(None, None), carrier(Some(ProcessId(1)), None)].map(|item| item.state);
        assert_eq!(states, [State::Ok; 2], "what was not asked for is not missing");
        assert_eq!(carrier(Some(ProcessId(1)), Some(ProcessId::own())).state, State::Limited);
    }
}
