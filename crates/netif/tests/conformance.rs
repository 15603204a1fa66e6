//! One suite for every implementation of the trait: checks the trait's contract between the
//! interface under test (*near*) and another one at the link's other end (*far*).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::frames::{self, Front, NOBODY, pattern, probe, send_now};
use common::tun::Tun;
use common::xsk::Steering;
use common::{
    FAR_DEVICE, LIMIT, Lab, NEAR_DEVICE, receive_until, shows, until_it_carries, wait, with_xdp,
};
use rustix::event::PollFlags;
use sojourn_driver::process::serve_handed;
use sojourn_driver::{Address, DriverInterface, FrameWay, Serving, Wait};
use sojourn_netif::pcapng::Writer;
use sojourn_netif::{
    Capture, Fault, FaultOptions, Interface, LinkError, LinkType, Message, Outgoing, PacketOptions,
    Ring, RingLayout, SendError, Trace, Xdp, XdpOptions, packet, sim, vnet,
};
use sojourn_wire::Protocol;
use sojourn_wire::ethernet::{self, EtherType, VlanTag};
use sojourn_wire::frame::{self, Offload};
use sojourn_wire::tcp::Flags;
use std::os::fd::AsFd;
use std::time::Instant;

/// An interface under test, the one at the other end, and the objects that keep them alive.
struct Pair {
    near: Box<dyn Interface>,
    far: Box<dyn Interface>,
    /// Name of the near device, if the kernel has the link.
    device: Option<&'static str>,
    lab: Option<Lab>,
    _steering: Option<Steering>,
}

fn simulated(wrap: impl FnOnce(sim::Endpoint) -> Box<dyn Interface>) -> Option<Pair> {
    let sim::Link { near, far, .. } = sim::pair(&sim::Options::default());
    let (near, far) = (wrap(near), Box::new(far));
    Some(Pair { near, far, device: None, lab: None, _steering: None })
}

fn on_veth<I: Interface + Send + 'static>(open: impl FnOnce() -> I + Send) -> Option<Pair> {
    let lab = Lab::new()?;
    // A socket that was opened on a thread in the namespace can be used from any thread.
    let near = Box::new(lab.near(open));
    let far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    let far = Box::new(far);
    Some(Pair { near, far, device: Some(NEAR_DEVICE), lab: Some(lab), _steering: None })
}

fn on_tun<I: Interface + Send + 'static>(open: impl FnOnce(&str) -> I + Send) -> Option<Pair> {
    const DEVICE: &str = "tunnel";
    let lab = Lab::new()?;
    let far = Box::new(lab.near(|| Tun::new(DEVICE))?);
    lab.near_ip(&format!("link set {DEVICE} up"));
    let mut near = lab.near(|| open(DEVICE));
    let mut far = far;
    until_it_carries(far.as_mut(), &mut near);
    until_it_carries(&mut near, far.as_mut());
    let near = Box::new(near);
    Some(Pair { near, far, device: Some(DEVICE), lab: Some(lab), _steering: None })
}

const PLAIN: PacketOptions = PacketOptions {
    vnet: false,
    ignore_outgoing: true,
    qdisc_bypass: false,
    timestamps: false,
    receive_buffer: None,
    send_buffer: None,
};
/// Slots that hold any frame.
const LARGE: RingLayout = RingLayout { slot_len: 17 * 4096, slots: 32 };
/// Slots that hold little.
const SMALL: RingLayout = RingLayout { slot_len: 512, slots: 64 };

fn message(device: &str) -> Message {
    Message::open(device, &PacketOptions::default()).unwrap()
}

fn ring(device: &str, layout: RingLayout) -> Ring {
    Ring::open(device, &PacketOptions::default(), layout).unwrap()
}

fn xdp() -> Option<Pair> {
    let mut pair = on_veth(|| sim::pair(&sim::Options::default()).near)?;
    let options = XdpOptions { chunks: 128, trusts_checksums: true, ..XdpOptions::default() };
    let lab = pair.lab.as_ref()?;
    let (near, steering) = lab.near(|| {
        let near = Xdp::open(NEAR_DEVICE, &options).unwrap();
        let steering = Steering::new(near.properties().index);
        steering.give(options.queue, near.as_fd());
        (near, steering)
    });
    pair.near = Box::new(near);
    pair._steering = Some(steering);
    Some(pair)
}

/// Set for a test process that is to be a driver: the way of its frames.
const DRIVER: &str = "SOJOURN_TEST_DRIVER";

/// Not a test of its own: [`driver`] runs this program anew to have a driver's process.
#[test]
fn be_a_driver() {
    let Ok(way) = std::env::var(DRIVER) else { return };
    let way = if way == "memory" { FrameWay::Memory } else { FrameWay::Message };
    let control = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    serve_handed(&control, Serving { way, ..Serving::default() }).unwrap();
}

/// Opens the near device in another process. It ends with the interface.
fn driver(way: &str) -> DriverInterface {
    let [control, theirs] = sojourn_driver::control().unwrap();
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "be_a_driver", "--nocapture"]).env(DRIVER, way).stdin(theirs);
    let mut process = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    std::thread::spawn(move || process.wait());
    let packets = packet::open(&PacketOptions::default()).unwrap();
    packet::bind(packets.as_fd(), packet::index_of(packets.as_fd(), NEAR_DEVICE).unwrap()).unwrap();
    let client = sojourn_driver::hand(&control, &packets).unwrap();
    DriverInterface::connect(Address::Descriptor(client), Wait::Adaptive).unwrap()
}

macro_rules! conforms {
    ($($name:ident: $make:expr;)*) => {
        $(#[test]
        fn $name() {
            if let Some(mut pair) = $make {
                suite(&mut pair);
            }
        })*
    };
}

conforms! {
    a_simulated_link: simulated(|near| Box::new(near));
    a_fault_injector_that_does_nothing:
        simulated(|near| Box::new(Fault::new(near, &FaultOptions::default())));
    a_trace: simulated(|near| Box::new(Trace::new(near, 4, || 0)));
    a_capture: simulated(|near| {
        let writer = Writer::new(std::io::sink(), "test").unwrap();
        Box::new(Capture::new(near, writer, "near", || 0).unwrap())
    });
    messages: on_veth(|| message(NEAR_DEVICE));
    messages_without_offloads: on_veth(|| Message::open(NEAR_DEVICE, &PLAIN).unwrap());
    messages_with_times: on_veth(|| {
        let options = PacketOptions { timestamps: true, ..PacketOptions::default() };
        Message::open(NEAR_DEVICE, &options).unwrap()
    });
    messages_past_the_queue: on_veth(|| {
        let options = PacketOptions { qdisc_bypass: true, ..PacketOptions::default() };
        Message::open(NEAR_DEVICE, &options).unwrap()
    });
    messages_on_tun: on_tun(message);
    a_ring: on_veth(|| ring(NEAR_DEVICE, RingLayout::default()));
    a_ring_of_large_slots: on_veth(|| ring(NEAR_DEVICE, LARGE));
    a_ring_with_an_xdp_socket: on_veth(|| with_xdp(ring(NEAR_DEVICE, LARGE)));
    a_ring_of_small_slots: on_veth(|| ring(NEAR_DEVICE, SMALL));
    a_ring_without_offloads:
        on_veth(|| Ring::open(NEAR_DEVICE, &PLAIN, RingLayout::default()).unwrap());
    a_ring_on_tun: on_tun(|device| ring(device, RingLayout::default()));
    wrappers_around_a_ring: on_veth(|| {
        let ring = ring(NEAR_DEVICE, RingLayout::default());
        let writer = Writer::new(std::io::sink(), "test").unwrap();
        let capture = Capture::new(ring, writer, "near", || 0).unwrap();
        Fault::new(Trace::new(capture, 4, || 0), &FaultOptions::default())
    });
    an_xdp_socket: xdp();
    a_driver_by_messages: on_veth(|| driver("message"));
    a_driver_by_memory: on_veth(|| driver("memory"));
}

fn suite(pair: &mut Pair) {
    let Pair { near, far, device, lab, .. } = pair;
    let (near, far) = (near.as_mut(), far.as_mut());
    for interface in [&mut *near, &mut *far] {
        // Frames that the two kernels exchanged are dropped.
        while interface.receive(64, &mut |_| ()).unwrap() > 0 {}
    }
    frames_keep_their_bytes_and_order(near, far);
    frames_keep_their_bytes_and_order(far, near);
    parts_are_gathered(near, far);
    the_budget_is_kept(near, far);
    the_descriptor_tells(near, far);
    a_burst_is_held(near, far);
    too_long_is_refused(near);
    checksums_are_completed_or_marked(near, far);
    checksums_are_completed_or_marked(far, near);
    segments_stay_together(near, far);
    segments_from_far_end(near, far);
    tags_are_seen(near, far);
    tags_are_seen(far, near);
    own_frames_are_not_received(near, far);
    frames_are_counted(near, far);
    if let (Some(device), Some(lab)) = (device, lab) {
        changes_are_seen(near, lab, device);
        a_link_that_was_down_works_again(near, far, lab, device);
    }
}

/// Receives one frame and returns its bytes.
fn receive_one(interface: &mut dyn Interface, what: &str) -> Vec<u8> {
    let mut frames = Vec::new();
    receive_until(interface, what, |received| {
        frames.push(received.frame.to_vec());
        true
    });
    assert_eq!(frames.len(), 1, "{what}");
    frames.remove(0)
}

fn frames_keep_their_bytes_and_order(source: &mut dyn Interface, target: &mut dyn Interface) {
    let link = source.properties().link;
    let header = if link == LinkType::Ethernet { 14 } else { 0 };
    let lens = [60, 61, 62, 63, 64, 100, 257, 590, 1000, 1499, 1500 + header];
    let sent: Vec<_> =
        lens.iter().enumerate().map(|(mark, len)| probe(link, *len, mark as u8)).collect();
    for frame in &sent {
        source.send(&Outgoing::plain(frame)).unwrap();
    }
    source.flush().unwrap();
    let mut arrived = Vec::new();
    let mut last_ns = 0;
    receive_until(target, "frames in order", |received| {
        arrived.push(received.frame.to_vec());
        if let Some(time_ns) = received.time_ns {
            assert!(time_ns >= last_ns, "time goes on");
            last_ns = time_ns;
        }
        arrived.len() == sent.len()
    });
    assert!(arrived == sent, "bytes differ");
}

fn parts_are_gathered(near: &mut dyn Interface, far: &mut dyn Interface) {
    let frame = probe(near.properties().link, 200, 3);
    let (head, rest) = frame.split_at(42);
    let (one, two) = rest.split_at(57);
    let empty: &[u8] = &[];
    for parts in
        [[head, one, two], [head, rest, empty], [head, empty, rest], [&frame, empty, empty]]
    {
        send_now(near, &Outgoing { vnet: vnet::Header::NONE, parts }).unwrap();
        assert_eq!(receive_one(far, "gathered"), frame);
    }
}

fn the_budget_is_kept(near: &mut dyn Interface, far: &mut dyn Interface) {
    assert_eq!(near.receive(10, &mut |_| panic!("nothing was sent")), Ok(0));
    let link = far.properties().link;
    for mark in 0..10 {
        send_now(far, &Outgoing::plain(&probe(link, 100, mark))).unwrap();
    }
    assert_eq!(near.receive(0, &mut |_| panic!("no budget")), Ok(0));
    let mut count = 0;
    let deadline = Instant::now() + LIMIT;
    while count < 10 {
        let mut called = 0;
        let received = near.receive(3, &mut |_| called += 1).unwrap();
        assert_eq!(received, called);
        assert!(received <= 3);
        count += received;
        assert!(received > 0 || wait(near, deadline), "ten frames");
    }
    assert_eq!((count, near.receive(3, &mut |_| ())), (10, Ok(0)));
}

fn the_descriptor_tells(near: &mut dyn Interface, far: &mut dyn Interface) {
    if near.wait_fd().is_none() {
        return;
    }
    assert!(!shows(near, PollFlags::IN), "nothing there");
    assert!(shows(near, PollFlags::OUT), "room");
    let frame = probe(far.properties().link, 100, 0);
    send_now(far, &Outgoing::plain(&frame)).unwrap();
    let deadline = Instant::now() + LIMIT;
    while !shows(near, PollFlags::IN) {
        assert!(Instant::now() < deadline, "readable");
    }
    receive_one(near, "the one it told of");
    assert!(!shows(near, PollFlags::IN), "nothing there any more");
    assert_eq!(near.take_error(), None);
}

/// More frames than a small ring has slots, both ways, taken in time.
fn a_burst_is_held(near: &mut dyn Interface, far: &mut dyn Interface) {
    fn one_way(source: &mut dyn Interface, target: &mut dyn Interface) {
        let link = source.properties().link;
        let mut next = 0u32;
        for sent in 0..500u32 {
            let mut frame = probe(link, 1000, 0);
            frame[900..904].copy_from_slice(&sent.to_ne_bytes());
            send_now(source, &Outgoing::plain(&frame)).unwrap();
            if sent % 20 == 19 {
                receive_until(target, "a burst", |received| {
                    assert_eq!(received.frame[900..904], next.to_ne_bytes());
                    next += 1;
                    next == sent + 1
                });
            }
        }
    }
    one_way(far, near);
    one_way(near, far);
}

fn too_long_is_refused(near: &mut dyn Interface) {
    let link = near.properties().link;
    // The frame is longer than with two tags.
    let frame = probe(link, near.properties().mtu + ethernet::HEADER_BYTES_MAX + 1, 0);
    assert_eq!(send_now(near, &Outgoing::plain(&frame)), Err(SendError::TooLong));
}

fn checksums_are_completed_or_marked(source: &mut dyn Interface, target: &mut dyn Interface) {
    let link = source.properties().link;
    for protocol in [Protocol::Udp, Protocol::Tcp] {
        let headers = frames::headers(link, NOBODY, NOBODY, frames::flow(protocol, 1000, 2000));
        // The payload has an odd length, in two odd parts.
        let payload = pattern(333, 5);
        let (one, two) = payload.split_at(101);
        let front = match protocol {
            Protocol::Udp => Front::udp(&headers, &[one, two], Offload::Checksum),
            Protocol::Tcp => {
                let tcp = frames::tcp_header(1, 2, Flags::ACK);
                Front::tcp(&headers, &tcp, &[one, two], Offload::Checksum)
            }
        };
        let sent = send_now(source, &front.with(one, two));
        if !source.properties().checksum_offload {
            assert_eq!(sent, Err(SendError::NoOffload));
            continue;
        }
        sent.unwrap();
        receive_until(target, "a partial checksum", |received| {
            let frame = frame::parse(received.frame, link).unwrap();
            assert_eq!(frame.payload(), payload);
            assert!(!received.vnet.must_verify() || frame.checksum_is_right());
            true
        });
    }
}

const SEGMENT: u16 = 1448;

/// A TCP segment of 60,000 bytes, to be cut.
fn long_segment(link: LinkType, payload: &[u8]) -> Front {
    let headers = frames::headers(link, NOBODY, NOBODY, frames::flow(Protocol::Tcp, 1000, 2000));
    let tcp = frames::tcp_header(1, 2, Flags::ACK | Flags::PSH);
    Front::tcp(&headers, &tcp, &[payload], Offload::Segments(SEGMENT))
}

fn segments_stay_together(near: &mut dyn Interface, far: &mut dyn Interface) {
    let link = near.properties().link;
    let payload = pattern(60_000, 1);
    let front = long_segment(link, &payload);
    let (one, two) = payload.split_at(33_333);
    if near.properties().gso_max == 0 {
        assert_eq!(near.send(&front.with(one, two)), Err(SendError::NoOffload));
        return;
    }
    send_now(near, &front.with(one, two)).unwrap();
    receive_until(far, "a long segment", |received| {
        let segments = received.vnet.segments.unwrap();
        assert_eq!((segments.kind, segments.size), (vnet::SegmentKind::TcpV4, SEGMENT));
        assert!(!received.vnet.must_verify());
        assert!(received.frame[front.bytes.len()..] == payload);
        true
    });
    // The payload is longer than any packet.
    let longer = vec![0; 66_000];
    let refused = near.send(&front.with(&longer, &[]));
    // A packet socket leaves the check to the kernel, which does not always report it.
    assert!(refused == Err(SendError::TooLong) || near.wait_fd().is_some(), "{refused:?}");
    while far.receive(64, &mut |_| ()).unwrap() > 0 {}
}

/// Receives long frames of a host that segments late.
fn segments_from_far_end(near: &mut dyn Interface, far: &mut dyn Interface) {
    if near.properties().gso_max == 0 {
        return;
    }
    let link = near.properties().link;
    // Several long frames between short ones: the order is kept between frames in slots and frames
    // in the queue.
    let short = probe(link, 100, 9);
    let payloads: Vec<_> = (0..4).map(|mark| pattern(15_000 * (mark + 1), mark as u8)).collect();
    for payload in &payloads {
        send_now(far, &Outgoing::plain(&short)).unwrap();
        send_now(far, &long_segment(link, payload).with(payload, &[])).unwrap();
    }
    let mut turn = 0;
    receive_until(near, "long segments from the far end", |received| {
        if turn % 2 == 0 {
            assert_eq!(received.frame, short);
            assert_eq!(received.vnet.segments, None);
        } else {
            let frame = frame::parse(received.frame, link).unwrap();
            assert!(frame.payload() == payloads[turn / 2]);
            assert_eq!(received.vnet.segments.map(|segments| segments.size), Some(SEGMENT));
        }
        turn += 1;
        turn == 8
    });
    let counts = near.statistics();
    assert_eq!((counts.truncated, counts.damaged, counts.overruns), (0, 0, 0));
}

fn tags_are_seen(source: &mut dyn Interface, target: &mut dyn Interface) {
    if source.properties().link != LinkType::Ethernet {
        return;
    }
    let mut frame = probe(LinkType::Ethernet, 200, 4);
    let tag = VlanTag { ether_type: EtherType::VLAN, control: 0x6005 };
    let words = [tag.ether_type.0.to_be_bytes(), tag.control.to_be_bytes()];
    frame.splice(12..12, words.as_flattened().iter().copied());
    send_now(source, &Outgoing::plain(&frame)).unwrap();
    receive_until(target, "a tag", |received| {
        let parsed = frame::parse(received.frame, LinkType::Ethernet).unwrap();
        let within = parsed.ethernet.and_then(|header| header.tags[0]);
        assert_eq!(received.tag.or(within), Some(tag));
        assert_eq!(parsed.payload(), &frame[46..]);
        true
    });
}

fn own_frames_are_not_received(near: &mut dyn Interface, far: &mut dyn Interface) {
    let frame = probe(near.properties().link, 100, 8);
    send_now(near, &Outgoing::plain(&frame)).unwrap();
    assert_eq!(receive_one(far, "there"), frame);
    // When the frame has arrived at the far end, the near interface has processed it.
    near.receive(64, &mut |received| assert_ne!(received.frame, frame)).unwrap();
}

fn frames_are_counted(near: &mut dyn Interface, far: &mut dyn Interface) {
    let before = near.statistics();
    let frame = probe(near.properties().link, 100, 2);
    for _ in 0..3 {
        send_now(near, &Outgoing::plain(&frame)).unwrap();
        receive_one(far, "out");
        send_now(far, &Outgoing::plain(&frame)).unwrap();
        receive_one(near, "in");
    }
    let after = near.statistics();
    assert_eq!((after.sent, after.received), (before.sent + 3, before.received + 3));
    assert_eq!((after.truncated, after.damaged), (before.truncated, before.damaged));
}

fn changes_are_seen(near: &mut dyn Interface, lab: &Lab, device: &str) {
    let before = *near.properties();
    lab.near_ip(&format!("link set {device} mtu 1400"));
    assert_eq!(*near.properties(), before, "not before it is asked");
    near.refresh().unwrap();
    assert_eq!(near.properties().mtu, 1400);
    lab.near_ip(&format!("link set {device} mtu 1500"));
    near.refresh().unwrap();
    assert_eq!(*near.properties(), before);
}

fn a_link_that_was_down_works_again(
    near: &mut dyn Interface,
    far: &mut dyn Interface,
    lab: &Lab,
    device: &str,
) {
    let frame = probe(near.properties().link, 100, 6);
    lab.near_ip(&format!("link set {device} down"));
    let down = Err(SendError::Link(LinkError::Down));
    // A pending error is reported first.
    let mut refused = send_now(near, &Outgoing::plain(&frame));
    if shows(near, PollFlags::ERR) {
        assert_eq!(near.take_error(), Some(LinkError::Down));
        refused = send_now(near, &Outgoing::plain(&frame));
    }
    assert_eq!(refused, down);
    assert!(!shows(near, PollFlags::ERR), "an error is told once");
    assert_eq!(near.take_error(), None);
    assert_eq!(near.receive(8, &mut |_| ()), Ok(0));
    lab.near_ip(&format!("link set {device} up"));
    // The far end has the error too.
    far.take_error();
    until_it_carries(near, far);
    until_it_carries(far, near);
    send_now(far, &Outgoing::plain(&frame)).unwrap();
    receive_until(near, "back", |received| received.frame == frame);
}
