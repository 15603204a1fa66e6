//! Tests of links without a link header: a tun device, whose far side is this test.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![cfg(debug_assertions)]
#![allow(unsafe_code, reason = "tun devices")]

mod common;

use common::{Host, has, receive_with, wait_for};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use sojourn_filter::samples::{frame, keys};
use sojourn_filter::{AttachError, Filter, NewOwner, Options, Reason};
use std::process::Command;

const TUNSETIFF: libc::c_ulong = 0x4004_54ca;
const IFF_TUN: u16 = 1;
const IFF_NO_PI: u16 = 0x1000;
const HEADER_LEN: usize = 14;

/// Makes a tun device `tun0` with the samples' addresses and sets it up. Its packets are read from,
/// and written to, the descriptor.
fn tun() -> OwnedFd {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = open("/dev/net/tun", flags, Mode::empty()).unwrap();
    let mut request = [0_u8; 40];
    request[..4].copy_from_slice(b"tun0");
    request[16..18].copy_from_slice(&(IFF_TUN | IFF_NO_PI).to_ne_bytes());
    // SAFETY: the request has the length that the kernel reads and writes.
    let result = unsafe { libc::ioctl(tun.as_raw_fd(), TUNSETIFF, request.as_mut_ptr()) };
    assert_eq!(result, 0);
    for arguments in
        ["addr add 10.0.0.1/24 dev tun0", "addr add fd00::1/64 dev tun0", "link set tun0 up"]
    {
        assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success());
    }
    tun
}

#[test]
fn packets_without_link_header() {
    let Some(host) = Host::new() else { return };
    host.run(|| {
        let tun = tun();
        let mut filter = match Filter::attach("tun0", Options::default()) {
            Err(AttachError::Unavailable { .. }) => return eprintln!("skipped: not built"),
            filter => filter.unwrap(),
        };
        let NewOwner { owner, socket } = filter.add_owner(|_| Ok(())).unwrap();
        let port = filter.open_port(false).unwrap();
        for key in keys() {
            let packet = frame(&key, false).split_off(HEADER_LEN);
            filter.add_flow(key, owner).unwrap();
            rustix::io::write(&tun, &packet).unwrap();
            assert_eq!(receive_with(&socket, &[b'x'; 20]), packet, "{key}");
            filter.remove_flow(&key).unwrap();

            filter.add_flow(key, port.owner).unwrap();
            rustix::io::write(&tun, &packet).unwrap();
            let framed = receive_with(&port.descriptor, &[b'x'; 20]);
            assert_eq!(framed[HEADER_LEN..], packet, "{key}");
            assert_eq!(framed[..6], port.mac.0);
            assert_eq!(framed[12..14], frame(&key, false)[12..14]);
            filter.remove_flow(&key).unwrap();
        }
        let counts = filter.counts().unwrap();
        let keys = keys().len() as u64;
        assert_eq!((counts.of(Reason::TakenDirect), counts.of(Reason::TakenPort)), (keys, keys));
        assert_eq!(counts.refused(), 0);
    });
}

#[test]
fn a_port_of_a_link_without_header() {
    const VNET_HDR: i32 = 15;
    let Some(host) = Host::new() else { return };
    host.run(|| {
        let tun = tun();
        let mut filter = match Filter::attach("tun0", Options::default()) {
            Err(AttachError::Unavailable { .. }) => return eprintln!("skipped: not built"),
            filter => filter.unwrap(),
        };
        let port = filter.open_port(false).unwrap();
        let one = 1_i32;
        // SAFETY: the kernel reads an int.
        let result = unsafe {
            let at = (&raw const one).cast();
            libc::setsockopt(port.descriptor.as_raw_fd(), libc::SOL_PACKET, VNET_HDR, at, 4)
        };
        assert_eq!(result, 0);
        for key in keys() {
            filter.add_flow(key, port.owner).unwrap();
            let mut sent = frame(&key, true);
            sent[6..12].copy_from_slice(&port.mac.0);
            let start = HEADER_LEN + if key.local().is_ipv4() { 20 } else { 40 };
            let offset = if key.protocol() == sojourn_wire::Protocol::Tcp { 16 } else { 6 };
            // The offload header leaves the checksum from `start` on to the device.
            let mut message = vec![1, 0, 0, 0, 0, 0, start as u8, 0, offset, 0];
            message.extend(&sent);
            rustix::io::write(&port.descriptor, &message).unwrap();
            let mut buffer = [0; 2048];
            let packet = wait_for("packet", || {
                let len = rustix::io::read(&tun, &mut buffer[..]).ok()?;
                has(&buffer[..len], &[b'x'; 20]).then(|| buffer[..len].to_vec())
            });
            assert_eq!(packet.len(), sent.len() - HEADER_LEN, "{key}");
            assert_eq!(packet[..12], sent[HEADER_LEN..HEADER_LEN + 12], "{key}");
        }
        assert_eq!(filter.counts().unwrap().refused(), 0);
    });
}
