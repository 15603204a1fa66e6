//! Control messages beside those that the kernel makes of the same datagram, for every length of
//! room.

use super::*;
use rustix::fd::AsFd;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// The byte with which the room is filled before, to find padding.
const FILL: u8 = 0xa5;

/// Returns the data that the kernel puts into so many bytes of room, its length, and if it was
/// truncated. The datagram stays.
fn of_kernel(socket: &UdpSocket, room: usize) -> (Vec<u8>, usize, bool) {
    let mut control = [FILL; DatagramAncillary::LEN_MAX];
    // SAFETY: zeroes are an empty header; the buffers live long enough.
    let header = unsafe {
        let mut header: libc::msghdr = core::mem::zeroed();
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = room;
        let got = libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_PEEK);
        assert!(got >= 0, "{}", std::io::Error::last_os_error());
        header
    };
    let is_cut = header.msg_flags & libc::MSG_CTRUNC != 0;
    (control.to_vec(), header.msg_controllen, is_cut)
}

fn of_ours(ancillary: &DatagramAncillary, room: usize) -> (Vec<u8>, usize, bool) {
    let mut control = [FILL; DatagramAncillary::LEN_MAX];
    let written = ancillary.write(room, |at, part| {
        assert!(at + part.len() <= room, "beyond the room");
        control[at..at + part.len()].copy_from_slice(part);
    });
    (control.to_vec(), written.len, written.is_cut)
}

/// Returns what the same messages become that another process has written.
fn of_another(ancillary: &DatagramAncillary, room: usize) -> (Vec<u8>, usize, bool) {
    let (all, len, _) = of_ours(ancillary, DatagramAncillary::LEN_MAX);
    of_bytes(&all[..len], room)
}

fn of_bytes(bytes: &[u8], room: usize) -> (Vec<u8>, usize, bool) {
    let mut control = [FILL; DatagramAncillary::LEN_MAX];
    let written = ControlMessages::of(bytes).write(room, |at, part| {
        assert!(at + part.len() <= room, "beyond the room");
        control[at..at + part.len()].copy_from_slice(part);
    });
    (control.to_vec(), written.len, written.is_cut)
}

fn set(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    let len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: `value` is a number of that length.
    let status = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    assert_eq!(status, 0, "{level} {name}: {}", std::io::Error::last_os_error());
}

/// A socket with those options set to which another has sent, to `to`; `None`: there is no such
/// family here.
fn received(local: &str, to: &str, options: &[(i32, i32)]) -> Option<UdpSocket> {
    let socket = UdpSocket::bind((local, 0)).ok()?;
    options.iter().for_each(|(level, name)| set(&socket, *level, *name, 1));
    let sender = UdpSocket::bind((to, 0)).ok()?;
    let is_v4 = sender.local_addr().unwrap().is_ipv4();
    match is_v4 {
        true => set(&sender, libc::IPPROTO_IP, libc::IP_TOS, 0xb9),
        false => set(&sender, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, 0xb9),
    }
    let target = (to, socket.local_addr().unwrap().port());
    sender.send_to(b"", target).unwrap();
    Some(socket)
}

/// Returns the library's data for the same datagram. The time is the kernel's, of the message that
/// begins there.
fn received_from(socket: &UdpSocket, to: &str, time_at: Option<usize>) -> DatagramAncillary {
    let (control, ..) = of_kernel(socket, DatagramAncillary::LEN_MAX);
    let word = |at: usize| u64::from_ne_bytes(control[at..at + 8].try_into().unwrap());
    let bits = wanted(socket.as_fd());
    let is_fine = bits & (wants::NANOSECONDS | wants::NANOSECONDS_NEW) != 0;
    let scale = if is_fine { 1 } else { 1_000 };
    let time_ns = time_at.map_or(0, |at| word(at) * 1_000_000_000 + word(at + 8) * scale);
    let target = to.parse().unwrap();
    let envelope = Envelope { target, traffic_class: 0xb9, hop_limit: 64, time_ns };
    // The loopback interface.
    DatagramAncillary { wants: bits, envelope, interface: 1, segment_size: 0 }
}

const V4: [(i32, i32); 3] = [
    (libc::IPPROTO_IP, libc::IP_RECVTOS),
    (libc::IPPROTO_IP, libc::IP_RECVTTL),
    (libc::IPPROTO_IP, libc::IP_PKTINFO),
];
const V6: [(i32, i32); 3] = [
    (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT),
    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
];

/// The address to which the socket is bound, the address to which it is sent, and the options that
/// are set.
type Case<'c> = (&'c str, &'c str, &'c [(i32, i32)]);

#[test]
fn messages_are_the_kernels_for_every_length_of_room() {
    let all = [V4, V6].concat();
    let cases: [Case<'_>; 8] = [
        ("127.0.0.1", "127.0.0.1", &[]),
        ("127.0.0.1", "127.0.0.1", &V4),
        ("127.0.0.1", "127.0.0.1", &V4[..1]),
        ("0.0.0.0", "127.0.0.1", &V4[1..]),
        ("::1", "::1", &V6),
        ("::1", "::1", &all),
        ("::", "127.0.0.1", &all),
        ("::", "127.0.0.1", &V6),
    ];
    for (local, to, options) in cases {
        for time in [None, Some(libc::SO_TIMESTAMP), Some(libc::SO_TIMESTAMPNS), Some(63), Some(64)]
        {
            let time = time.map(|name| (libc::SOL_SOCKET, name));
            let options: Vec<_> = options.iter().copied().chain(time).collect();
            let Some(socket) = received(local, to, &options) else { continue };
            let ancillary = received_from(&socket, to, time.map(|_| 16));
            for room in 0..DatagramAncillary::LEN_MAX {
                let name = format!("{local} {to} {options:?} {room}");
                assert_eq!(of_ours(&ancillary, room), of_kernel(&socket, room), "{name}");
                assert_eq!(of_another(&ancillary, room), of_ours(&ancillary, room), "{name}");
            }
        }
    }
}

#[test]
fn merged_ones_are_told_after_the_time_and_before_the_rest() {
    let envelope = Envelope {
        target: "192.0.2.1".parse().unwrap(),
        traffic_class: 1,
        hop_limit: 2,
        time_ns: 3_000_004_000,
    };
    let wants = wants::TIME | wants::TTL;
    let ancillary = DatagramAncillary { wants, envelope, interface: 5, segment_size: 1200 };
    let (control, len, is_cut) = of_ours(&ancillary, DatagramAncillary::LEN_MAX);
    let word = |at: usize| u64::from_ne_bytes(control[at..at + 8].try_into().unwrap());
    let number = |at: usize| i32::from_ne_bytes(control[at..at + 4].try_into().unwrap());
    assert_eq!((word(0), word(16), word(24)), (32, 3, 4));
    assert_eq!([32 + 8, 32 + 12, 32 + 16].map(number), [libc::SOL_UDP, UDP_GRO, 1200]);
    assert_eq!([56 + 8, 56 + 12, 56 + 16].map(number), [libc::IPPROTO_IP, libc::IP_TTL, 2]);
    assert_eq!((len, is_cut), (80, false));
    assert!(
        DatagramAncillary { wants: 0, segment_size: 0, ..ancillary }.write(0, |_, _| {})
            == Written::default()
    );
}

#[test]
fn of_another_process_only_whole_messages_are_believed_and_none_about_processes() {
    let message = |len: usize, level: i32, kind: i32, data: &[u8]| {
        let numbers = [level.to_ne_bytes(), kind.to_ne_bytes()].concat();
        [&len.to_ne_bytes()[..], &numbers, data].concat()
    };
    let nothing = (vec![FILL; DatagramAncillary::LEN_MAX], 0, false);
    for kind in OF_PROCESSES {
        let bytes = message(24, libc::SOL_SOCKET, kind, &[0; 8]);
        assert_eq!(of_bytes(&bytes, 200), nothing, "{kind}");
    }
    let good = message(24, libc::IPPROTO_IP, libc::IP_TTL, &[7; 8]);
    for len in [0, 15, 41, usize::MAX] {
        let bad = message(len, libc::IPPROTO_IP, libc::IP_TTL, &[7; 24]);
        assert_eq!(of_bytes(&bad, 200), nothing, "{len}");
        assert_eq!(of_bytes(&[&good[..], &bad].concat(), 200), of_bytes(&good, 200), "{len}");
    }
    let (control, len, is_cut) = of_bytes(&good, 200);
    assert_eq!((&control[..24], len, is_cut), (&good[..], 24, false));
}
