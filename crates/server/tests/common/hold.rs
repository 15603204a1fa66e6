//! Holding the lock of a pipe, of a socket, or of a file of memory, for as long as one likes, as
//! any program can: it writes from a page that does not come.
//!
//! It does not come because of userfaultfd(2), or because it is of a file in a file system in user
//! space. Not here: that file system (`fuse`).
#![allow(unsafe_code, reason = "a page that is never there")]

use super::Fake;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::{FileType, fstat};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketType, sendmsg,
};
use std::io::IoSlice;

/// `linux/userfaultfd.h`.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const MISSING: u64 = 1;
const PAGE: usize = 4096;

/// Opens the device that an administrator may give a program so that it can have such pages without
/// privileges; `None`: there is no such device here.
pub(crate) fn faults() -> Option<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    if file.is_err() {
        eprintln!("skipped: no /dev/userfaultfd");
    }
    file.ok().map(OwnedFd::from)
}

/// A thread of this process writes to that pipe, socket or file until the process ends, from a page
/// that `source` makes: the device of [`faults`], or a file that does not come. True once it holds
/// the lock; of a file its file system says that.
pub(crate) fn hold(source: OwnedFd, object: OwnedFd) -> bool {
    let kind = FileType::from_raw_mode(fstat(&source).unwrap().st_mode);
    if kind == FileType::RegularFile {
        write_from(page_of(&source), object);
        return true;
    }
    let (page, faults) = page(&source);
    write_from(page, object);
    let patience = Timespec { tv_sec: 10, tv_nsec: 0 };
    let is_held = poll(&mut [PollFd::new(&faults, PollFlags::IN)], Some(&patience)) == Ok(1);
    // Its end would let the page come.
    std::mem::forget(faults);
    is_held
}

fn write_from(page: usize, object: OwnedFd) {
    std::thread::spawn(move || {
        // SAFETY: the kernel reads a byte of the page, if it ever comes.
        unsafe { libc::write(object.as_raw_fd(), page as *const libc::c_void, 1) };
    });
}

/// Returns the address of a file's first page.
fn page_of(file: &OwnedFd) -> usize {
    let (at, flags) = (core::ptr::null_mut(), libc::MAP_PRIVATE);
    // SAFETY: a new mapping, which stays.
    let page = unsafe { libc::mmap(at, PAGE, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page as usize
}

/// Returns the address of a page that is not there, and the descriptor on which the kernel reports
/// threads that want it.
fn page(device: &OwnedFd) -> (usize, OwnedFd) {
    // SAFETY: an ioctl that answers a new descriptor; a new mapping; two ioctls that read and write
    // what they are given.
    unsafe {
        let flags = libc::c_long::from(libc::O_CLOEXEC | libc::O_NONBLOCK);
        let fd = libc::ioctl(device.as_raw_fd(), USERFAULTFD_IOC_NEW, flags);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let faults = OwnedFd::from_raw_fd(fd);
        let (read, private) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let flags = private | libc::MAP_ANONYMOUS;
        let page = libc::mmap(core::ptr::null_mut(), PAGE, read, flags, -1, 0);
        assert_ne!(page, libc::MAP_FAILED);
        let mut api = [UFFD_API, 0, 0];
        assert_eq!(libc::ioctl(fd, UFFDIO_API, api.as_mut_ptr()), 0);
        let mut range = [page as u64, PAGE as u64, MISSING, 0];
        assert_eq!(libc::ioctl(fd, UFFDIO_REGISTER, range.as_mut_ptr()), 0);
        (page as usize, faults)
    }
}

impl Fake {
    /// Connects, and sends so many packets that are no greeting, with descriptors beside each.
    fn send_packets(&self, count: u64, fds: &[BorrowedFd<'_>]) {
        let socket = self.connected();
        for _ in 0..count {
            send_beside(&socket, b"what is no greeting, and as long as one.", fds);
        }
        std::mem::forget(socket);
    }

    /// Sends a session's end beside bytes that are no greeting, several times, and closes it.
    pub(super) fn send_held(&mut self, local: u64) -> String {
        let end = self.ends.remove(&local).unwrap();
        self.send_packets(3, &[end.as_fd()]);
        // It waits where nobody else has it any more.
        std::thread::spawn(move || drop(end));
        "ok".into()
    }

    /// The same with more descriptors than the server has room for; the held one is among the last.
    pub(super) fn send_many_held(&mut self, local: u64) -> String {
        let end = self.ends.remove(&local).unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let mut fds = [file.as_fd(); 64];
        fds[40..].fill(end.as_fd());
        self.send_packets(1, &fds);
        std::thread::spawn(move || drop(end));
        "ok".into()
    }

    /// So many connections with a packet each that is no greeting, and a descriptor beside it.
    pub(super) fn send_beside(&self, count: u64) -> String {
        let file = std::fs::File::open("/dev/null").unwrap();
        for _ in 0..count {
            self.send_packets(1, &[file.as_fd()]);
        }
        "ok".into()
    }

    /// So many clients, each of which sends as many descriptors beforehand as it may and no call
    /// (packets of `sojourn_ipc`: a greeting, and descriptors).
    pub(super) fn hoard(&self, clients: u64) -> String {
        let packet = |topic: u32, id: u32, words: [u64; 4]| {
            let head = [topic, id].into_iter().flat_map(u32::to_ne_bytes);
            head.chain(words.into_iter().flat_map(u64::to_ne_bytes)).collect::<Vec<u8>>()
        };
        let file = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        for _ in 0..clients {
            let socket = self.connected();
            let greeting = packet(1, 0, [0x534a_4950_4331_0001, 8 | 4096 << 32, 4096, 0]);
            let sent = rustix::net::send(&socket, &greeting, SendFlags::NOSIGNAL);
            if sent.is_err()
                || rustix::net::recv(&socket, &mut [0; 64], RecvFlags::empty()).is_err()
            {
                return "refused".into();
            }
            for batch in 0..16 {
                send_beside(&socket, &packet(5, 1000 + batch, [0; 4]), &[file.as_fd(); 16]);
            }
            std::mem::forget(socket);
        }
        "ok".into()
    }

    pub(super) fn connected(&self) -> OwnedFd {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let address = match self.server.strip_prefix('@') {
            Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            None => SocketAddrUnix::new(&*self.server),
        };
        rustix::net::connect(&socket, &address.unwrap()).unwrap();
        socket
    }
}

/// Sends a packet with descriptors beside it. The server may have hung up already.
fn send_beside(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}
