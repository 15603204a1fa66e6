//! Writing a message: blocks of known size, handed out one after the other.
//!
//! The body may be memory the peer reads meanwhile, so it is only ever written, each byte once, by
//! raw pointers; nothing here reads it back. Bounds are checked once for each block; within a block
//! offsets are compile-time constants checked by the compiler. Read `docs/idl-wire.md` first.
//! Not here: how large a body will be (`measure`).

use core::marker::PhantomData;
use std::os::fd::BorrowedFd;

use super::block::{Block, Run};
use super::item::{FDS_MAX, GRANTS_MAX, Grant, ITEMS_MAX, List};
use super::pod::{Pod, bytes_of, pair};
use super::shared::{Numbers, Shared};
use super::{ContextScope, EncodeError, Forms};

/// What travels beside a body. Most messages have nothing there, and the lists are large: they are
/// kept apart, and a transport lends the same ones to one message after another.
#[derive(Debug)]
pub(crate) struct Beside<'d> {
    items: List<&'d [u8], ITEMS_MAX>,
    fds: List<BorrowedFd<'d>, FDS_MAX>,
    grants: List<Grant, GRANTS_MAX>,
    numbers: Numbers,
}

impl Beside<'_> {
    #[cold]
    fn boxed() -> Box<Self> {
        Box::new(Self {
            items: List::new(),
            fds: List::new(),
            grants: List::new(),
            numbers: Numbers::default(),
        })
    }

    fn is_empty(&self) -> bool {
        self.items.len == 0 && self.fds.len == 0 && self.grants.len == 0
    }

    /// Empty lists, for another message.
    fn recycle(mut self: Box<Self>) -> Box<Beside<'static>> {
        self.items.len = 0;
        self.fds.len = 0;
        self.grants.len = 0;
        self.numbers = Numbers::default();
        // SAFETY: only the lifetime of what the lists hold differs, and they hold nothing.
        unsafe { Box::from_raw(Box::into_raw(self).cast()) }
    }
}

/// The lists with one more item. By value: see [`Rare`].
#[cold]
#[inline(never)]
fn with_item<'d>(
    beside: Option<Box<Beside<'d>>>,
    item: &'d [u8],
) -> (Box<Beside<'d>>, Result<(), EncodeError>) {
    let mut beside = ready(beside);
    let done = if beside.items.push(item) { Ok(()) } else { Err(EncodeError::Overflow) };
    (beside, done)
}

/// A message being written: the body, and what travels beside it for `'d`.
///
/// Transports own one for each message and lend [`Writer`]s of it. They never lend the encoder itself:
/// it points to the memory of one connection and must not be exchanged for another's.
#[derive(Debug)]
pub struct Encoder<'d> {
    body: *mut u8,
    len: usize,
    at: usize,
    beside: Rare<Box<Beside<'d>>>,
}

/// What few messages have. Dropping it costs a comparison, and neither that nor making it passes the
/// address of an encoder to a function out of line, so that an encoder can live in registers.
#[derive(Debug)]
struct Rare<T>(Option<T>);

impl<T> Drop for Rare<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_some() {
            release(self.0.take());
        }
    }
}

#[cold]
#[inline(never)]
fn release<T>(rare: Option<T>) {
    drop(rare);
}

/// The lists, made if there are none yet.
#[cold]
#[inline(never)]
fn ready(beside: Option<Box<Beside<'_>>>) -> Box<Beside<'_>> {
    beside.unwrap_or_else(Beside::boxed)
}

impl<'d> Encoder<'d> {
    /// An encoder over `len` bytes at `body`.
    ///
    /// # Safety
    /// `body` is aligned to 8, and `len` bytes there stay writable as long as this encoder and what
    /// it lends live. No reference to them exists meanwhile; another process may read them. Code that
    /// does not know of this gets [`Encoder::writer`] and never the encoder.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(body: *mut u8, len: usize) -> Self {
        Self { body, len, at: 0, beside: Rare(None) }
    }

    /// Lends the lists of an earlier message.
    #[inline]
    pub(crate) fn lend(&mut self, spare: Option<Box<Beside<'static>>>) {
        self.beside = Rare(spare);
    }

    /// Takes the lists back, emptied, for a later message.
    #[inline]
    pub(crate) fn take_back(&mut self) -> Option<Box<Beside<'static>>> {
        self.beside.0.take().map(Beside::recycle)
    }

    /// Whether the message is its body and nothing else.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.beside.0.as_ref().is_none_or(|beside| beside.is_empty())
    }

    #[inline]
    fn beside(&mut self) -> &mut Beside<'d> {
        let beside = ready(self.beside.0.take());
        self.beside.0.insert(beside)
    }

    /// The string items, in order.
    #[inline]
    #[must_use]
    pub fn items(&self) -> &[&'d [u8]] {
        self.beside.0.as_ref().map_or(&[], |beside| beside.items.as_slice())
    }

    /// The descriptors, in order.
    #[inline]
    #[must_use]
    pub fn fds(&self) -> &[BorrowedFd<'d>] {
        self.beside.0.as_ref().map_or(&[], |beside| beside.fds.as_slice())
    }

    /// The grants, in order.
    #[inline]
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        self.beside.0.as_ref().map_or(&[], |beside| beside.grants.as_slice())
    }

    /// What writes into this message: all that safe code is given of it.
    #[inline]
    pub fn writer<'e>(&'e mut self) -> Writer<'e, 'd> {
        Writer { encoder: self, forms: Forms::BODY, contexts: None }
    }
}

/// Writes one message: hands out the blocks of its body, and takes what travels beside it.
///
/// Borrowed from the message's draft and passed by value. What it writes to cannot be reached through
/// it, so two messages cannot be exchanged; exchanging two writers only renames them, since each keeps
/// the drafts of both from being sent or dropped.
///
/// ```compile_fail,E0308
/// # use sojourn_ipc::rt::{Draft, Transport};
/// fn exchange<T: Transport>(one: &mut T, other: &mut T) {
///     let (mut first, mut second) = (one.start(0, 8), other.start(0, 8));
///     core::mem::swap(first.encoder(), second.encoder());
/// }
/// ```
///
/// ```compile_fail,E0505
/// # use sojourn_ipc::rt::{Deadline, Draft, Transport};
/// fn keep<T: Transport>(one: &mut T, other: &mut T) {
///     let (mut first, mut second) = (one.start(0, 8), other.start(0, 8));
///     let (mut here, mut there) = (first.encoder(), second.encoder());
///     core::mem::swap(&mut here, &mut there);
///     let _ = first.call(Deadline::NEVER); // still borrowed by what was exchanged
///     let _ = there.put_bytes(&[1]);
/// }
/// ```
///
/// The same without the offence:
///
/// ```
/// # use sojourn_ipc::rt::{Deadline, Draft, Transport};
/// fn rename<T: Transport>(one: &mut T, other: &mut T) {
///     let (mut first, mut second) = (one.start(0, 8), other.start(0, 8));
///     let (mut here, mut there) = (first.encoder(), second.encoder());
///     core::mem::swap(&mut here, &mut there);
///     let _ = there.put_bytes(&[1]);
///     let _ = first.call(Deadline::NEVER);
/// }
/// ```
#[derive(Debug)]
pub struct Writer<'e, 'd> {
    encoder: &'e mut Encoder<'d>,
    forms: Forms,
    contexts: Option<&'e ContextScope>,
}

impl<'e, 'd> Writer<'e, 'd> {
    /// Context handles are issued and looked up in `scope` from now on (servers).
    pub fn set_contexts(&mut self, scope: &'e ContextScope) {
        self.contexts = Some(scope);
    }

    /// Which arrays become string items; until this is said, none.
    #[inline]
    pub fn set_forms(&mut self, forms: Forms) {
        self.forms = forms;
    }

    /// Appends a grant, in the order of the headers of form 3 in the body.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] beyond [`GRANTS_MAX`].
    pub fn grant(&mut self, grant: Grant) -> Result<(), EncodeError> {
        if self.encoder.beside().grants.push(grant) { Ok(()) } else { Err(EncodeError::Overflow) }
    }

    /// Bytes written, in whole blocks.
    #[inline]
    #[must_use]
    pub fn written(&self) -> usize {
        self.encoder.at
    }

    /// Bytes of the body.
    #[inline]
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.encoder.len
    }

    /// Whether body and string items, as far as they are written, are `bytes` bytes at most.
    ///
    /// # Errors
    /// [`EncodeError::TooLarge`].
    pub fn within(&self, bytes: u64) -> Result<(), EncodeError> {
        let items = self.encoder.items().iter().map(|item| item.len() as u64);
        let all = items.fold(self.encoder.len as u64, u64::saturating_add);
        if all <= bytes { Ok(()) } else { Err(EncodeError::TooLarge) }
    }

    /// Appends bytes to the body as they are, without padding: for messages put together by hand.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        if bytes.len() > self.encoder.len - self.encoder.at {
            return Err(EncodeError::Overflow);
        }
        // SAFETY: at + bytes.len() <= len, as just checked; the body overlaps no Rust reference.
        unsafe {
            let target = self.encoder.body.add(self.encoder.at);
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
        }
        self.encoder.at += bytes.len();
        Ok(())
    }

    /// Appends a string item.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] beyond [`ITEMS_MAX`].
    #[inline(always)]
    pub fn put_item(&mut self, item: &'d [u8]) -> Result<(), EncodeError> {
        let (beside, done) = with_item(self.encoder.beside.0.take(), item);
        self.encoder.beside.0 = Some(beside);
        done
    }

    /// Appends a descriptor; it is duplicated, not consumed.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] beyond [`FDS_MAX`].
    pub fn put_fd(&mut self, fd: BorrowedFd<'d>) -> Result<(), EncodeError> {
        if self.encoder.beside().fds.push(fd) { Ok(()) } else { Err(EncodeError::Overflow) }
    }
}

const WORD: usize = 8;

impl<'e, 'd> Writer<'e, 'd> {
    /// The next `bytes` bytes, with zeroes up to the next multiple of 8.
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

    /// The next object of `N` bytes.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn object<const N: usize>(&mut self) -> Result<Block<'e, N>, EncodeError> {
        Ok(Block { start: self.take(N)?, life: PhantomData })
    }

    /// The next object: `count` elements of `N` bytes.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn run<const N: usize>(&mut self, count: usize) -> Result<Run<'e, N>, EncodeError> {
        let bytes = count.checked_mul(N).ok_or(EncodeError::Overflow)?;
        Ok(Run { next: self.take(bytes)?, left: count, life: PhantomData })
    }

    /// The next object: plain values.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn pods<T: Pod>(&mut self, values: &[T]) -> Result<(), EncodeError> {
        let bytes = bytes_of(values);
        let start = self.take(bytes.len())?;
        // SAFETY: `take` gave that many bytes; the body overlaps no Rust reference.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        Ok(())
    }

    /// As [`Writer::pods`], unless the values went by reference under `threshold`.
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

    /// The next object: characters and a zero.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] if the body is full.
    #[inline]
    pub fn terminated(&mut self, characters: &[u16]) -> Result<(), EncodeError> {
        let bytes = bytes_of(characters);
        let start = self.take(bytes.len() + 2)?;
        // SAFETY: `take` gave two bytes more than the characters have.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
            start.add(bytes.len()).cast::<u16>().write_unaligned(0);
        }
        Ok(())
    }

    /// Whether an array of `bytes` bytes goes by reference under `threshold`.
    #[inline]
    #[must_use]
    pub fn refers(&self, bytes: usize, threshold: usize) -> bool {
        self.forms.refers(bytes, threshold)
    }

    /// The threshold of arrays for which the interface sets none.
    #[inline]
    #[must_use]
    pub fn auto(&self) -> usize {
        self.forms.auto()
    }

    /// Writes the header of an array or string of `count` elements, which has an object in the body.
    #[inline]
    pub fn header<const AT: usize, const N: usize>(&mut self, block: Block<'e, N>, count: usize) {
        block.put::<AT, u64>(pair(count as u32, 1));
    }

    /// Writes the header of an array of plain values, and appends the string item if it is to go
    /// by reference.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] beyond [`ITEMS_MAX`].
    #[inline(always)]
    pub fn header_of<const AT: usize, T: Pod, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        values: &'d [T],
        threshold: usize,
    ) -> Result<(), EncodeError> {
        self.header_sized::<AT, N>(block, values.len(), bytes_of(values), threshold)
    }

    /// As [`Writer::header_of`], where the item has other bytes than the elements counted.
    ///
    /// # Errors
    /// [`EncodeError::Overflow`] beyond [`ITEMS_MAX`].
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
    /// [`EncodeError::Descriptors`] beyond [`FDS_MAX`].
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
    /// [`EncodeError::Descriptors`] beyond [`FDS_MAX`], or for a reference without a socket.
    pub fn interface<const AT: usize, const N: usize>(
        &mut self,
        block: Block<'e, N>,
        reference: Option<&'d super::Interface>,
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
            Some(object) => self.encoder.beside().numbers.name(Shared::address(object), slot).0,
        };
        block.put::<AT, u64>(pair(number, 0));
    }

    /// The object to be written now for a `ptr` pointer: only for the first pointer that names it.
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

    /// The same for its secondary objects.
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
        if !inner.is_plain() {
            return Err(EncodeError::Converted);
        }
        outer.at = inner.at;
        Ok(())
    }
}
