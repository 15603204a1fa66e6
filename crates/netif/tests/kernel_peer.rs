//! Exchanges with a kernel at the other end, with hand-made packets: ARP and a UDP echo over every
//! implementation; TCP and UDP with segments of up to 64 KB in both directions. Not here: tests
//! without a peer (`sockets`).
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::frames::{self, Front, flow, pattern, send_now, tcp_header};
use common::xsk::Steering;
use common::{FAR, FAR_DEVICE, LIMIT, Lab, NEAR, NEAR_DEVICE, receive_until, wait, with_xdp};
use rustix::net::sockopt;
use sojourn_netif::{
    Interface, LinkType, Message, Outgoing, PacketOptions, Ring, RingLayout, Xdp, XdpOptions, vnet,
};
use sojourn_wire::ethernet::{self, EtherType};
use sojourn_wire::frame::{self, Header, Offload};
use sojourn_wire::tcp::Flags;
use sojourn_wire::{FlowKey, MacAddress, Protocol, arp};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

fn message() -> Message {
    Message::open(NEAR_DEVICE, &PacketOptions::default()).unwrap()
}

fn ring() -> Ring {
    Ring::open(NEAR_DEVICE, &PacketOptions::default(), RingLayout::default()).unwrap()
}

fn ring_of_large_slots() -> Ring {
    let layout = RingLayout { slot_len: 17 * 4096, slots: 64 };
    Ring::open(NEAR_DEVICE, &PacketOptions::default(), layout).unwrap()
}

/// Answers one frame of the kernel: an ARP request for the near address, or a datagram to echo.
fn answer(near: &mut dyn Interface, frame: &[u8], vnet: vnet::Header) {
    let own = near.properties().address.unwrap();
    let ethernet::Parsed { header: link, payload: packet } =
        ethernet::Header::parse(frame).unwrap();
    if link.ether_type == EtherType::ARP {
        let question = arp::Message::parse(packet).unwrap();
        if question.operation != arp::Operation::Request || question.target != Ipv4Addr::from(NEAR)
        {
            return;
        }
        let mut reply = [0; 42];
        let header = ethernet::Header::new(own, question.source_mac, EtherType::ARP);
        header.emit(&mut reply).unwrap();
        let answer = arp::Message {
            operation: arp::Operation::Reply,
            source_mac: own,
            source: question.target,
            target_mac: question.source_mac,
            target: question.source,
        };
        answer.emit(&mut reply[14..]).unwrap();
        return send_now(near, &Outgoing::plain(&reply)).unwrap();
    }
    let Ok(parsed) = frame::parse(frame, LinkType::Ethernet) else { return };
    if parsed.datagram().is_none() {
        return;
    }
    assert!(!vnet.must_verify() || parsed.checksum_is_right());
    let headers = frames::headers(LinkType::Ethernet, own, link.source, parsed.key.reversed());
    let may_leave = near.properties().checksum_offload;
    let offload = if may_leave { Offload::Checksum } else { Offload::Nothing };
    let front = Front::udp(&headers, &[parsed.payload()], offload);
    send_now(near, &front.with(parsed.payload(), &[])).unwrap();
}

/// Echoes datagrams of several sizes; the kernel asks for the link address first.
fn echo(lab: &Lab, near: &mut dyn Interface) {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            lab.far(|| {
                let socket = UdpSocket::bind((Ipv4Addr::from(FAR), 0)).unwrap();
                socket.set_read_timeout(Some(LIMIT)).unwrap();
                for len in [0, 1, 2, 17, 100, 512, 1024, 1471, 1472] {
                    let payload = pattern(len, 3);
                    socket.send_to(&payload, (Ipv4Addr::from(NEAR), 7)).unwrap();
                    let mut buffer = [0; 2000];
                    let (got, from) = socket.recv_from(&mut buffer).unwrap();
                    assert_eq!(from, SocketAddr::from((NEAR, 7)));
                    assert!(buffer[..got] == payload, "{len} bytes");
                }
                is_done.store(true, Ordering::Relaxed);
            });
        });
        let deadline = Instant::now() + LIMIT;
        while !is_done.load(Ordering::Relaxed) && wait(near, deadline) {
            let mut arrived = Vec::new();
            near.receive(64, &mut |received| {
                arrived.push((received.frame.to_vec(), received.vnet));
            })
            .unwrap();
            for (frame, vnet) in arrived {
                answer(near, &frame, vnet);
            }
        }
        kernel.join().unwrap();
    });
}

#[test]
fn a_kernel_resolves_and_is_echoed_by_messages() {
    let Some(lab) = Lab::new() else { return };
    echo(&lab, &mut lab.near(message));
}

#[test]
fn a_kernel_resolves_and_is_echoed_without_offloads() {
    let Some(lab) = Lab::new() else { return };
    let options = PacketOptions { vnet: false, ..PacketOptions::default() };
    echo(&lab, &mut lab.near(|| Message::open(NEAR_DEVICE, &options).unwrap()));
    echo(&lab, &mut lab.near(|| Ring::open(NEAR_DEVICE, &options, RingLayout::default()).unwrap()));
}

#[test]
fn a_kernel_resolves_and_is_echoed_by_a_ring() {
    let Some(lab) = Lab::new() else { return };
    echo(&lab, &mut lab.near(ring));
}

#[test]
fn a_kernel_resolves_and_is_echoed_by_a_ring_and_an_xdp_socket() {
    let Some(lab) = Lab::new() else { return };
    let mut near = lab.near(|| with_xdp(ring()));
    assert!(near.properties().checksum_offload, "checksums are left to the device");
    echo(&lab, &mut near);
}

#[test]
fn a_kernel_resolves_and_is_echoed_by_xdp() {
    let Some(lab) = Lab::new() else { return };
    let options = XdpOptions { trusts_checksums: true, ..XdpOptions::default() };
    let mut near = lab.near(|| Xdp::open(NEAR_DEVICE, &options).unwrap());
    let steering = lab.near(|| Steering::new(near.properties().index));
    steering.give(0, near.as_fd());
    echo(&lab, &mut near);
    assert_eq!(near.statistics().damaged, 0);
}

/// Makes both ends know each other's link address, and returns the far one.
fn introduce(lab: &Lab, near: &mut dyn Interface) -> MacAddress {
    lab.introduce(near.properties().address.unwrap());
    let far = lab.far(|| Message::open(FAR_DEVICE, &PacketOptions::default()).unwrap());
    far.properties().address.unwrap()
}

const SEGMENT: u16 = 1460;
/// Bytes sent in each direction.
const BYTES: usize = 2_000_000;

/// The near end of a TCP connection, by hand: no losses, no timers.
struct Speaker<'i> {
    near: &'i mut dyn Interface,
    headers: Header,
    flow: FlowKey,
    seq: u32,
    ack: u32,
    /// The sequence number that the peer has acknowledged.
    acknowledged: u32,
}

impl Speaker<'_> {
    fn send(&mut self, flags: Flags, payload: &[u8]) {
        let mut tcp = tcp_header(self.seq, self.ack, flags);
        if flags.contains(Flags::SYN) {
            tcp.options.mss = Some(SEGMENT);
            tcp.options.window_scale = Some(7);
        }
        let front = Front::tcp(&self.headers, &tcp, &[payload], Offload::Segments(SEGMENT));
        let (one, two) = payload.split_at(payload.len() / 3);
        send_now(self.near, &front.with(one, two)).unwrap();
        self.seq = self.seq.wrapping_add(payload.len() as u32 + flags.sequence_len());
    }

    /// Receives the arrived segments and appends the payload in order. Returns the longest payload
    /// of one frame, and true if a segment needs an answer.
    fn receive(&mut self, into: &mut Vec<u8>) -> (usize, bool) {
        let (mut longest, mut has_any) = (0, false);
        let reversed = self.flow.reversed();
        let (ack, acknowledged) = (&mut self.ack, &mut self.acknowledged);
        self.near
            .receive(64, &mut |received| {
                let Ok(frame) = frame::parse(received.frame, LinkType::Ethernet) else { return };
                if frame.key != reversed {
                    return;
                }
                assert!(!received.vnet.must_verify() || frame.checksum_is_right());
                let segment = frame.segment().unwrap();
                assert!(!segment.flags().contains(Flags::RST), "reset");
                *acknowledged = segment.ack().0;
                if segment.payload().len() > usize::from(SEGMENT) {
                    let segments = received.vnet.segments.unwrap();
                    assert_eq!(segments.kind, vnet::SegmentKind::TcpV4);
                    assert_eq!(segments.size, SEGMENT);
                }
                if segment.flags().contains(Flags::SYN) {
                    *ack = segment.seq().0;
                }
                // A duplicate segment is acknowledged again.
                has_any |= segment.sequence_len() > 0;
                if segment.seq().0 == *ack {
                    into.extend(segment.payload());
                    *ack = ack.wrapping_add(segment.sequence_len());
                    longest = longest.max(segment.payload().len());
                }
            })
            .unwrap();
        (longest, has_any)
    }

    fn until(&mut self, what: &str, mut is_enough: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_enough(self) {
            assert!(wait(self.near, deadline), "{what}: {:?}", self.near.statistics());
        }
    }
}

/// Transfers data in both directions over one connection, to the kernel in frames of 60,000 bytes.
/// Returns the length of the longest frame that the kernel sent.
fn bulk(lab: &Lab, near: &mut dyn Interface) -> usize {
    let far = introduce(lab, near);
    let own = near.properties().address.unwrap();
    let flow = flow(Protocol::Tcp, 3000, 5000);
    let headers = frames::headers(LinkType::Ethernet, own, far, flow);
    let listener = lab.far(|| TcpListener::bind((Ipv4Addr::from(FAR), 5000)).unwrap());
    // Other congestion controls may pace even on an idle link.
    sockopt::set_tcp_congestion(&listener, "cubic").unwrap();
    let (there, back) = (pattern(BYTES, 1), pattern(BYTES, 2));
    std::thread::scope(|scope| {
        let kernel = scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            stream.set_write_timeout(Some(LIMIT)).unwrap();
            let mut arrived = vec![0; BYTES];
            stream.read_exact(&mut arrived).unwrap();
            assert!(arrived == there, "bytes to the kernel");
            stream.write_all(&back).unwrap();
        });
        let mut speaker = Speaker { near, headers, flow, seq: 1000, ack: 0, acknowledged: 0 };
        let (mut arrived, mut longest) = (Vec::new(), 0);
        speaker.send(Flags::SYN, &[]);
        speaker.until("the answer to SYN", |speaker| speaker.receive(&mut arrived).1);
        speaker.send(Flags::ACK, &[]);
        let mut take = |speaker: &mut Speaker<'_>| {
            let (len, has_any) = speaker.receive(&mut arrived);
            longest = longest.max(len);
            if has_any {
                speaker.send(Flags::ACK, &[]);
            }
            arrived.len()
        };
        for part in there.chunks(60_000) {
            speaker.send(Flags::ACK | Flags::PSH, part);
            speaker.until("an acknowledgement", |speaker| {
                take(speaker);
                speaker.acknowledged == speaker.seq
            });
        }
        speaker.until("bytes from the kernel", |speaker| take(speaker) >= BYTES);
        assert!(arrived == back, "bytes from the kernel");
        kernel.join().unwrap();
        longest
    })
}

#[test]
fn tcp_with_long_segments_both_ways_by_messages() {
    let Some(lab) = Lab::new() else { return };
    let mut near = lab.near(message);
    let longest = bulk(&lab, &mut near);
    assert!(longest > 32_768, "the kernel sent {longest} bytes at once at most");
    assert_eq!((near.statistics().truncated, near.statistics().damaged), (0, 0));
}

#[test]
fn tcp_with_long_segments_both_ways_by_rings() {
    for open in [ring, ring_of_large_slots] {
        let Some(lab) = Lab::new() else { return };
        let mut near = lab.near(open);
        let longest = bulk(&lab, &mut near);
        assert!(longest > 32_768, "the kernel sent {longest} bytes at once at most");
        let counts = near.statistics();
        assert_eq!((counts.truncated, counts.damaged, counts.overruns), (0, 0, 0));
    }
}

/// Sends datagrams of 1000 bytes, twenty in a frame, to the kernel and from it.
/// Long segments by one socket, and acknowledgements and the rest by the other.
#[test]
fn tcp_with_long_segments_both_ways_by_a_ring_and_an_xdp_socket() {
    let Some(lab) = Lab::new() else { return };
    let mut near = lab.near(|| with_xdp(ring()));
    let longest = bulk(&lab, &mut near);
    assert!(longest > 1500, "{longest}");
}

#[test]
fn udp_segments_both_ways() {
    const LEN: usize = 1000;
    let Some(lab) = Lab::new() else { return };
    let mut near = lab.near(ring);
    let far = introduce(&lab, &mut near);
    let own = near.properties().address.unwrap();
    let socket = lab.far(|| UdpSocket::bind((Ipv4Addr::from(FAR), 4000)).unwrap());
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let headers = frames::headers(LinkType::Ethernet, own, far, flow(Protocol::Udp, 4001, 4000));
    let payload = pattern(20 * LEN, 7);
    let front = Front::udp(&headers, &[&payload], Offload::Segments(LEN as u16));
    send_now(&mut near, &front.with(&payload[..LEN], &payload[LEN..])).unwrap();
    let mut buffer = [0; 2 * LEN];
    for part in payload.chunks(LEN) {
        let (got, from) = socket.recv_from(&mut buffer).unwrap();
        assert_eq!(from, SocketAddr::from((NEAR, 4001)));
        assert!(buffer[..got] == *part);
    }
    set_udp_segment(&socket, LEN as i32);
    socket.send_to(&payload, (Ipv4Addr::from(NEAR), 4001)).unwrap();
    receive_until(&mut near, "segments of UDP", |received| {
        let frame = frame::parse(received.frame, LinkType::Ethernet).unwrap();
        assert!(frame.payload() == payload);
        let segments = received.vnet.segments.unwrap();
        assert_eq!((segments.kind, segments.size), (vnet::SegmentKind::Udp, LEN as u16));
        true
    });
}

/// Sets `UDP_SEGMENT`; udp(7).
#[allow(unsafe_code, reason = "nothing else has a function for the option")]
fn set_udp_segment(socket: &UdpSocket, len: i32) {
    // SAFETY: a number of the length given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const len).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(done, 0, "UDP_SEGMENT");
}
