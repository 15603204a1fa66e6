//! Memory that the kernel writes into: mapped rings, and the area of an AF_XDP socket.
//!
//! Not here: the meaning of the bytes. Words are accessed as atomics or copied by one volatile
//! load; every offset is checked against the mapped size. Only [`Map::bytes`] lends plain bytes,
//! under a contract. See mmap(2).

use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use rustix::fd::BorrowedFd;
use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

/// A shared mapping, unmapped on drop. Children made by `fork` do not inherit it: one process is
/// one party to a ring.
#[derive(Debug)]
pub(crate) struct Map {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory, which any thread may reach; who may when is the owner's `&mut`.
unsafe impl Send for Map {}
// SAFETY: shared references give atomics and volatile copies only, and `bytes` under its contract.
unsafe impl Sync for Map {}

/// Types that a mapping can hold: any bytes are a valid value, and there is no padding.
///
/// # Safety
/// As said.
pub(crate) unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for u16 {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}

impl Map {
    /// Maps `len` bytes of `fd` from `offset`, shared.
    pub(crate) fn of(fd: BorrowedFd<'_>, len: usize, offset: u64) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a fresh address range chosen by the kernel; nothing existing is touched.
        let base = unsafe { mmap(core::ptr::null_mut(), len, protection, flags, fd, offset)? };
        Self::take(base, len)
    }

    /// Maps fresh zeroed memory of `len` bytes.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a fresh address range chosen by the kernel; nothing existing is touched.
        let base = unsafe { mmap_anonymous(core::ptr::null_mut(), len, protection, flags)? };
        Self::take(base, len)
    }

    fn take(base: *mut c_void, len: usize) -> io::Result<Self> {
        let Some(base) = NonNull::new(base.cast::<u8>()) else { return Err(io::Errno::NOMEM) };
        let map = Self { base, len };
        // SAFETY: exactly the range just mapped.
        unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxDontFork)? };
        Ok(map)
    }

    /// Returns the number of bytes mapped.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the address, for the kernel.
    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    /// Returns the address of `offset` if `len` bytes there lie within the mapping.
    #[inline]
    fn check(&self, offset: usize, len: usize) -> Option<*mut u8> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: within the mapping.
        Some(unsafe { self.base.as_ptr().add(offset) })
    }

    #[inline]
    fn typed<T>(&self, offset: usize) -> Option<*mut T> {
        let at = self.check(offset, size_of::<T>())?.cast::<T>();
        at.is_aligned().then_some(at)
    }

    /// Returns the word at `offset`, if it is within the mapping and aligned.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.typed::<u32>(offset)?;
        // SAFETY: within the mapping, aligned, and as long there as the borrow of `self`.
        Some(unsafe { AtomicU32::from_ptr(at) })
    }

    /// Loads the value at `offset` once; `None` if it is not within the mapping or not aligned.
    #[inline]
    pub(crate) fn load<T: Plain>(&self, offset: usize) -> Option<T> {
        let at = self.typed::<T>(offset)?;
        // SAFETY: within the mapping and aligned; any bytes are a value; volatile, since others may
        // write them.
        Some(unsafe { at.read_volatile() })
    }

    /// Stores a value at `offset`; returns false if that is not within the mapping or not aligned.
    #[inline]
    pub(crate) fn store<T: Plain>(&self, offset: usize, value: T) -> bool {
        let Some(at) = self.typed::<T>(offset) else { return false };
        // SAFETY: within the mapping and aligned.
        unsafe { at.write_volatile(value) };
        true
    }

    /// Returns the `len` bytes at `offset`, if they are within the mapping.
    ///
    /// # Safety
    /// Until the borrow ends nothing may write the bytes: the kernel has handed them over and has
    /// not got them back, and other processes that map the same memory are trusted.
    #[inline]
    pub(crate) unsafe fn bytes(&self, offset: usize, len: usize) -> Option<&[u8]> {
        let at = self.check(offset, len)?;
        // SAFETY: within the mapping; the rest is the caller's contract.
        Some(unsafe { core::slice::from_raw_parts(at, len) })
    }

    /// Returns the `len` bytes at `offset`, to be written.
    ///
    /// # Safety
    /// As for [`Map::bytes`], and nobody may read them either.
    #[inline]
    pub(crate) unsafe fn bytes_mut(&mut self, offset: usize, len: usize) -> Option<&mut [u8]> {
        let at = self.check(offset, len)?;
        // SAFETY: within the mapping, borrowed exclusively; the rest is the caller's contract.
        Some(unsafe { core::slice::from_raw_parts_mut(at, len) })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and everything lent borrows from `self`. A failure would mean
        // that it is not mapped.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_outside_is_reached() {
        let mut map = Map::anonymous(4096).unwrap();
        assert!(map.store(4088, 7u64) && !map.store(4089, 7u32) && !map.store(4096, 7u16));
        assert_eq!(map.load::<u64>(4088), Some(7));
        assert_eq!(map.load::<u64>(4092), None);
        assert_eq!(map.load::<u32>(2), None, "not aligned");
        assert_eq!(map.load::<u16>(usize::MAX), None);
        assert!(map.word(4092).is_some() && map.word(4094).is_none() && map.word(4096).is_none());
        // SAFETY: nobody else knows the memory.
        unsafe {
            assert_eq!(map.bytes(4095, 1).map(<[u8]>::len), Some(1));
            assert!(map.bytes(4095, 2).is_none() && map.bytes(1, usize::MAX).is_none());
            assert!(map.bytes_mut(4096, 0).is_some() && map.bytes_mut(4097, 0).is_none());
        }
    }
}
