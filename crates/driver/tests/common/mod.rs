//! Two hosts with a link, a driver on one of them, and frames that nobody else sends.
#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sojourn_driver::{Address, DriverInterface, Wait};
use sojourn_lab::net::{End, Host, Link, is_possible};
use sojourn_netif::{Interface, Message, Outgoing, PacketOptions};
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The longest wait of any test.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

/// Two hosts, and the far one's end of the link.
pub(crate) struct World {
    pub(crate) link: Link,
    pub(crate) far: Message,
    _hosts: [Host; 2],
}

impl World {
    /// Returns `None`, and says so, where hosts cannot be made.
    pub(crate) fn new() -> Option<Self> {
        if !is_possible() {
            eprintln!("skipped: hosts cannot be made here");
            return None;
        }
        let hosts = [Host::new().unwrap(), Host::new().unwrap()];
        let link = Link::direct(&hosts[0], &hosts[1], 1500).unwrap();
        let name = link.interface().to_owned();
        let open = || Message::open(&name, &PacketOptions::default()).unwrap();
        let [mut near, mut far] = hosts.each_ref().map(|host| host.enter(open).unwrap());
        settle(&mut near, &mut far);
        settle(&mut far, &mut near);
        Some(Self { link, far, _hosts: hosts })
    }

    /// Sends a frame from the far host.
    pub(crate) fn send(&mut self, mark: u8) {
        self.far.send(&Outgoing::plain(&frame(mark))).unwrap();
    }

    /// Sends a frame through the driver, and sees it on the far host.
    pub(crate) fn sees(&mut self, near: &mut DriverInterface, mark: u8) {
        near.send(&Outgoing::plain(&frame(mark))).unwrap();
        receive(&mut self.far, mark);
    }
}

/// Waits until the link carries frames: those that are sent before are lost without an error.
fn settle(source: &mut Message, target: &mut Message) {
    let wanted = frame(0xff);
    eventually("the link carries frames", || {
        source.send(&Outgoing::plain(&wanted)).unwrap();
        let mut is_there = false;
        target.receive(64, &mut |received| is_there |= received.frame == wanted).unwrap();
        is_there
    });
}

/// A driver's process, with its socket's folder. Drop ends it.
pub(crate) struct Driver {
    pub(crate) process: Child,
    folder: PathBuf,
}

impl Driver {
    pub(crate) fn start(world: &World, words: &[&str]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojourn-driver-test-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sojourn-driver"));
        command.args(["--interface", world.link.interface(), "--address"]);
        command.arg(folder.join("driver")).args(words).stdout(Stdio::piped());
        world.link.host(End::A).place(&mut command);
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "{line}");
        Self { process, folder }
    }

    pub(crate) fn address(&self) -> Address {
        Address::parse(self.folder.join("driver").to_str().unwrap()).unwrap()
    }

    pub(crate) fn client(&self) -> DriverInterface {
        DriverInterface::connect(self.address(), Wait::Adaptive).unwrap()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A frame to everybody, of a type for experiments (IEEE 802).
pub(crate) fn frame(mark: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    frame.resize(100, mark);
    frame
}

/// Sleeps until the interface is readable; panics after the time limit.
pub(crate) fn wait(interface: &dyn Interface, until: Instant) {
    let fd = interface.wait_fd().unwrap();
    let left = until.saturating_duration_since(Instant::now());
    let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    let found = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap();
    assert!(found > 0, "nothing comes");
}

/// Receives until the frame of that mark comes.
pub(crate) fn receive(interface: &mut dyn Interface, mark: u8) {
    receive_by(interface, mark, 64);
}

/// Receives like [`receive`], with that budget, sleeping after each look that found nothing.
pub(crate) fn receive_by(interface: &mut dyn Interface, mark: u8, budget: usize) {
    let (wanted, until) = (frame(mark), Instant::now() + LIMIT);
    let mut is_there = false;
    while !is_there {
        let mut look = |received: sojourn_netif::Received<'_>| is_there |= received.frame == wanted;
        if interface.receive(budget, &mut look).unwrap() < budget && !is_there {
            wait(interface, until);
        }
    }
}

/// Waits until `holds` returns true.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
