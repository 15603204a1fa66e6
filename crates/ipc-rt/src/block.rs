//! Blocks of a body: bytes to be written at offsets known at compile time.
//!
//! Bounds are checked by the compiler, once for each kind of block; `encode` hands blocks out when
//! it has checked that there is room. Nothing is read back.

use core::marker::PhantomData;

use super::pod::Pod;

/// `N` bytes to be written, at offsets known at compile time.
#[derive(Debug)]
pub struct Block<'e, const N: usize> {
    pub(super) start: *mut u8,
    pub(super) life: PhantomData<&'e mut [u8; N]>,
}

impl<const N: usize> Clone for Block<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const N: usize> Copy for Block<'_, N> {}

impl<'e, const N: usize> Block<'e, N> {
    /// Writes a number at `AT`.
    #[inline(always)]
    pub fn put<const AT: usize, T: Pod>(self, value: T) {
        const { assert!(AT + size_of::<T>() <= N, "a field ends outside its block") };
        // SAFETY: inside the block by the assertion; unaligned write.
        unsafe { self.start.add(AT).cast::<T>().write_unaligned(value) }
    }

    /// Writes plain values at `AT`.
    #[inline(always)]
    pub fn pods<const AT: usize, T: Pod, const L: usize>(self, values: &[T; L]) {
        const { assert!(AT + size_of::<[T; L]>() <= N, "an array ends outside its block") };
        // SAFETY: inside the block by the assertion; the body overlaps no Rust reference.
        unsafe {
            let target = self.start.add(AT).cast::<[T; L]>();
            target.write_unaligned(*values);
        }
    }

    /// Writes `LEN` zeroes at `AT`.
    #[inline(always)]
    pub fn zero<const AT: usize, const LEN: usize>(self) {
        const { assert!(AT + LEN <= N, "padding ends outside its block") };
        // SAFETY: inside the block by the assertion.
        unsafe { core::ptr::write_bytes(self.start.add(AT), 0, LEN) }
    }

    /// The `M` bytes at `AT` as a block of their own.
    #[inline(always)]
    #[must_use]
    pub fn sub<const AT: usize, const M: usize>(self) -> Block<'e, M> {
        const { assert!(AT + M <= N, "a structure ends outside its block") };
        // SAFETY: inside the block by the assertion.
        Block { start: unsafe { self.start.add(AT) }, life: PhantomData }
    }

    /// The `COUNT` elements of `M` bytes at `AT`.
    #[inline(always)]
    #[must_use]
    pub fn run<const AT: usize, const M: usize, const COUNT: usize>(self) -> Run<'e, M> {
        const { assert!(AT + M * COUNT <= N, "an array ends outside its block") };
        // SAFETY: inside the block by the assertion.
        Run { next: unsafe { self.start.add(AT) }, left: COUNT, life: PhantomData }
    }
}

/// Elements of `N` bytes each, to be written one after the other.
#[derive(Debug)]
pub struct Run<'e, const N: usize> {
    pub(super) next: *mut u8,
    pub(super) left: usize,
    pub(super) life: PhantomData<&'e mut [u8]>,
}

impl<'e, const N: usize> Iterator for Run<'e, N> {
    type Item = Block<'e, N>;

    #[inline]
    fn next(&mut self) -> Option<Block<'e, N>> {
        self.left = self.left.checked_sub(1)?;
        let block = Block { start: self.next, life: PhantomData };
        // SAFETY: `left` elements of N bytes were there, so the next one is inside or just behind.
        self.next = unsafe { self.next.add(N) };
        Some(block)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}
