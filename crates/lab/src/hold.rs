//! Holding the lock of a pipe, of a socket, or of a file of memory, for as long as one likes, as
//! any program can: it writes from a page that does not come.
//!
//! It does not come because of userfaultfd(2), or because it is of a file in a file system in user
//! space. Not here: that file system (`fuse` of the server's tests).
#![allow(unsafe_code, reason = "a page that is never there")]
#![allow(clippy::unwrap_used, reason = "only tests use this, and end by panicking")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::fs::{FileType, fstat};

/// `linux/userfaultfd.h`.
const USERFAULTFD_IOC_NEW: libc::c_ulong = 0xaa00;
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const UFFD_API: u64 = 0xaa;
const MISSING: u64 = 1;
const PAGE: usize = 4096;

/// Opens the device that an administrator may give a program so that it can have such pages without
/// privileges; `None`: there is no such device here.
pub fn faults() -> Option<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open("/dev/userfaultfd");
    if file.is_err() {
        eprintln!("skipped: no /dev/userfaultfd");
    }
    file.ok().map(OwnedFd::from)
}

/// A thread of this process writes to that pipe, socket or file until the process ends, from a page
/// that `source` makes: the device of [`faults`], or a file that does not come. True once it holds
/// the lock; of a file its file system says that.
pub fn hold(source: OwnedFd, object: OwnedFd) -> bool {
    let kind = FileType::from_raw_mode(fstat(&source).unwrap().st_mode);
    if kind == FileType::RegularFile {
        write_from(page_of(&source), object);
        return true;
    }
    let MissingPage { address, faults } = page(&source);
    write_from(address, object);
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

/// A page that is not there.
struct MissingPage {
    address: usize,
    /// The descriptor on which the kernel reports threads that want the page.
    faults: OwnedFd,
}

/// Makes a page that is not there.
fn page(device: &OwnedFd) -> MissingPage {
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
        MissingPage { address: page as usize, faults }
    }
}
