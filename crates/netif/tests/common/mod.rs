//! Two hosts and a link between them, for tests: network namespaces with a veth pair. Drop removes
//! them.
//!
//! Needs root and `ip`; without them [`Lab::new`] prints the reason and the test is skipped. The
//! near host has no addresses, so its kernel answers nothing: the test answers instead. Names of
//! namespaces begin with `sj-netif-`.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(unsafe_code, reason = "system calls that nothing else has a function for")]

pub(crate) mod frames;
pub(crate) mod tun;
pub(crate) mod xsk;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{
    CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getcpu, sched_setaffinity,
};
use rustix::time::Timespec;
use sojourn_netif::{
    Interface, Message, Outgoing, PacketOptions, Received, Ring, WithXdp, XdpSender,
};
use sojourn_wire::MacAddress;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longest wait of any test.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// The near host's address. Its kernel does not have it, so the test answers for it.
pub(crate) const NEAR: [u8; 4] = [10, 77, 0, 1];
/// The far host's address, which its kernel has.
pub(crate) const FAR: [u8; 4] = [10, 77, 0, 2];
/// The names of the interfaces.
pub(crate) const NEAR_DEVICE: &str = "near";
pub(crate) const FAR_DEVICE: &str = "far";

/// Two hosts with a link.
#[derive(Debug)]
pub(crate) struct Lab {
    near: String,
    far: String,
}

impl Lab {
    /// Makes a lab for a test of one thread, which is tied to its processor: frames that one
    /// processor sends over veth stay in order, those of two processors may not. Returns `None`,
    /// and prints the reason, where namespaces cannot be made.
    pub(crate) fn new() -> Option<Self> {
        let mut here = CpuSet::new();
        here.set(sched_getcpu());
        // Where pinning is not allowed the order is not certain, which harms nothing else.
        let _ = sched_setaffinity(None, &here);
        Self::for_several()
    }

    /// Makes a lab for several threads on processors of their own. Returns `None`, and prints the
    /// reason, where namespaces cannot be made.
    pub(crate) fn for_several() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        use rustix::thread::CapabilitySet;
        let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW;
        if !rustix::thread::capabilities(None).unwrap().effective.contains(needed) {
            eprintln!("skipped: needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW");
            return None;
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("sj-netif-{}-{number}-{end}", std::process::id());
        let lab = Self { near: name("near"), far: name("far") };
        for host in [&lab.near, &lab.far] {
            if !is_done(&format!("netns add {host}")) {
                eprintln!("skipped: network namespaces cannot be made here");
                return None;
            }
        }
        for host in [&lab.near, &lab.far] {
            // With IPv6 the kernels would send frames of their own (router and neighbour
            // discovery).
            in_namespace(host, || {
                std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1").unwrap();
            });
        }
        let Self { near, far } = &lab;
        ip(&format!(
            "link add {NEAR_DEVICE} netns {near} type veth peer name {FAR_DEVICE} netns {far}"
        ));
        ip(&format!("-n {near} link set {NEAR_DEVICE} up"));
        ip(&format!("-n {far} addr add 10.77.0.2/24 dev {FAR_DEVICE}"));
        ip(&format!("-n {far} link set {FAR_DEVICE} up"));
        lab.settle();
        Some(lab)
    }

    /// Waits until the link carries frames. It begins to some time after both interfaces are up,
    /// and frames sent before are lost without an error.
    fn settle(&self) {
        let options = PacketOptions::default();
        let mut near = self.near(|| Message::open(NEAR_DEVICE, &options).unwrap());
        let mut far = self.far(|| Message::open(FAR_DEVICE, &options).unwrap());
        until_it_carries(&mut near, &mut far);
        until_it_carries(&mut far, &mut near);
    }

    /// Runs `ip` for the near host.
    pub(crate) fn near_ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.near));
    }

    /// Runs `ip` for the far host.
    pub(crate) fn far_ip(&self, arguments: &str) {
        ip(&format!("-n {} {arguments}", self.far));
    }

    /// Runs `action` on the near host.
    pub(crate) fn near<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.near, action)
    }

    /// Runs `action` on the far host.
    pub(crate) fn far<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        in_namespace(&self.far, action)
    }

    /// Gives the far host's kernel the near link address, so that it sends no ARP requests.
    pub(crate) fn introduce(&self, near: MacAddress) {
        self.far_ip(&format!("neigh replace 10.77.0.1 lladdr {near} dev {FAR_DEVICE}"));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for host in [&self.near, &self.far] {
            // The interfaces go with their namespace.
            is_done(&format!("netns del {host}"));
        }
    }
}

/// Runs `ip`; panics if it fails.
fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {said}");
}

fn is_done(arguments: &str) -> bool {
    let output = Command::new("ip").args(arguments.split(' ')).output();
    output.is_ok_and(|output| output.status.success())
}

/// Runs `action` on a thread in the network namespace of this name.
fn in_namespace<T: Send>(name: &str, action: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{name}")).unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(file.as_fd(), kind).unwrap();
            action()
        });
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Sleeps until the interface is readable, at most a tenth of a second. Returns `false` after
/// `deadline`.
pub(crate) fn wait(interface: &dyn Interface, deadline: Instant) -> bool {
    if Instant::now() > deadline {
        return false;
    }
    if let Some(fd) = interface.wait_fd() {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let limit = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut fds, Some(&limit)).unwrap();
    }
    true
}

/// Returns true if the interface's descriptor shows one of `flags` now.
pub(crate) fn shows(interface: &dyn Interface, flags: PollFlags) -> bool {
    let fd = interface.wait_fd().unwrap();
    let mut fds = [PollFd::new(&fd, flags)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    fds[0].revents().intersects(flags)
}

/// Receives until `is_enough` returns true; panics after `LIMIT`.
pub(crate) fn receive_until(
    interface: &mut dyn Interface,
    what: &str,
    mut is_enough: impl FnMut(Received<'_>) -> bool,
) {
    let deadline = Instant::now() + LIMIT;
    let mut is_over = false;
    loop {
        interface.receive(64, &mut |received| is_over |= is_enough(received)).unwrap();
        if is_over {
            return;
        }
        assert!(wait(interface, deadline), "{what}: not within {LIMIT:?}");
    }
}

/// Sends frames until one arrives, and receives the last one: then none is left in flight.
pub(crate) fn until_it_carries(source: &mut dyn Interface, target: &mut dyn Interface) {
    let deadline = Instant::now() + LIMIT;
    for mark in 0.. {
        let frame = frames::probe(source.properties().link, 100, mark);
        frames::send_now(source, &Outgoing::plain(&frame)).unwrap();
        assert!(wait(target, deadline), "the link does not carry");
        let (mut any, mut has_arrived) = (false, false);
        let mut look = |received: Received<'_>| {
            any = true;
            has_arrived |= received.frame == frame;
        };
        target.receive(64, &mut look).unwrap();
        if any {
            if !has_arrived {
                // Another process may hand frames over, one after another.
                receive_until(target, "the last frame", |received| received.frame == frame);
            }
            break;
        }
    }
}

/// Gives a ring an AF_XDP socket for its short frames. The thread must be on the ring's host.
pub(crate) fn with_xdp(ring: Ring) -> WithXdp<Ring> {
    let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
    let sender = XdpSender::open(socket, ring.properties().index).unwrap();
    WithXdp::new(ring, sender)
}

/// Options of sockets that watch: they also see the frames that the host sends.
pub(crate) const WATCHING: PacketOptions = PacketOptions {
    vnet: true,
    ignore_outgoing: false,
    qdisc_bypass: false,
    timestamps: false,
    receive_buffer: Some(32 << 20),
    send_buffer: None,
};
