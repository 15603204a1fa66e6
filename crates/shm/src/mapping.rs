//! A mapped segment and checked spans of it.
//!
//! The only ways to the bytes are a [`Span`] (copies) and [`Mapping::word32`] and its likes
//! (atomics); both check offset and length against the mapped size, with checked arithmetic. See
//! mmap(2).

use crate::copy;
use crate::{AtomicU32, AtomicU64, Line};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr::NonNull;
use rustix::fd::AsFd;
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// The accesses that a mapping allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Loads only.
    Read,
    /// Loads and stores.
    ReadWrite,
}

/// A shared mapping, unmapped on drop. Children made by `fork` do not inherit it: one process is
/// one party to a region's protocol.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    access: Access,
}

// SAFETY: the mapping is memory, reached only through atomics and racy copies; any thread may do
// so.
unsafe impl Send for Mapping {}
// SAFETY: no method hands out a plain reference into the memory.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes of `fd`, shared.
    ///
    /// # Errors
    /// Those of mmap(2); `EINVAL` for length 0.
    pub fn new(fd: impl AsFd, len: usize, access: Access) -> io::Result<Self> {
        let protection = match access {
            Access::Read => ProtFlags::READ,
            Access::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        };
        // SAFETY: a fresh address range chosen by the kernel; nothing existing is touched.
        let base = unsafe {
            mmap(core::ptr::null_mut(), len, protection, MapFlags::SHARED, fd.as_fd(), 0)?
        };
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(io::Errno::NOMEM) };
        let mapping = Self { base, len, access };
        // SAFETY: exactly the range just mapped.
        unsafe { madvise(base.as_ptr().cast::<c_void>(), len, Advice::LinuxDontFork)? };
        Ok(mapping)
    }

    /// Maps fresh zeroed memory of `len` bytes that is shared only with children that `fork` makes
    /// later.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn for_children(len: usize) -> io::Result<Self> {
        Self::anonymous(len, MapFlags::SHARED)
    }

    /// Maps fresh zeroed memory of `len` bytes for this process alone, outside its heap.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub fn private(len: usize) -> io::Result<Self> {
        Self::anonymous(len, MapFlags::PRIVATE)
    }

    fn anonymous(len: usize, flags: MapFlags) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh address range chosen by the kernel; nothing existing is touched.
        let base = unsafe { mmap_anonymous(core::ptr::null_mut(), len, protection, flags)? };
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(io::Errno::NOMEM) };
        Ok(Self { base, len, access: Access::ReadWrite })
    }

    /// Frees the memory behind these bytes if possible (`MADV_REMOVE`); they are zero afterwards.
    /// Works for whole pages of shared memory only.
    pub fn discard(&self, offset: usize, len: usize) {
        if self.checked::<u8>(offset, len).is_some() && self.access == Access::ReadWrite {
            // SAFETY: within the mapping, whose bytes may change at any time.
            let _ = unsafe {
                let start = self.base.as_ptr().add(offset).cast::<c_void>();
                madvise(start, len, Advice::LinuxRemove)
            };
        }
    }

    /// Returns the number of bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false always, since a mapping has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the accesses that the mapping allows.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the span of `len` bytes at `offset`, if it lies within the mapping.
    #[inline]
    pub fn span(&self, offset: usize, len: usize) -> Option<Span<'_>> {
        self.checked::<u8>(offset, len)?;
        // SAFETY: offset <= self.len as just checked.
        let base = unsafe { self.base.as_ptr().add(offset) };
        Some(Span { base, len, access: self.access, mapping: PhantomData })
    }

    /// Returns the 32-bit word at `offset`, if it lies within the mapping, aligned, and may be
    /// written.
    pub fn word32(&self, offset: usize) -> Option<&AtomicU32> {
        self.shared(offset)
    }

    /// Returns the 64-bit word at `offset`, if it lies within the mapping, aligned, and may be
    /// written.
    pub fn word64(&self, offset: usize) -> Option<&AtomicU64> {
        self.shared(offset)
    }

    /// Returns the message line at `offset`, if it lies within the mapping, aligned, and may be
    /// written.
    pub fn line(&self, offset: usize) -> Option<&Line> {
        self.shared(offset)
    }

    /// Returns a reference to `T`, which is an atomic or made of atomics: any bytes are a valid
    /// value, and a peer may write them.
    fn shared<T>(&self, offset: usize) -> Option<&T> {
        let at = self.checked::<T>(offset, size_of::<T>())?;
        if self.access == Access::Read {
            return None;
        }
        // SAFETY: within the mapping and aligned as checked; T is atomics only (private function).
        Some(unsafe { &*at })
    }

    fn checked<T>(&self, offset: usize, len: usize) -> Option<*const T> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: offset is within the mapping.
        let at = unsafe { self.base.as_ptr().add(offset) };
        (at as usize).is_multiple_of(align_of::<T>()).then_some(at.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and every span and word borrowed from `self`. A failure would
        // mean that the range is not mapped, which is the wanted state.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// Bytes within a mapping that may change at any moment: they can only be copied.
#[derive(Clone, Copy, Debug)]
pub struct Span<'m> {
    base: *mut u8,
    len: usize,
    access: Access,
    mapping: PhantomData<&'m Mapping>,
}

// SAFETY: as for `Mapping`; a span is a checked pointer into one.
unsafe impl Send for Span<'_> {}
// SAFETY: as for `Mapping`.
unsafe impl Sync for Span<'_> {}

impl<'m> Span<'m> {
    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the span has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the part of `len` bytes at `offset`, if it lies within the span.
    #[inline]
    pub fn part(&self, offset: usize, len: usize) -> Option<Span<'m>> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: offset <= self.len.
        Some(Span { base: unsafe { self.base.add(offset) }, len, ..*self })
    }

    /// Copies the first bytes of the span to `target` and returns their number: the shorter length.
    #[inline]
    pub fn copy_to(&self, target: &mut [u8]) -> usize {
        let len = self.len.min(target.len());
        // SAFETY: both have `len` bytes; private memory cannot overlap the mapping.
        unsafe { copy::racy(self.base, target.as_mut_ptr(), len) };
        len
    }

    /// Loads the eight bytes at `offset` once; `None` if they are not within the span. The next
    /// load may return other bytes, since a peer may write them.
    #[inline]
    pub fn load(&self, offset: usize) -> Option<u64> {
        let part = self.part(offset, 8)?;
        if (part.base as usize).is_multiple_of(8) {
            // SAFETY: eight mapped bytes, aligned; volatile, since a peer may be writing them.
            return Some(unsafe { part.base.cast::<u64>().read_volatile() });
        }
        let mut bytes = [0; 8];
        part.copy_to(&mut bytes);
        Some(u64::from_ne_bytes(bytes))
    }

    /// Copies `source` to the first bytes of the span and returns their number: the shorter length,
    /// or 0 in a read-only mapping.
    #[inline]
    pub fn copy_from(&self, source: &[u8]) -> usize {
        if self.access == Access::Read {
            return 0;
        }
        let len = self.len.min(source.len());
        // SAFETY: as in `copy_to`, the other way, into a writable mapping.
        unsafe { copy::racy(source.as_ptr(), self.base, len) };
        len
    }

    /// Copies like [`Self::copy_from`], if the peer on another processor accessed the span last.
    #[inline]
    pub fn copy_from_for_far(&self, source: &[u8]) -> usize {
        if self.access == Access::Read {
            return 0;
        }
        let len = self.len.min(source.len());
        // SAFETY: as in `copy_from`.
        unsafe { copy::racy_to_far(source.as_ptr(), self.base, len) };
        len
    }

    /// The bytes, where they lie.
    ///
    /// # Safety
    /// Nobody writes to them while the answer is in use, in this process or another.
    #[inline]
    pub unsafe fn as_slice(&self) -> &'m [u8] {
        // SAFETY: mapped for 'm; the caller's promise.
        unsafe { core::slice::from_raw_parts(self.base, self.len) }
    }

    /// Returns the bytes in place, to be written.
    ///
    /// # Safety
    /// The mapping is writable, and nobody else reads or writes them while the answer is in use, in
    /// this process or another.
    #[inline]
    pub unsafe fn as_mut_slice(&self) -> &'m mut [u8] {
        // SAFETY: mapped for 'm; the caller's promise.
        unsafe { core::slice::from_raw_parts_mut(self.base, self.len) }
    }

    /// Returns the address of the first byte, for code that copies by itself under the rules of
    /// this crate.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }
}
