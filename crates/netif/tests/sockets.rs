//! Properties of the kernel's sockets beyond the trait: visibility for taps, sockets opened by
//! another process, losses and their counters, interfaces that go away, capabilities.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::frames::{self, Front, NOBODY, flow, pattern, probe, send_now, tcp_header};
use common::{FAR_DEVICE, LIMIT, Lab, NEAR_DEVICE, WATCHING, receive_until, shows, with_xdp};
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, SocketType, socket};
use sojourn_netif::{
    Interface, LinkError, LinkType, Message, OpenError, Outgoing, PacketOptions, Ring, RingLayout,
    SendError, Xdp, XdpOptions, XdpSender, packet,
};
use sojourn_wire::Protocol;
use sojourn_wire::frame::{self, Offload};
use sojourn_wire::tcp::Flags;
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const SEGMENT: u16 = 1460;

fn message() -> Message {
    Message::open(NEAR_DEVICE, &PacketOptions::default()).unwrap()
}

fn ring() -> Ring {
    Ring::open(NEAR_DEVICE, &PacketOptions::default(), RingLayout::default()).unwrap()
}

/// A tap like tcpdump's: a socket on the same interface that sees both directions.
#[test]
fn watchers_see_what_is_sent_unless_it_passes_the_queue() {
    let Some(lab) = Lab::new() else { return };
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    let mut watcher = lab.near(|| Message::open(NEAR_DEVICE, &WATCHING).unwrap());
    let mut sees = |near: &mut dyn Interface, mark| {
        let frame = probe(LinkType::Ethernet, 300, mark);
        send_now(near, &Outgoing::plain(&frame)).unwrap();
        receive_until(&mut far, "it is sent", |received| received.frame == frame);
        let mut is_seen = false;
        watcher.receive(64, &mut |received| is_seen |= received.frame == frame).unwrap();
        is_seen
    };
    assert!(sees(&mut lab.near(message), 1));
    assert!(sees(&mut lab.near(ring), 2));
    let options = PacketOptions { qdisc_bypass: true, ..PacketOptions::default() };
    assert!(!sees(&mut lab.near(|| Message::open(NEAR_DEVICE, &options).unwrap()), 3));
    // AF_XDP differs here: taps do not see its frames, as its documentation says.
    assert!(!sees(&mut lab.near(|| Xdp::open(NEAR_DEVICE, &XdpOptions::default()).unwrap()), 4));
}

/// Short frames leave by the AF_XDP socket, where a tap does not see them; segments do not.
#[test]
fn watchers_see_segments_but_not_short_frames_beside_an_xdp_socket() {
    let Some(lab) = Lab::new() else { return };
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    let mut watcher = lab.near(|| Message::open(NEAR_DEVICE, &WATCHING).unwrap());
    let mut near = lab.near(|| with_xdp(ring()));
    let headers =
        frames::headers(LinkType::Ethernet, NOBODY, NOBODY, flow(Protocol::Tcp, 1000, 2000));
    let payload = pattern(20_000, 1);
    let tcp = tcp_header(1, 2, Flags::ACK);
    let front = Front::tcp(&headers, &tcp, &[&payload], Offload::Segments(SEGMENT));
    let short = probe(LinkType::Ethernet, 1000, 1);
    // All in one flush: the segments do not overtake the frames before them.
    near.send(&Outgoing::plain(&short)).unwrap();
    near.send(&Outgoing::plain(&short)).unwrap();
    near.send(&front.with(&payload, &[])).unwrap();
    near.send(&Outgoing::plain(&short)).unwrap();
    near.flush().unwrap();
    let mut lens = Vec::new();
    receive_until(&mut far, "four frames", |received| {
        lens.push(received.frame.len());
        lens.len() == 4
    });
    assert!(lens[2] > 20_000, "{lens:?}");
    assert_eq!((lens[0], lens[1], lens[3]), (1000, 1000, 1000));
    let mut seen = Vec::new();
    watcher.receive(64, &mut |received| seen.push(received.frame.len())).unwrap();
    assert_eq!(seen, [lens[2]]);
    assert_eq!(near.statistics().sent, 4);
}

/// A queue of an interface has one AF_XDP socket: the second is refused, and harms nobody.
#[test]
fn a_second_xdp_socket_is_refused() {
    let Some(lab) = Lab::new() else { return };
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    let mut near = lab.near(|| with_xdp(ring()));
    let open = || {
        let socket = socket(AddressFamily::XDP, SocketType::RAW, None).unwrap();
        XdpSender::open(socket, near.properties().index)
    };
    let refused = lab.near(|| open().map(drop)).unwrap_err();
    assert!(matches!(refused, OpenError::Failed { step: "bind", .. }), "{refused:?}");
    let frame = probe(LinkType::Ethernet, 300, 1);
    send_now(&mut near, &Outgoing::plain(&frame)).unwrap();
    receive_until(&mut far, "it is sent", |received| received.frame == frame);
    let wrong = lab.near(|| XdpSender::open(packet::open(&PacketOptions::default()).unwrap(), 1));
    assert!(matches!(wrong.map(drop), Err(OpenError::WrongDescriptor(_))));
}

/// A socket in the form in which the session server passes it: with a ring, bound, filtered and
/// locked.
#[test]
fn a_socket_that_was_prepared_elsewhere_is_taken() {
    let Some(lab) = Lab::new() else { return };
    let layout = RingLayout { slot_len: 1024, slots: 16 };
    let (fd, index) = lab.near(|| {
        let fd = packet::open(&PacketOptions::default()).unwrap();
        Ring::prepare(fd.as_fd(), layout).unwrap();
        let index = packet::index_of(fd.as_fd(), NEAR_DEVICE).unwrap();
        packet::bind(fd.as_fd(), index).unwrap();
        only_short_frames(fd.as_raw_fd());
        (fd, index)
    });
    let unbound = lab.near(|| packet::open(&PacketOptions::default()).unwrap());
    let refused = |error| OpenError::WrongDescriptor(error);
    assert_eq!(
        Message::from_descriptor(unbound).unwrap_err(),
        refused("not bound to an interface")
    );
    let inet = UdpSocket::bind("127.0.0.1:0").unwrap().into();
    assert_eq!(Message::from_descriptor(inet).unwrap_err(), refused("not a packet socket"));
    let other = RingLayout { slot_len: 2048, ..layout };
    let copy = fd.try_clone().unwrap();
    assert_eq!(Ring::map(copy, other).unwrap_err(), refused("no ring of that size"));
    // This thread is in another namespace, in which the index belongs to another interface.
    let mut near = Ring::map(fd, layout).unwrap();
    assert_eq!(near.properties().index, index);
    assert_eq!(near.properties().mtu, 1500);
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    for len in [400, 600, 300] {
        send_now(&mut far, &Outgoing::plain(&probe(LinkType::Ethernet, len, 0))).unwrap();
    }
    let mut lens = Vec::new();
    receive_until(&mut near, "filtered frames", |received| {
        lens.push(received.frame.len());
        lens.len() == 2
    });
    assert_eq!(lens, [400, 300]);
}

/// A classic filter that accepts frames of less than 500 bytes, locked. socket(7).
#[allow(unsafe_code, reason = "nothing else has functions for filters")]
fn only_short_frames(fd: i32) {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program = [
        // A = the frame's length; if A >= 500, accept 0 bytes, otherwise all.
        step(0x80, 0, 0, 0),
        step(0x35, 0, 1, 500),
        step(0x06, 0, 0, 0),
        step(0x06, 0, 0, u32::MAX),
    ];
    let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    let set = |name, at: *const core::ffi::c_void, len: usize| {
        // SAFETY: both options are alive and of the lengths given.
        let done = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, name, at, len as u32) };
        assert_eq!(done, 0);
    };
    let one = 1i32;
    set(libc::SO_ATTACH_FILTER, (&raw const program).cast(), size_of::<libc::sock_fprog>());
    set(libc::SO_LOCK_FILTER, (&raw const one).cast(), size_of::<i32>());
}

/// More frames than a ring holds: the rest is counted, and the ring continues.
#[test]
fn a_ring_that_nobody_empties_loses_and_counts() {
    let Some(lab) = Lab::new() else { return };
    let layout = RingLayout { slot_len: 1024, slots: 16 };
    let mut near = lab.near(|| Ring::open(NEAR_DEVICE, &PacketOptions::default(), layout).unwrap());
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    for mark in 0..40 {
        send_now(&mut far, &Outgoing::plain(&probe(LinkType::Ethernet, 100, mark))).unwrap();
    }
    let deadline = Instant::now() + LIMIT;
    while near.statistics().overruns < 24 {
        assert!(Instant::now() < deadline, "all have arrived or been lost");
    }
    let mut count = 0;
    receive_until(&mut near, "what is held", |received| {
        assert_eq!(received.frame, probe(LinkType::Ethernet, 100, count as u8));
        count += 1;
        count == 16
    });
    assert_eq!(near.receive(64, &mut |_| ()), Ok(0));
    assert_eq!(near.statistics().overruns, 24, "still, when asked again");
    let frame = probe(LinkType::Ethernet, 100, 77);
    send_now(&mut far, &Outgoing::plain(&frame)).unwrap();
    receive_until(&mut near, "it goes on", |received| received.frame == frame);
}

/// Long frames wait in the socket's queue. When the queue is full, further frames are counted, and
/// slots and queue stay in step.
#[test]
fn a_queue_that_is_full_truncates_and_counts() {
    const FRAMES: usize = 12;
    let Some(lab) = Lab::new() else { return };
    let options = PacketOptions { receive_buffer: Some(300_000), ..PacketOptions::default() };
    let mut near = lab.near(|| Ring::open(NEAR_DEVICE, &options, RingLayout::default()).unwrap());
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    let headers = frames::headers(LinkType::Ethernet, NOBODY, NOBODY, flow(Protocol::Tcp, 1, 2));
    let tcp = tcp_header(1, 2, Flags::ACK);
    let send = |far: &mut Message, mark| {
        let payload = pattern(60_000, mark as u8);
        let front = Front::tcp(&headers, &tcp, &[&payload], Offload::Segments(SEGMENT));
        send_now(far, &front.with(&payload, &[])).unwrap();
    };
    for mark in 0..FRAMES {
        send(&mut far, mark);
    }
    // A short frame follows: when it has arrived, the long ones have been processed.
    let last = probe(LinkType::Ethernet, 100, 0);
    send_now(&mut far, &Outgoing::plain(&last)).unwrap();
    let mut whole = 0;
    receive_until(&mut near, "what is held", |received| {
        if received.frame == last {
            return true;
        }
        let frame = frame::parse(received.frame, LinkType::Ethernet).unwrap();
        assert!(frame.payload() == pattern(60_000, whole as u8), "the first ones, in order");
        whole += 1;
        false
    });
    assert!((1..FRAMES).contains(&whole), "{whole}");
    let counts = near.statistics();
    assert_eq!(counts.truncated, (FRAMES - whole) as u64, "{whole} {counts:?}");
    send(&mut far, 99);
    receive_until(&mut near, "it goes on", |received| {
        let frame = frame::parse(received.frame, LinkType::Ethernet).unwrap();
        frame.payload() == pattern(60_000, 99)
    });
}

/// The time of arrival is of the system's clock.
#[test]
fn arrivals_have_times() {
    let Some(lab) = Lab::new() else { return };
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    let with_times = PacketOptions { timestamps: true, ..PacketOptions::default() };
    let mut time_of = |near: &mut dyn Interface| {
        let frame = probe(LinkType::Ethernet, 100, 1);
        send_now(&mut far, &Outgoing::plain(&frame)).unwrap();
        let mut time_ns = None;
        receive_until(near, "a frame", |received| {
            time_ns = received.time_ns;
            true
        });
        time_ns
    };
    let now_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let before = now_ns();
    assert_eq!(time_of(&mut lab.near(message)), None);
    let times = [
        time_of(&mut lab.near(|| Message::open(NEAR_DEVICE, &with_times).unwrap())),
        time_of(&mut lab.near(ring)),
    ];
    let after = now_ns();
    for time_ns in times.map(Option::unwrap) {
        assert!((before..=after).contains(&time_ns), "{before} {time_ns} {after}");
    }
}

#[test]
fn an_interface_that_goes_away_is_noticed() {
    let Some(lab) = Lab::new() else { return };
    let mut near = lab.near(ring);
    lab.near_ip(&format!("link del {NEAR_DEVICE}"));
    let deadline = Instant::now() + LIMIT;
    while !shows(&near, PollFlags::ERR) {
        assert!(Instant::now() < deadline, "an error to be told");
    }
    assert_eq!(near.take_error(), Some(LinkError::Down));
    assert_eq!(near.refresh(), Err(LinkError::Gone));
    let frame = probe(LinkType::Ethernet, 100, 0);
    assert_eq!(
        send_now(&mut near, &Outgoing::plain(&frame)),
        Err(SendError::Link(LinkError::Gone))
    );
}

#[test]
fn names_and_rights_are_checked() {
    let Some(lab) = Lab::new() else { return };
    let options = PacketOptions::default();
    lab.near(|| {
        assert_eq!(Message::open("nothing", &options).unwrap_err(), OpenError::NoDevice);
        let layout = RingLayout { slot_len: 100, slots: 3 };
        let refused = Ring::open(NEAR_DEVICE, &options, layout).unwrap_err();
        assert!(matches!(refused, OpenError::BadLayout(_)));
        assert_eq!(Xdp::open("nothing", &XdpOptions::default()).unwrap_err(), OpenError::NoDevice);
    });
    // The capabilities are dropped only for this thread, which ends with the test.
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    lab.near(|| {
        set_capabilities(None, sets).unwrap();
        assert_eq!(Message::open(NEAR_DEVICE, &options).unwrap_err(), OpenError::NotPermitted);
        let xdp = Xdp::open(NEAR_DEVICE, &XdpOptions::default());
        assert_eq!(xdp.unwrap_err(), OpenError::NotPermitted);
    });
}

/// Another process with the same descriptor writes into the ring. The reader reads nothing outside
/// a slot, ends each call, and continues.
#[test]
#[allow(unsafe_code, reason = "a second mapping of the ring, to do damage with")]
fn a_ring_that_somebody_scribbles_on_harms_nobody() {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
    const SLOT: usize = 1024;
    const SLOTS: usize = 16;
    let Some(lab) = Lab::new() else { return };
    let layout = RingLayout { slot_len: SLOT as u32, slots: SLOTS as u32 };
    let (fd, copy) = lab.near(|| {
        let fd = packet::open(&PacketOptions::default()).unwrap();
        Ring::prepare(fd.as_fd(), layout).unwrap();
        packet::bind(fd.as_fd(), packet::index_of(fd.as_fd(), NEAR_DEVICE).unwrap()).unwrap();
        let copy = fd.try_clone().unwrap();
        (fd, copy)
    });
    let mut near = Ring::map(fd, layout).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh range.
    let base = unsafe {
        mmap(core::ptr::null_mut(), SLOT * SLOTS, protection, MapFlags::SHARED, &copy, 0).unwrap()
    };
    let scribble = |slot: usize, words: [u32; 4]| {
        for (at, word) in words.into_iter().enumerate().rev() {
            // SAFETY: within the mapping and aligned; the status comes last.
            unsafe { base.cast::<u32>().add(slot * SLOT / 4 + at).write_volatile(word) };
        }
    };
    let (user, queued) = (libc::TP_STATUS_USER, libc::TP_STATUS_COPY);
    // A whole round of slots: lengths and offsets beyond the slot, and frames marked as queued that
    // are not in the queue.
    for slot in 0..SLOTS {
        scribble(
            slot,
            match slot % 4 {
                0 => [user, u32::MAX, u32::MAX, 0xffff_ffff],
                1 => [user | queued, 100, 100, 96],
                2 => [user, SLOT as u32, SLOT as u32, 96],
                _ => [user, 100, 100, 3],
            },
        );
    }
    assert_eq!(near.receive(64, &mut |_| panic!("there is no frame")), Ok(0));
    let counts = near.statistics();
    assert_eq!((counts.damaged, counts.received, counts.truncated), (SLOTS as u64, 0, 0));
    // The kernel has not moved, and the reader has gone round once: both continue at the first
    // slot.
    let mut far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    let frame = probe(LinkType::Ethernet, 300, 5);
    send_now(&mut far, &Outgoing::plain(&frame)).unwrap();
    receive_until(&mut near, "it goes on", |received| received.frame == frame);
    // SAFETY: the range mapped above; nothing uses it any more.
    unsafe { munmap(base, SLOT * SLOTS).unwrap() };
}
