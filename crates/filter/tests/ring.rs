//! Test of a frame that is sent out of memory which its program can still write: the frame that
//! leaves is the frame that was checked.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![allow(unsafe_code, reason = "a mapped ring")]
#![cfg(debug_assertions)]

mod common;

use common::{filter, has, receive, two_hosts, wait_for};
use rustix::fd::{AsRawFd, OwnedFd};
use sojourn_filter::samples::{frame, keys};
use sojourn_filter::{Options, Reason};
use std::ptr::null_mut;

const VERSION: i32 = 10;
const TX_RING: i32 = 13;
const VNET_HDR: i32 = 15;
const RING_LEN: usize = 1 << 16;
/// Offsets in a slot: `struct tpacket2_hdr`, then `struct virtio_net_hdr`, then the frame.
const OFFLOAD: usize = 32;
const FRAME: usize = OFFLOAD + 10;
const SEND_REQUEST: u32 = 1;

/// A ring of one slot, from which the socket sends.
struct Ring(*mut u8);

impl Ring {
    fn new(socket: &OwnedFd) -> Self {
        set(socket, VERSION, &1_i32);
        set(socket, VNET_HDR, &1_i32);
        let len = RING_LEN as u32;
        set(socket, TX_RING, &[len, 1, len, 1]);
        // SAFETY: a new mapping, which replaces no other.
        let at = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(null_mut(), RING_LEN, rights, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at.cast())
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= RING_LEN);
        for (at, byte) in (at..).zip(bytes) {
            // SAFETY: within the mapping; the kernel may read it at any time, so the store is
            // volatile.
            unsafe { self.0.add(at).write_volatile(*byte) };
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and not used any more.
        assert_eq!(unsafe { libc::munmap(self.0.cast(), RING_LEN) }, 0);
    }
}

fn set<T>(socket: &OwnedFd, name: i32, value: &T) {
    // SAFETY: the kernel reads as many bytes as the value has.
    let result = unsafe {
        let (at, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as u32);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, name, at, len)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn what_was_checked_is_what_leaves() {
    let Some((one, two)) = two_hosts() else { return };
    let seen = two.run(|| common::tap("eth0"));
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let port = filter.open_port(false).unwrap();
        // The second sample is UDP over IPv4.
        let key = keys()[1];
        filter.add_flow(key, port.owner).unwrap();
        let mut bytes = frame(&key, true);
        // Long enough that the kernel does not copy the payload out of the ring.
        let text = [b'p'; 1000];
        bytes.truncate(42);
        bytes.extend(text);
        bytes[16..18].copy_from_slice(&1028_u16.to_be_bytes());
        bytes[38..40].copy_from_slice(&1008_u16.to_be_bytes());
        let ring = Ring::new(&port.descriptor);
        ring.write(OFFLOAD, &[1, 0, 0, 0, 0, 0, 34, 0, 6, 0]);
        ring.write(FRAME, &bytes);
        ring.write(4, &(10 + bytes.len() as u32).to_ne_bytes());
        ring.write(0, &SEND_REQUEST.to_ne_bytes());
        rustix::net::send(&port.descriptor, &[], rustix::net::SendFlags::empty()).unwrap();
        let counts = wait_for("frame", || {
            let counts = filter.counts().unwrap();
            (counts.of(Reason::Sent) + counts.refused() > 0).then_some(counts)
        });
        assert_eq!(counts.of(Reason::Sent), 1, "{counts:?}");
        // The frame lies in the queue of the tap. Now the ring gets another address, port and
        // payload.
        ring.write(FRAME + 26, &[10, 0, 0, 66]);
        ring.write(FRAME + 34, &[66, 66]);
        ring.write(FRAME + 600, b"changed");
        let arrived = wait_for("frame", || receive(&seen).filter(|frame| has(frame, &text[..200])));
        assert_eq!(arrived[26..40], bytes[26..40], "addresses, ports and length");
    });
}
