//! Hosts for tests: threads in network name spaces of their own, which end with the threads. Not
//! here: the tests.
#![allow(unsafe_code, reason = "leaving the network name space")]
#![allow(dead_code, reason = "not every test needs everything")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Task = Box<dyn FnOnce() + Send>;

/// A host: a thread in a network name space of its own.
pub(crate) struct Host {
    tasks: Option<mpsc::Sender<Task>>,
    thread: Option<JoinHandle<()>>,
    /// The thread's number, by which `ip` finds the name space.
    pub(crate) tid: u32,
}

impl Host {
    /// Makes a host whose loopback interface is up. Returns `None`, and prints the reason, without
    /// the rights to make one.
    pub(crate) fn new() -> Option<Self> {
        use rustix::thread::CapabilitySet;
        let needed = CapabilitySet::SYS_ADMIN
            | CapabilitySet::NET_ADMIN
            | CapabilitySet::NET_RAW
            | CapabilitySet::BPF;
        if !rustix::thread::capabilities(None).unwrap().effective.contains(needed) {
            eprintln!("skipped: needs CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF");
            return None;
        }
        let (tasks, queue) = mpsc::channel::<Task>();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: only the network name space of this thread changes, which no memory depends
            // on.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            tell.send((result == 0).then(|| rustix::thread::gettid().as_raw_nonzero().get()))
                .unwrap();
            for task in queue {
                task();
            }
        });
        let Some(tid) = told.recv().unwrap() else {
            eprintln!("skipped: needs CAP_SYS_ADMIN, for network name spaces");
            return None;
        };
        let host = Self { tasks: Some(tasks), thread: Some(thread), tid: tid as u32 };
        host.ip("link set lo up");
        Some(host)
    }

    /// Runs a task in the host's thread, and waits for its end.
    pub(crate) fn run<T: Send + 'static>(&self, task: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let task = Box::new(move || tell.send(task()).unwrap());
        self.tasks.as_ref().unwrap().send(task).unwrap();
        told.recv().expect("the task panicked")
    }

    /// Runs `ip` on the host.
    pub(crate) fn ip(&self, arguments: &str) {
        let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        self.run(move || {
            let output = Command::new("ip").args(&words).output().expect("ip");
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "ip {}: {error}", words.join(" "));
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tasks = None;
        let result = self.thread.take().unwrap().join();
        assert!(result.is_ok() || std::thread::panicking());
    }
}

/// The link addresses of the first and the second host.
pub(crate) const MACS: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

/// Makes two hosts with a link: `eth0` on both, 10.0.0.1 and fd00::1 on the first, .2 on the
/// second.
pub(crate) fn two_hosts() -> Option<(Host, Host)> {
    let (one, two) = (Host::new()?, Host::new()?);
    one.ip(&format!(
        "link add eth0 address {} type veth peer name eth0 address {} netns {}",
        MACS[0], MACS[1], two.tid
    ));
    for (host, number, other) in [(&one, 1, 2), (&two, 2, 1)] {
        host.run(|| std::fs::write("/proc/sys/net/ipv6/conf/eth0/accept_dad", "0").unwrap());
        host.ip(&format!("addr add 10.0.0.{number}/24 dev eth0"));
        host.ip(&format!("addr add fd00::{number}/64 dev eth0 nodad"));
        host.ip("link set eth0 up");
        let mac = MACS[other - 1];
        host.ip(&format!("neigh add 10.0.0.{other} lladdr {mac} dev eth0"));
        host.ip(&format!("neigh add fd00::{other} lladdr {mac} dev eth0"));
    }
    Some((one, two))
}

/// Repeats `ask` until it returns an answer; panics after ten seconds.
pub(crate) fn wait_for<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < end, "no {what} within ten seconds");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A small generator whose numbers are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns the next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() >> 16) as usize % end
    }
}

/// Lists the attached objects of filters in the calling thread's name space. Programs are left out,
/// because they belong to no name space, and other tests have some too.
pub(crate) fn attached() -> Vec<String> {
    use sojourn_filter::ObjectKind;
    let all = sojourn_filter::list().unwrap().into_iter();
    let here = all.filter(|one| one.what != ObjectKind::Program);
    here.map(|one| format!("{:?} {} {}", one.what, one.name, one.interface)).collect()
}

/// Attaches a filter to `eth0`. Returns `None`, and prints the reason, if the filter was not built.
pub(crate) fn filter(options: sojourn_filter::Options) -> Option<sojourn_filter::Filter> {
    match sojourn_filter::Filter::attach("eth0", options) {
        Err(sojourn_filter::AttachError::Unavailable { package }) => {
            eprintln!("skipped: built without {package}");
            None
        }
        filter => Some(filter.unwrap()),
    }
}

/// Returns the next frame of a packet socket, if there is one.
pub(crate) fn receive(socket: &rustix::fd::OwnedFd) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 1 << 16];
    let flags = rustix::net::RecvFlags::DONTWAIT;
    let (len, _) = rustix::net::recv(socket, &mut buffer[..], flags).ok()?;
    buffer.truncate(len);
    Some(buffer)
}

/// Returns true if a frame contains these bytes.
pub(crate) fn has(frame: &[u8], bytes: &[u8]) -> bool {
    frame.windows(bytes.len()).any(|window| window == bytes)
}

/// Waits for a frame that contains these bytes.
pub(crate) fn receive_with(socket: &rustix::fd::OwnedFd, bytes: &[u8]) -> Vec<u8> {
    let what = format!("frame with {}", String::from_utf8_lossy(bytes));
    wait_for(&what, || receive(socket).filter(|frame| has(frame, bytes)))
}

/// Sends a frame on an interface of the calling thread's name space.
pub(crate) fn send_frame(interface: &str, frame: &[u8]) {
    let (socket, address) = packet_socket(interface);
    // SAFETY: the frame and the address have the lengths that the call is told.
    let result = unsafe {
        let (at, len) = ((&raw const address).cast(), size_of_val(&address) as u32);
        libc::sendto(
            rustix::fd::AsRawFd::as_raw_fd(&socket),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            at,
            len,
        )
    };
    assert!(result >= 0);
}

/// Opens a socket that receives everything that passes an interface of the calling thread's name
/// space.
pub(crate) fn tap(interface: &str) -> rustix::fd::OwnedFd {
    let (socket, mut address) = packet_socket(interface);
    address.sll_protocol = 3_u16.to_be();
    // SAFETY: the kernel reads an address of that length.
    let result = unsafe {
        let (at, len) = ((&raw const address).cast(), size_of_val(&address) as u32);
        libc::bind(rustix::fd::AsRawFd::as_raw_fd(&socket), at, len)
    };
    assert_eq!(result, 0);
    socket
}

/// Makes a packet socket that receives nothing, and the address of an interface, for IPv4.
fn packet_socket(interface: &str) -> (rustix::fd::OwnedFd, libc::sockaddr_ll) {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice, socket_with};
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None).unwrap();
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: 0x0800_u16.to_be(),
        sll_ifindex: netdevice::name_to_index(&socket, interface).unwrap() as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 6,
        sll_addr: [0; 8],
    };
    (socket, address)
}
