//! A frame in memory of its own, handed over by its descriptor: neither its bytes nor its size can
//! change any more, so that the receiver may read it where it is.
//!
//! See memfd_create(2), and fcntl(2), `F_ADD_SEALS`. Not here: memory that stays writable
//! (`sojourn_shm`).
#![allow(unsafe_code, reason = "a mapped frame is read as a slice")]

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::{Errno, IoSlice, writev};
use sojourn_netif::FRAME_BYTES_MAX;
use sojourn_shm::{Access, Mapping, Segment};

/// The seals after which nothing can change.
const SEALS: SealFlags =
    SealFlags::WRITE.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes memory that the parts of a frame fill, in order.
///
/// # Errors
/// Those of memfd_create(2), write(2) and fcntl(2).
pub(crate) fn seal(parts: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 refuse `MFD_NOEXEC_SEAL`, which is only a hardening.
    let fd = memfd_create("sojourn-frame", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("sojourn-frame", flags))?;
    let mut slices = [IoSlice::new(&[]), IoSlice::new(&[]), IoSlice::new(&[])];
    for (slice, part) in slices.iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    let whole: usize = parts.iter().map(|part| part.len()).sum();
    if writev(&fd, &slices)? != whole {
        return Err(Errno::NOMEM);
    }
    fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// A received frame, mapped.
#[derive(Debug)]
pub(crate) struct SealedFrame(Mapping);

impl SealedFrame {
    /// Maps memory of `len` bytes that a peer has sealed.
    ///
    /// # Errors
    /// `EINVAL` if it is no such memory, not of that size, empty, longer than a frame, or can still
    /// change.
    pub(crate) fn map(memory: OwnedFd, len: usize) -> Result<Self, Errno> {
        // The seals cannot be taken away, so what is asked first holds afterwards.
        let seals = fcntl_get_seals(&memory).map_err(|_| Errno::INVAL)?;
        if !seals.contains(SEALS) || !(1..=FRAME_BYTES_MAX).contains(&len) {
            return Err(Errno::INVAL);
        }
        let segment = Segment::accept(memory, len).map_err(|_| Errno::INVAL)?;
        segment.map(Access::Read).map(Self).map_err(|_| Errno::NOMEM)
    }

    /// Returns the frame.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is sealed against writing: no process has a writable mapping of it or
        // can get one, and no call changes it. The slice does not outlive the mapping.
        self.0.span(0, self.0.len()).map_or(&[], |span| unsafe { span.as_slice() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::ftruncate;
    use rustix::io::write;

    #[test]
    fn a_frame_arrives_and_can_not_change_any_more() {
        let fd = seal(&[b"head", b"", b"payload"]).unwrap();
        assert_eq!(write(&fd, b"x"), Err(Errno::PERM));
        assert_eq!(ftruncate(&fd, 0), Err(Errno::PERM));
        assert_eq!(SealedFrame::map(fd, 11).unwrap().bytes(), b"headpayload");
    }

    #[test]
    fn memory_that_could_change_and_lengths_that_are_wrong_are_refused() {
        let open = || {
            let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, 64).unwrap();
            fd
        };
        let refused = |fd, len| assert_eq!(SealedFrame::map(fd, len).unwrap_err(), Errno::INVAL);
        refused(open(), 64);
        let fd = open();
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).unwrap();
        refused(fd, 64);
        refused(seal(&[b"frame"]).unwrap(), 4);
        refused(seal(&[b"frame"]).unwrap(), 6);
        refused(seal(&[b"frame"]).unwrap(), 0);
        let too_long = FRAME_BYTES_MAX + 1;
        refused(seal(&[&vec![1; too_long]]).unwrap(), too_long);
        refused(std::fs::File::open("/proc/self/exe").unwrap().into(), 64);
    }
}
