//! Tests of owners that come and go, change their place in the group, and pass to another server.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{attached, filter, receive, two_hosts};
use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use sojourn_filter::{Filter, Holding, Key, NewOwner, Options, OwnerId, Reason, Removed};
use sojourn_wire::Protocol;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The beginning of the name of the group, held by its sink, among the holdings.
const GROUP: &str = "sojourn_group";

/// Makes tests run one at a time. Between `fork` and `exec` of another test, the child has every
/// socket of this process, and so would be a holder.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program with the session of a datagram socket.
struct Program {
    owner: OwnerId,
    socket: OwnedFd,
    target: SocketAddr,
}

impl Program {
    fn new(filter: &mut Filter, port: u16) -> Self {
        let NewOwner { owner, socket } = filter.add_owner(|_| Ok(())).unwrap();
        let target = SocketAddr::from(([10, 0, 0, 1], port));
        filter.add_flow(Key::new(Protocol::Udp, target, None).unwrap(), owner).unwrap();
        Self { owner, socket, target }
    }

    /// Sends datagrams until one arrives, and checks that only this program's arrive.
    fn is_reached(&self, filter: &Filter, sender: &UdpSocket) -> Reached {
        let text = format!("for {}", self.target);
        let before = misdirected(filter);
        for lost in 0..20 {
            sender.send_to(text.as_bytes(), self.target).unwrap();
            let end = Instant::now() + Duration::from_secs(1);
            while Instant::now() < end {
                if let Some(frame) = receive(&self.socket) {
                    assert!(common::has(&frame, text.as_bytes()), "another's frame");
                    return Reached { lost, astray: misdirected(filter) - before };
                }
            }
        }
        panic!("{} is not reached", self.target);
    }

    /// Returns true if the first datagram arrives, at once.
    fn is_known(&self, filter: &Filter, sender: &UdpSocket) -> bool {
        self.is_reached(filter, sender) == Reached { lost: 0, astray: 0 }
    }
}

/// How a program was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reached {
    /// The number of datagrams that did not arrive.
    lost: usize,
    /// The number of times that a datagram came to another program's socket before.
    astray: u64,
}

fn misdirected(filter: &Filter) -> u64 {
    filter.counts().unwrap().of(Reason::Misdirected)
}

/// Duplicates a descriptor that a filter needs, as a keeper does.
fn owned(held: Holding<BorrowedFd<'_>>) -> Holding<OwnedFd> {
    Holding { name: held.name, fd: held.fd.try_clone_to_owned().unwrap() }
}

#[test]
fn members_that_changed_places_are_found_again() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let programs: Vec<_> = (1..=5).map(|port| Program::new(&mut filter, port)).collect();
        let all = |filter: &Filter| {
            let reached: Vec<_> =
                programs.iter().map(|program| program.is_reached(filter, &sender)).collect();
            assert!(reached.iter().all(|reached| reached.lost == 0), "{reached:?}");
            // Once the filter has found the members' new places, no datagram goes astray any more.
            assert!(programs.iter().all(|program| program.is_known(filter, &sender)));
            reached.iter().map(|reached| reached.astray).sum::<u64>()
        };
        assert_eq!(all(&filter), 0);
        // Setting a ring takes the socket out of the group and puts it at the group's end.
        let ring = [4096_u32, 1, 2048, 2];
        set_ring(&programs[0].socket, &ring);
        let astray = all(&filter);
        assert!((1..=5).contains(&astray), "{astray}");
        // The table gives two owners one place and a third owner none: the programs try the places
        // one after another.
        #[cfg(debug_assertions)]
        {
            filter.probe_confuse(programs[1].owner, 3).unwrap();
            filter.probe_confuse(programs[2].owner, 3).unwrap();
            filter.probe_confuse(programs[4].owner, 4000).unwrap();
            assert!(all(&filter) > 0);
        }
    });
}

fn set_ring(socket: &OwnedFd, ring: &[u32; 4]) {
    const RX_RING: i32 = 5;
    let (at, len) = (ring.as_ptr().cast(), size_of_val(ring) as u32);
    // SAFETY: the kernel reads as many bytes as the value has.
    #[allow(unsafe_code, reason = "an option that rustix does not have")]
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, RX_RING, at, len) };
    assert_eq!(result, 0);
    // Frames go to the ring instead of the queue until the ring is removed.
    #[allow(unsafe_code, reason = "an option that rustix does not have")]
    // SAFETY: as for the first call: the value has the length that the kernel reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            RX_RING,
            [0_u32; 4].as_ptr().cast(),
            len,
        )
    };
    assert_eq!(result, 0);
}

#[test]
fn owners_come_and_go() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let mut programs: Vec<_> = (1..=5).map(|port| Program::new(&mut filter, port)).collect();
        // The first owner leaves. Its place is kept, so that the others keep theirs.
        let gone = programs.remove(0);
        drop(gone.socket);
        assert_eq!(filter.remove_owner(gone.owner).unwrap(), Removed::StillHeld);
        assert!(programs.iter().all(|program| program.is_known(&filter, &sender)));
        // Another owner is removed while its socket is still open; the socket is closed later.
        let held = programs.remove(1);
        assert_eq!(filter.remove_owner(held.owner).unwrap(), Removed::StillHeld);
        sender.send_to(b"nobody's", held.target).unwrap();
        assert!(programs.iter().all(|program| program.is_known(&filter, &sender)));
        assert_eq!(receive(&held.socket), None);
        drop(held.socket);
        filter.refresh().unwrap();
        programs.push(Program::new(&mut filter, 6));
        assert!(programs.iter().all(|program| program.is_known(&filter, &sender)));
        assert_eq!(misdirected(&filter), 0);
        assert!(filter.event_fd().is_some());
        // Removed from the last to the first, each owner's place is free at once.
        for Program { owner, socket, .. } in programs.into_iter().rev() {
            drop(socket);
            assert_eq!(filter.remove_owner(owner).unwrap(), Removed::Gone);
        }
        assert!(filter.event_fd().is_none(), "no socket without owners");
        assert_eq!(attached(), [""; 0]);
    });
}

/// Returns the numbers of the frames that have arrived at a program's socket so far.
fn numbers(program: &Program) -> Vec<u32> {
    let mut found = Vec::new();
    while let Some(frame) = receive(&program.socket) {
        let tail = frame.last_chunk().copied().unwrap();
        found.push(u32::from_be_bytes(tail));
    }
    found
}

#[test]
fn no_frame_is_lost_when_another_leaves() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let mut programs: Vec<_> = (1..=4).map(|port| Program::new(&mut filter, port)).collect();
        let stays = programs.pop().unwrap();
        assert!(stays.is_known(&filter, &sender));
        // Frames keep coming while the other owners leave.
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let send = scope.spawn(|| {
                let mut count = 0_u32;
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) && count < 500 {
                    sender.send_to(&count.to_be_bytes(), stays.target).unwrap();
                    count += 1;
                    std::thread::sleep(Duration::from_micros(200));
                }
                count
            });
            for Program { owner, socket, .. } in programs {
                drop(socket);
                filter.remove_owner(owner).unwrap();
            }
            is_over.store(true, std::sync::atomic::Ordering::Relaxed);
            send.join().unwrap()
        });
        assert_eq!(numbers(&stays), (0..sent).collect::<Vec<_>>());
        // With the last owner everything is gone, also the kept places of the earlier ones.
        drop(stays.socket);
        assert_eq!(filter.remove_owner(stays.owner).unwrap(), Removed::Gone);
        assert!(filter.event_fd().is_none());
    });
}

#[test]
fn one_who_moved_unnoticed_is_found_again() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let held = Program::new(&mut filter, 1);
        assert_eq!(filter.remove_owner(held.owner).unwrap(), Removed::StillHeld);
        let last = Program::new(&mut filter, 2);
        assert!(last.is_known(&filter, &sender));
        // The kernel now moves the last member of the group to the free place, without notice to
        // the filter, whose table still has the old place.
        drop(held.socket);
        let reached = last.is_reached(&filter, &sender);
        assert!(reached.lost == 0 && reached.astray > 0, "{reached:?}");
        assert!(last.is_known(&filter, &sender));
    });
}

#[test]
fn no_frame_is_lost_when_many_have_left_unnoticed() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let mut programs: Vec<_> = (1..=9).map(|port| Program::new(&mut filter, port)).collect();
        let stay: Vec<_> = [2, 6, 8].map(|at| programs[at].owner).into();
        let names: Vec<_> = stay.iter().map(|owner| sojourn_filter::holding_of(*owner)).collect();
        // A keeper has what two servers after each other need, and programs end in between: of
        // nine members three are left, in an order that nobody knows.
        let hold = |filter: &Filter| -> Vec<Holding<OwnedFd>> {
            let is_left = |name: &str| {
                let member = sojourn_filter::holding_of(OwnerId(0));
                !name.starts_with(member.trim_end_matches('0'))
                    || names.iter().any(|left| left == name)
            };
            let held = filter.holdings().into_iter().filter(|held| is_left(&held.name));
            held.map(owned).collect()
        };
        let held = hold(&filter);
        drop(filter);
        programs.retain(|program| stay.contains(&program.owner));
        let filter = Filter::adopt(held, Options::default()).unwrap();
        for program in &programs {
            assert_eq!(program.is_reached(&filter, &sender).lost, 0);
        }
        assert!(misdirected(&filter) > 0, "the order was known: this has shown nothing");
        assert!(programs.iter().all(|program| program.is_known(&filter, &sender)));
        // A frame for an owner whose socket is gone is given up after 256 tries.
        let before = misdirected(&filter);
        sender.send_to(b"nobody's", "10.0.0.1:1").unwrap();
        common::wait_for("end of the tries", || {
            (misdirected(&filter) == before + 256).then_some(())
        });
        assert!(programs.iter().all(|program| program.is_known(&filter, &sender)));
    });
}

/// Adds what a filter holds now to what a keeper has by names: what has a name already is not held
/// again.
fn hold_new(kept: &mut Vec<Holding<OwnedFd>>, filter: &Filter) {
    for held in filter.holdings() {
        if kept.iter().all(|known| known.name != held.name) {
            kept.push(owned(held));
        }
    }
}

#[test]
fn a_group_that_was_made_anew_is_the_one_that_is_adopted() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let mut kept = Vec::new();
        let first = Program::new(&mut filter, 1);
        hold_new(&mut kept, &filter);
        // The last program goes, and with it the group and its sink; the next one gets new ones. A
        // keeper has released the program's socket and the hook before, but not the sink: it is
        // told of that with the new names, and a server may die meanwhile.
        let owner = first.owner;
        drop(first);
        let is_gone = |name: &str| {
            name == sojourn_filter::holding_of(owner) || name.starts_with("sojourn_link")
        };
        kept.retain(|held| !is_gone(&held.name));
        filter.remove_owner(owner).unwrap();
        assert!(filter.event_fd().is_none());
        let programs: Vec<_> = (2..=4).map(|port| Program::new(&mut filter, port)).collect();
        hold_new(&mut kept, &filter);
        drop(filter);
        let mut filter = Filter::adopt(kept, Options::default()).unwrap();
        let next = Program::new(&mut filter, 5);
        assert!(programs.iter().chain([&next]).all(|one| one.is_known(&filter, &sender)));
    });
}

#[test]
fn an_adoption_that_ends_in_the_middle_harms_nobody() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let programs: Vec<_> = (1..=3).map(|port| Program::new(&mut filter, port)).collect();
        let hold = |filter: &Filter| -> Vec<Holding<OwnedFd>> {
            let held = filter.holdings().into_iter();
            held.map(owned).collect()
        };
        let (held, mut damaged) = (hold(&filter), hold(&filter));
        drop(filter);
        // The sink is no packet socket: the adoption fails after it has begun.
        let other = std::fs::File::open("/dev/null").unwrap();
        damaged.iter_mut().find(|held| held.name.starts_with(GROUP)).unwrap().fd = other.into();
        assert!(Filter::adopt(damaged, Options::default()).is_err());
        let mut filter = Filter::adopt(held, Options::default()).unwrap();
        let next = Program::new(&mut filter, 4);
        assert!(programs.iter().chain([&next]).all(|one| one.is_known(&filter, &sender)));
    });
}

#[test]
fn an_interface_goes_down_and_up() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let mut programs: Vec<_> = (1..=5).map(|port| Program::new(&mut filter, port)).collect();
        let gone = programs.remove(0);
        drop(gone.socket);
        filter.remove_owner(gone.owner).unwrap();
        for state in ["down", "up"] {
            let ip = std::process::Command::new("ip").args(["link", "set", "eth0", state]).status();
            assert!(ip.unwrap().success());
        }
        filter.refresh().unwrap();
        for program in &programs {
            // Takes the pending error (ENETDOWN), which the interface's going down left on the
            // socket.
            let _ = rustix::net::sockopt::socket_error(&program.socket);
            program.is_reached(&filter, &sender);
        }
        assert_eq!(misdirected(&filter), 0);
    });
}

#[test]
fn what_holds_the_descriptors_holds_the_filter() {
    let _alone = alone();
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let sender = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let programs: Vec<_> = (1..=3).map(|port| Program::new(&mut filter, port)).collect();
        let port = filter.open_port(false).unwrap();
        let hold = |filter: &Filter| -> Vec<Holding<OwnedFd>> {
            let held = filter.holdings().into_iter();
            held.map(owned).collect()
        };
        let held = hold(&filter);
        drop(filter);
        for program in &programs {
            sender.send_to(b"without a server", program.target).unwrap();
            common::receive_with(&program.socket, b"without a server");
        }
        let mut filter = Filter::adopt(held, Options::default()).unwrap();
        assert_eq!(filter.flows().count(), 3);
        assert!(programs.iter().all(|program| program.is_known(&filter, &sender)));
        // Owners' numbers continue: the number of a program that may still have its socket is not
        // given out again.
        let next = Program::new(&mut filter, 4);
        assert!(next.owner > port.owner && next.is_known(&filter, &sender));
        assert_eq!(filter.remove_owner(port.owner).unwrap(), Removed::Gone);
        for program in programs.into_iter().chain([next]).rev() {
            drop(program.socket);
            assert_eq!(filter.remove_owner(program.owner).unwrap(), Removed::Gone);
        }
        assert_eq!(attached(), [""; 0]);
    });
}

#[test]
fn sessions_that_are_released_leave_the_hook_for_the_next() {
    let _alone = alone();
    let Some((one, _two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let program = Program::new(&mut filter, 1);
        let before = attached();
        assert!(!before.is_empty());
        let key = Key::new(Protocol::Udp, program.target, None).unwrap();
        filter.release_flow(&key).unwrap();
        assert_eq!(attached(), before);
        filter.detach_if_idle();
        assert_eq!(attached(), [""; 0]);
    });
}
