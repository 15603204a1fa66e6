//! Test of an owner with an AF_XDP socket: its sessions' frames go there, and to its packet socket
//! when the AF_XDP socket is gone.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
#![allow(unsafe_code, reason = "AF_XDP sockets")]

mod common;

use common::{attached, filter, receive, receive_with, two_hosts, wait_for};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use sojourn_filter::{Key, NewOwner, Options, Reason};
use sojourn_wire::Protocol;
use std::net::UdpSocket;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

const FRAMES: usize = 64;
const FRAME_LEN: usize = 4096;
const FILL_RING_OFFSET: i64 = 0x1_0000_0000;

/// A receiving AF_XDP socket with its memory, which stays mapped until the test ends.
struct Xsk {
    socket: OwnedFd,
    memory: *const u8,
    /// The fill ring and the receive ring, with their lengths.
    rings: [(*mut u8, usize); 2],
    received: *const u8,
    offsets: libc::xdp_mmap_offsets,
}

fn set<T>(socket: &OwnedFd, name: i32, value: &T) {
    // SAFETY: the kernel reads as many bytes as the value has.
    let result = unsafe {
        let (at, len) = (std::ptr::from_ref(value).cast(), size_of::<T>() as u32);
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, at, len)
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

fn map(fd: i32, len: usize, flags: i32, offset: i64) -> *mut u8 {
    // SAFETY: a new mapping, which replaces no other.
    let at = unsafe {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(null_mut(), len, rights, flags | libc::MAP_POPULATE, fd, offset)
    };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

impl Xsk {
    fn new(interface: u32) -> Self {
        // SAFETY: the descriptor is new.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        let len = FRAMES * FRAME_LEN;
        let memory = map(-1, len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, 0);
        let area = [memory as u64, len as u64, FRAME_LEN as u64];
        set(&socket, libc::XDP_UMEM_REG, &area);
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            set(&socket, ring, &(FRAMES as u32));
        }
        // SAFETY: all zeros are a valid value of the structure, and the kernel is told its length.
        let offsets = unsafe {
            let mut offsets: libc::xdp_mmap_offsets = std::mem::zeroed();
            let mut len = size_of_val(&offsets) as u32;
            let at = (&raw mut offsets).cast();
            let fd = socket.as_raw_fd();
            let name = libc::XDP_MMAP_OFFSETS;
            assert_eq!(libc::getsockopt(fd, libc::SOL_XDP, name, at, &raw mut len), 0);
            offsets
        };
        let fd = socket.as_raw_fd();
        let rings = [
            (offsets.fr.desc as usize + FRAMES * 8, FILL_RING_OFFSET),
            (offsets.rx.desc as usize + FRAMES * 16, 0),
        ];
        let rings = rings.map(|(len, at)| (map(fd, len, libc::MAP_SHARED, at), len));
        let [(fill, _), (received, _)] = rings;
        for frame in 0..FRAMES {
            // SAFETY: within the ring, as its offsets say; nothing else writes there.
            unsafe {
                let at = fill.add(offsets.fr.desc as usize).cast::<u64>().add(frame);
                at.write((frame * FRAME_LEN) as u64);
            }
        }
        // SYNC: pairs with the kernel's load of the producer, after which it reads the frames'
        // places.
        counter(fill, offsets.fr.producer).store(FRAMES as u32, Ordering::Release);
        let address = [libc::AF_XDP as u16, libc::XDP_COPY, interface as u16, 0, 0, 0, 0, 0];
        // SAFETY: an address of that length.
        let result =
            unsafe { libc::bind(fd, address.as_ptr().cast(), size_of_val(&address) as u32) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        Self { socket, memory, rings, received, offsets }
    }

    /// Returns frame number `nth`, if it has arrived.
    fn frame(&self, nth: u32) -> Option<&[u8]> {
        // SYNC: pairs with the kernel's store of the producer, before which it writes the frames.
        if counter(self.received, self.offsets.rx.producer).load(Ordering::Acquire) <= nth {
            return None;
        }
        // SAFETY: the kernel has written this descriptor and its frame, and no longer touches
        // either.
        unsafe {
            let at = self.received.add(self.offsets.rx.desc as usize).cast::<libc::xdp_desc>();
            let place = at.add(nth as usize).read();
            Some(std::slice::from_raw_parts(
                self.memory.add(place.addr as usize),
                place.len as usize,
            ))
        }
    }
}

impl Drop for Xsk {
    fn drop(&mut self) {
        for (at, len) in self.rings {
            // A ring that is mapped keeps the socket open. SAFETY: mapped by `new`, and not used
            // any more.
            assert_eq!(unsafe { libc::munmap(at.cast(), len) }, 0);
        }
    }
}

fn counter<'a>(ring: *const u8, offset: u64) -> &'a AtomicU32 {
    // SAFETY: mapped as long as the socket, aligned, and used as an atomic by both sides.
    unsafe { AtomicU32::from_ptr(ring.add(offset as usize).cast_mut().cast()) }
}

#[test]
fn frames_go_to_the_owners_xdp_socket_first() {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let far = two.run(|| UdpSocket::bind("10.0.0.2:6000").unwrap());
        let key = |port| Key::new(Protocol::Udp, ([10, 0, 0, 1], port).into(), None).unwrap();
        let NewOwner { owner, socket } = filter.add_owner(|_| Ok(())).unwrap();
        let NewOwner { owner: other, socket: others } = filter.add_owner(|_| Ok(())).unwrap();
        let kernels = UdpSocket::bind("10.0.0.1:5002").unwrap();
        filter.add_flow(key(5000), owner).unwrap();
        filter.add_flow(key(5001), other).unwrap();
        let xsk = Xsk::new(filter.interface().index);
        filter.set_xsks(owner, &[xsk.socket.as_fd()]).unwrap();
        assert!(attached().contains(&"Xdp sojourn_xdp eth0".to_owned()));
        let send = |text: &str, port: u16| {
            far.send_to(text.as_bytes(), std::net::SocketAddr::from(([10, 0, 0, 1], port)))
                .unwrap();
        };

        send("to the socket", 5000);
        let frame = wait_for("frame", || xsk.frame(0));
        assert!(common::has(frame, b"to the socket"));
        send("to the other", 5001);
        receive_with(&others, b"to the other");
        send("to the kernel", 5002);
        kernels.recv(&mut [0; 64]).unwrap();
        assert_eq!(receive(&socket), None, "a frame goes one way only");
        assert!(xsk.frame(1).is_none());
        assert_eq!(filter.counts().unwrap().of(Reason::TakenXsk), 1);

        // The XDP program goes with the last session, and comes back with the next one.
        filter.remove_flow(&key(5000)).unwrap();
        filter.remove_flow(&key(5001)).unwrap();
        assert_eq!(attached(), [""; 0]);
        filter.add_flow(key(5000), owner).unwrap();
        send("to the socket again", 5000);
        let frame = wait_for("frame", || xsk.frame(1));
        assert!(common::has(frame, b"to the socket again"));

        drop(xsk);
        // The kernel removes a closed socket from the map a moment later.
        wait_for("frame", || {
            send("to the packet socket", 5000);
            receive(&socket).filter(|frame| common::has(frame, b"to the packet socket"))
        });
        filter.remove_flow(&key(5000)).unwrap();
        assert_eq!(attached(), [""; 0]);
    });
}
