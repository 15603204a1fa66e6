//! What travels beside the body: string items and descriptors, as the receiver sees them.

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Most string items of one message.
pub const ITEMS_MAX: usize = 16;
/// Most descriptors of one message.
pub const FDS_MAX: usize = 16;
/// Most grants of one message.
pub const GRANTS_MAX: usize = 8;

/// The number of a region of memory that a client has granted on its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GrantId(pub u32);

/// Memory of the sender's that a message refers to; resolved by the transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The region.
    pub id: GrantId,
    /// Rights, as the transport defines them.
    pub flags: u32,
    /// Bytes from the beginning of the region.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A string item or a resolved grant.
#[derive(Clone, Copy, Debug)]
pub enum Item<'m> {
    /// Already private: may be looked at in place.
    Private(&'m [u8]),
    /// Still in memory that the peer can write: copied once, then looked at.
    Shared(SharedBytes<'m>),
}

/// Bytes the peer can write at any time.
#[derive(Clone, Copy, Debug)]
pub struct SharedBytes<'m> {
    start: *const u8,
    len: usize,
    life: PhantomData<&'m [u8]>,
}

impl<'m> SharedBytes<'m> {
    /// # Safety
    /// `len` bytes at `start` stay mapped and readable for `'m`.
    #[inline]
    #[must_use]
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Self { start, len, life: PhantomData }
    }

    /// The first byte, for code that copies by itself under the rules of shared memory.
    #[inline]
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.start
    }
}

impl Item<'_> {
    /// Bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Private(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.len,
        }
    }

    /// No bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies as much as fits into `target`; returns how many bytes.
    #[inline]
    pub fn copy_into(&self, target: &mut [u8]) -> usize {
        let len = self.len().min(target.len());
        // SAFETY: `len` bytes of a mutable slice are as many `MaybeUninit` ones; only written.
        let target = unsafe { core::slice::from_raw_parts_mut(target.as_mut_ptr().cast(), len) };
        self.fill(target);
        len
    }

    /// A private copy.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        self.fill(&mut copy.spare_capacity_mut()[..self.len()]);
        // SAFETY: `fill` has written all of them.
        unsafe { copy.set_len(self.len()) };
        copy
    }

    /// Writes exactly `target.len()` bytes, at most `self.len()`.
    fn fill(&self, target: &mut [MaybeUninit<u8>]) {
        let out = target.as_mut_ptr().cast::<u8>();
        let len = target.len().min(self.len());
        match self {
            // SAFETY: both ranges have `len` bytes; a fresh mutable slice overlaps nothing.
            Self::Private(bytes) => unsafe {
                sojourn_shm::copy::racy(bytes.as_ptr(), out, len);
            },
            // SAFETY: mapped for 'm by the contract of `SharedBytes::new`; no overlap as above.
            Self::Shared(bytes) => unsafe { sojourn_shm::copy::racy(bytes.start, out, len) },
        }
    }
}

/// The descriptors of a received message; those not taken are closed with it.
#[derive(Debug, Default)]
pub struct FdList {
    fds: [Option<OwnedFd>; FDS_MAX],
    len: usize,
}

impl FdList {
    /// No descriptors.
    #[must_use]
    pub const fn new() -> Self {
        Self { fds: [const { None }; FDS_MAX], len: 0 }
    }

    /// Appends one; gives it back if there are [`FDS_MAX`] already.
    ///
    /// # Errors
    /// The descriptor, if there is no room.
    pub fn push(&mut self, fd: OwnedFd) -> Result<(), OwnedFd> {
        let Some(slot) = self.fds.get_mut(self.len) else { return Err(fd) };
        *slot = Some(fd);
        self.len += 1;
        Ok(())
    }

    /// How many were received.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// None were received.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Looks at number `index`; `None` if there is none or it was taken.
    #[must_use]
    pub fn peek(&self, index: usize) -> Option<BorrowedFd<'_>> {
        Some(self.fds.get(index)?.as_ref()?.as_fd())
    }

    /// Takes number `index`; `None` if there is none or it was taken before.
    pub fn take(&mut self, index: usize) -> Option<OwnedFd> {
        self.fds.get_mut(index)?.take()
    }

    /// Closes what was not taken.
    #[inline]
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.close();
        }
    }

    #[cold]
    fn close(&mut self) {
        self.fds.iter_mut().for_each(|slot| *slot = None);
        self.len = 0;
    }
}

/// A short list without allocation.
#[derive(Debug)]
pub(super) struct List<T: Copy, const N: usize> {
    values: [MaybeUninit<T>; N],
    pub(super) len: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    pub(super) const fn new() -> Self {
        Self { values: [const { MaybeUninit::uninit() }; N], len: 0 }
    }

    #[inline]
    pub(super) fn push(&mut self, value: T) -> bool {
        let Some(slot) = self.values.get_mut(self.len) else { return false };
        slot.write(value);
        self.len += 1;
        true
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: the first `len` values have been written by `push`.
        unsafe { core::slice::from_raw_parts(self.values.as_ptr().cast(), self.len) }
    }
}
