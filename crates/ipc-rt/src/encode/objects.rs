//! The blocks of a message's body, and the words in them that name what travels beside it.
//!
//! Generated code writes a message with these, object by object (`docs/reference/idl-wire.md`).

use super::{Encoder, Writer};
use crate::block::{Block, Run};
use crate::pod::{Pod, bytes_of, pair};
use crate::shared::Shared;
use crate::{EncodeError, Interface};
use core::marker::PhantomData;
use std::os::fd::BorrowedFd;

const WORD: usize = 8;

impl<'e, 'd> Writer<'e, 'd> {
    /// Takes room for the next `bytes` bytes, with zeroes up to the next multiple of 8.
    #[inline]
    fn take(&mut self, bytes: usize) -> Result<*mut u8, EncodeError> {
        let encoder = &mut *self.encoder;
        // Wraps, to 0, only for what is larger than any room.
        let padded = bytes.wrapping_add(WORD - 1) & !(WORD - 1);
        if padded > encoder.len - encoder.at || padded < bytes {
            return Err(EncodeError::Overflow);
        }
        // SAFETY: at + bytes <= len, checked above.
        let start = unsafe { encoder.body.add(encoder.at) };
        if padded != bytes {
            // The whole last word at once: its other bytes are written right after.
            // SAFETY: padded is at least a word and at most the room.
            unsafe { start.add(padded - WORD).cast::<u64>().write_unaligned(0) };
        }
        encoder.at += padded;
        Ok(start)
    }

    /// Begins the next object, of `N` bytes.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn object<const N: usize>(&mut self) -> Result<Block<'e, N>, EncodeError> {
        Ok(Block { start: self.take(N)?, life: PhantomData })
    }

    /// Begins the next object: `count` elements of `N` bytes.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn run<const N: usize>(&mut self, count: usize) -> Result<Run<'e, N>, EncodeError> {
        let bytes = count.checked_mul(N).ok_or(EncodeError::Overflow)?;
        Ok(Run { next: self.take(bytes)?, left: count, life: PhantomData })
    }

    /// Writes the next object: plain values.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn pods<T: Pod>(&mut self, values: &[T]) -> Result<(), EncodeError> {
        let bytes = bytes_of(values);
        let start = self.take(bytes.len())?;
        // SAFETY: `take` gave that many bytes; the body overlaps no Rust reference.
        unsafe { sojourn_shm::copy::racy(bytes.as_ptr(), start, bytes.len()) };
        Ok(())
    }

    /// Writes plain values like [`Writer::pods`], unless they went by reference under `threshold`.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn pods_below<T: Pod>(
        &mut self,
        values: &[T],
        threshold: usize,
    ) -> Result<(), EncodeError> {
        if self.refers(size_of_val(values), threshold) { Ok(()) } else { self.pods(values) }
    }

    /// Writes the next object: characters and a zero.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn terminated(&mut self, characters: &[u16]) -> Result<(), EncodeError> {
        let bytes = bytes_of(characters);
        let start = self.take(bytes.len() + 2)?;
        // SAFETY: `take` gave two bytes more than the characters have.
        unsafe {
            sojourn_shm::copy::racy(bytes.as_ptr(), start, bytes.len());
            start.add(bytes.len()).cast::<u16>().write_unaligned(0);
        }
        Ok(())
    }

    /// Returns true if an array of `bytes` bytes goes by reference under `threshold`.
    #[inline]
    #[must_use]
    pub fn refers(&self, bytes: usize, threshold: usize) -> bool {
        self.forms.refers(bytes, threshold)
    }

    /// Returns the threshold of arrays for which the interface sets none.
    #[inline]
    #[must_use]
    pub fn auto(&self) -> usize {
        self.forms.auto()
    }

    /// Writes the header of an array or string of `count` elements, which has an object in the
    /// body.
    #[inline]
    pub fn header<const AT: usize, const N: usize>(&mut self, block: Block<'e, N>, count: usize) {
        block.put::<AT, u64>(pair(count as u32, 1));
    }

    /// Writes the header of an array of plain values, and appends the string item if it is to go
    /// by reference.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] beyond [`ITEMS_MAX`](crate::ITEMS_MAX).
    #[inline(always)]
    pub fn header_of<const AT: usize, T: Pod, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        values: &'d [T],
        threshold: usize,
    ) -> Result<(), EncodeError> {
        self.header_sized::<AT, N>(block, values.len(), bytes_of(values), threshold)
    }

    /// Writes a header like [`Writer::header_of`], where the item has other bytes than the elements
    /// counted.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] beyond [`ITEMS_MAX`](crate::ITEMS_MAX).
    #[inline(always)]
    pub fn header_sized<const AT: usize, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        count: usize,
        bytes: &'d [u8],
        threshold: usize,
    ) -> Result<(), EncodeError> {
        let mut form = 1;
        if self.refers(bytes.len(), threshold) {
            form = 2;
            self.put_item(bytes)?;
        }
        block.put::<AT, u64>(pair(count as u32, form));
        Ok(())
    }

    /// Appends a descriptor, if there is one, and writes its word.
    ///
    /// # Errors
    /// [`EncodeError::Descriptors`] beyond [`FDS_MAX`](crate::FDS_MAX).
    pub fn descriptor<const AT: usize, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        fd: Option<BorrowedFd<'d>>,
    ) -> Result<(), EncodeError> {
        block.put::<AT, u32>(u32::from(fd.is_some()));
        match fd {
            Some(fd) if !self.encoder.beside().fds.push(fd) => Err(EncodeError::Descriptors),
            _ => Ok(()),
        }
    }

    /// Writes an interface reference and appends its socket.
    ///
    /// # Errors
    /// [`EncodeError::Descriptors`] beyond [`FDS_MAX`](crate::FDS_MAX), or for a reference
    /// without a socket.
    pub fn interface<const AT: usize, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        reference: Option<&'d Interface>,
    ) -> Result<(), EncodeError> {
        let part = block.sub::<AT, 24>();
        let Some(reference) = reference else {
            part.zero::<0, 24>();
            return Ok(());
        };
        let socket = reference.socket.as_fd().ok_or(EncodeError::Descriptors)?;
        part.pods::<8, u8, 16>(&reference.uuid);
        part.zero::<4, 4>();
        self.descriptor::<0, 24>(part, Some(socket))
    }

    /// Writes the word of a `ptr` pointer.
    pub fn shared<const AT: usize, T, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        pointer: &Option<Shared<T>>,
    ) {
        let slot = core::ptr::from_ref(pointer) as usize;
        let number = match pointer {
            None => 0,
            Some(object) => {
                self.encoder.beside().numbers.name(Shared::address(object), slot).number
            }
        };
        block.put::<AT, u64>(pair(number, 0));
    }

    /// Returns the object to be written now for a `ptr` pointer: only for the first pointer that
    /// names it.
    pub fn shared_first<'v, T>(&self, pointer: &'v Option<Shared<T>>) -> Option<&'v T> {
        let slot = core::ptr::from_ref(pointer) as usize;
        let object = pointer.as_ref()?;
        let first = self
            .encoder
            .beside
            .0
            .as_ref()
            .is_some_and(|beside| beside.numbers.is_first(Shared::address(object), slot));
        first.then_some(&**object)
    }

    /// Writes a context handle of interface type `kind`.
    pub fn context<const AT: usize, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        kind: u32,
        handle: u64,
    ) {
        let word = match self.contexts {
            Some(scope) => scope.issue(kind, handle),
            None => handle,
        };
        block.put::<AT, u64>(word);
    }

    /// Writes the bytes in place of a value that does not live as long as the message: what it
    /// wants to refer to is copied into the body instead.
    ///
    /// # Errors
    /// Those of `write`; [`EncodeError::Converted`] if the value holds descriptors.
    pub fn copying_at<V, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        value: &V,
        write: impl for<'i, 't> FnOnce(
            &mut Writer<'i, 't>,
            Block<'i, N>,
            &'t V,
        ) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.copying(value, |writer, value| {
            let block = Block { start: block.start, life: PhantomData };
            write(writer, block, value)
        })
    }

    /// Writes the secondary objects of such a value.
    ///
    /// # Errors
    /// As [`Writer::copying_at`].
    pub fn copying<V>(
        &mut self,
        value: &V,
        write: impl for<'i, 't> FnOnce(&mut Writer<'i, 't>, &'t V) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        let outer = &mut *self.encoder;
        // SAFETY: the same bytes under the same contract; `outer` is not used until `inner` ends.
        let mut inner = unsafe { Encoder::from_raw(outer.body, outer.len) };
        inner.at = outer.at;
        write(&mut inner.writer(), value)?;
        if !inner.is_body_only() {
            return Err(EncodeError::Converted);
        }
        outer.at = inner.at;
        Ok(())
    }
}
