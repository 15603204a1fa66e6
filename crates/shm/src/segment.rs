//! Anonymous memory that can be handed to another process: created, sealed, and checked on receipt.
//!
//! A segment is a memfd whose size is sealed, so that no holder can cause faults in another by
//! truncating it. A memfd has no name that must be cleaned up. See memfd_create(2), fcntl(2)
//! `F_ADD_SEALS`.

use crate::mapping::{Access, Mapping};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
    memfd_create,
};
use rustix::io::Errno;

/// `f_type` of tmpfs, on which ordinary memfds live (`linux/magic.h`). Huge-page memfds live on
/// another file system, and touching one of their pages can fault when the pool is empty.
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The seals that a received segment must have.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// The reason why a segment could not be made, or why a received segment cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The kernel refused.
    #[error("shared memory: {0}")]
    System(#[from] Errno),
    /// Not a memfd on ordinary pages.
    #[error("the descriptor is not anonymous shared memory with ordinary pages")]
    Kind,
    /// The size can still change.
    #[error("the shared memory is not sealed against resizing")]
    NotSealed,
    /// The size is not the agreed one.
    #[error("the shared memory has {found} bytes, expected {expected}")]
    Size {
        /// The actual size in bytes.
        found: u64,
        /// The agreed size in bytes.
        expected: u64,
    },
}

/// A sealed segment: its descriptor and its size in bytes.
#[derive(Debug)]
pub struct Segment {
    fd: OwnedFd,
    len: usize,
}

/// A segment that was just made.
#[derive(Debug)]
pub struct NewSegment {
    /// The segment.
    pub segment: Segment,
    /// A mapping of it, for writing.
    pub mapping: Mapping,
}

impl Segment {
    /// Makes a zeroed segment of `len` bytes, maps it for writing and seals it. With
    /// [`Access::Read`] the segment cannot be mapped for writing afterwards
    /// (`F_SEAL_FUTURE_WRITE`): only the returned mapping can write.
    ///
    /// # Errors
    /// [`SegmentError::System`].
    pub fn create(name: &str, len: usize, for_others: Access) -> Result<NewSegment, SegmentError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // Kernels before 6.3 refuse `MFD_NOEXEC_SEAL`, which is only a hardening.
        let fd = memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL)
            .or_else(|_| memfd_create(name, flags))?;
        ftruncate(&fd, len as u64)?;
        let mapping = Mapping::new(&fd, len, Access::ReadWrite)?;
        let seals = match for_others {
            Access::Read => SIZE_SEALS | SealFlags::FUTURE_WRITE,
            Access::ReadWrite => SIZE_SEALS,
        };
        fcntl_add_seals(&fd, seals)?;
        Ok(NewSegment { segment: Self { fd, len }, mapping })
    }

    /// Checks a segment received from a peer: it must be a memfd on ordinary pages, sealed against
    /// resizing, of exactly `len` bytes.
    ///
    /// # Errors
    /// Each condition has its own [`SegmentError`].
    pub fn accept(fd: OwnedFd, len: usize) -> Result<Self, SegmentError> {
        let seals = fcntl_get_seals(&fd).map_err(|_| SegmentError::Kind)?;
        #[allow(clippy::unnecessary_cast, reason = "the width of f_type depends on the platform")]
        if fstatfs(&fd)?.f_type as i64 != TMPFS_MAGIC {
            return Err(SegmentError::Kind);
        }
        if !seals.contains(SIZE_SEALS) {
            return Err(SegmentError::NotSealed);
        }
        let found = u64::try_from(fstat(&fd)?.st_size).unwrap_or(0);
        if found != len as u64 {
            return Err(SegmentError::Size { found, expected: len as u64 });
        }
        Ok(Self { fd, len })
    }

    /// Maps the whole segment.
    ///
    /// # Errors
    /// [`SegmentError::System`]; `EPERM` for a writable mapping of a segment that is sealed against
    /// writing.
    pub fn map(&self, access: Access) -> Result<Mapping, SegmentError> {
        Ok(Mapping::new(&self.fd, self.len, access)?)
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the size is 0; such a segment cannot be mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl AsFd for Segment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(len: u64) -> OwnedFd {
        let fd =
            memfd_create("sojourn-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, len).unwrap();
        fd
    }

    #[test]
    fn a_created_segment_is_accepted_and_shared() {
        let NewSegment { segment, mapping: ours } =
            Segment::create("sojourn-test", 8192, Access::ReadWrite).unwrap();
        let fd = segment.as_fd().try_clone_to_owned().unwrap();
        let theirs = Segment::accept(fd, 8192).unwrap().map(Access::ReadWrite).unwrap();
        assert_eq!(ours.span(100, 5).unwrap().copy_from(b"hello"), 5);
        let mut seen = [0; 5];
        assert_eq!(theirs.span(100, 5).unwrap().copy_to(&mut seen), 5);
        assert_eq!(&seen, b"hello");
    }

    #[test]
    fn a_created_segment_cannot_be_truncated() {
        let NewSegment { segment, .. } =
            Segment::create("sojourn-test", 4096, Access::ReadWrite).unwrap();
        assert_eq!(ftruncate(segment.as_fd(), 0), Err(Errno::PERM));
        assert_eq!(ftruncate(segment.as_fd(), 8192), Err(Errno::PERM));
    }

    #[test]
    fn a_read_only_segment_cannot_be_mapped_for_writing() {
        let NewSegment { segment, mapping: ours } =
            Segment::create("sojourn-test", 4096, Access::Read).unwrap();
        assert!(segment.map(Access::ReadWrite).is_err());
        let theirs = segment.map(Access::Read).unwrap();
        assert_eq!(ours.span(0, 2).unwrap().copy_from(b"ok"), 2);
        let mut seen = [0; 2];
        theirs.span(0, 2).unwrap().copy_to(&mut seen);
        assert_eq!(&seen, b"ok");
        assert_eq!(theirs.span(0, 2).unwrap().copy_from(b"no"), 0);
        assert!(theirs.word32(0).is_none());
    }

    #[test]
    fn what_is_not_sealed_or_not_memory_is_refused() {
        assert!(matches!(Segment::accept(plain(4096), 4096), Err(SegmentError::NotSealed)));
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(Segment::accept(file.into(), 4096), Err(SegmentError::Kind)));
        let fd = plain(4096);
        fcntl_add_seals(&fd, SIZE_SEALS).unwrap();
        let error = Segment::accept(fd, 8192);
        assert!(matches!(error, Err(SegmentError::Size { found: 4096, expected: 8192 })));
    }

    #[test]
    fn spans_and_words_are_checked_against_the_mapped_size() {
        let NewSegment { mapping, .. } =
            Segment::create("sojourn-test", 4096, Access::ReadWrite).unwrap();
        assert!(mapping.span(4096, 0).is_some());
        assert!(mapping.span(4090, 7).is_none());
        assert!(mapping.span(usize::MAX, 2).is_none());
        mapping.span(4080, 16).unwrap().copy_from(&[1, 0, 0, 0, 0, 0, 0, 0, 2]);
        let span = mapping.span(4080, 16).unwrap();
        assert_eq!([0, 1, 8].map(|at| span.load(at)), [Some(1), Some(2 << 56), Some(2)]);
        assert_eq!([9, 16, usize::MAX].map(|at| span.load(at)), [None; 3]);
        assert!(mapping.word32(4092).is_some());
        assert!(mapping.word32(4093).is_none());
        assert!(mapping.word64(4092).is_none());
        assert!(mapping.line(4096 - 128).is_some());
        assert!(mapping.line(4096 - 64).is_none());
    }
}
