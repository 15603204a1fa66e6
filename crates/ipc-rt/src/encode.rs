//! Writing a message: blocks of known size, handed out one after the other.
//!
//! The body may be memory the peer reads meanwhile, so it is only ever written, each byte once, by
//! raw pointers; nothing here reads it back. Bounds are checked once for each block; within a block
//! offsets are compile-time constants checked by the compiler. Read `docs/reference/idl-wire.md`
//! first. Not here: how large a body will be (`measure`).

mod objects;

use std::os::fd::BorrowedFd;

use super::item::{FDS_MAX, GRANTS_MAX, Grant, ITEMS_MAX, List};
use super::shared::Numbers;
use super::{ContextScope, EncodeError, Forms};

/// What travels beside a body. Most messages have nothing there, and the lists are large: they are
/// kept apart, and a transport lends the same ones to one message after another.
#[derive(Debug)]
pub struct Beside<'d> {
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

    /// Returns the lists emptied, for another message.
    fn recycle(mut self: Box<Self>) -> Box<Beside<'static>> {
        self.items.len = 0;
        self.fds.len = 0;
        self.grants.len = 0;
        self.numbers = Numbers::default();
        // SAFETY: only the lifetime of what the lists hold differs, and they hold nothing.
        unsafe { Box::from_raw(Box::into_raw(self).cast()) }
    }
}

/// The lists after an item was to be appended.
struct WithItem<'d> {
    beside: Box<Beside<'d>>,
    /// The outcome; after an error the lists are as before.
    done: Result<(), EncodeError>,
}

/// Returns the lists with one more item. Takes and returns them by value, see [`Rare`].
#[cold]
#[inline(never)]
fn with_item<'d>(beside: Option<Box<Beside<'d>>>, item: &'d [u8]) -> WithItem<'d> {
    let mut beside = ready(beside);
    let done = if beside.items.push(item) { Ok(()) } else { Err(EncodeError::Overflow) };
    WithItem { beside, done }
}

/// A message being written: the body, and what travels beside it for `'d`.
///
/// Transports own one for each message and lend [`Writer`]s of it. They never lend the encoder
/// itself: it points to the memory of one connection and must not be exchanged for another's.
#[derive(Debug)]
pub struct Encoder<'d> {
    body: *mut u8,
    len: usize,
    at: usize,
    beside: Rare<Box<Beside<'d>>>,
}

/// What few messages have. Dropping it costs a comparison, and neither that nor making it passes
/// the address of an encoder to a function out of line, so that an encoder can live in registers.
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

/// Returns the lists, made if there are none yet.
#[cold]
#[inline(never)]
fn ready(beside: Option<Box<Beside<'_>>>) -> Box<Beside<'_>> {
    beside.unwrap_or_else(Beside::boxed)
}

impl<'d> Encoder<'d> {
    /// Creates an encoder over `len` bytes at `body`.
    ///
    /// # Safety
    /// `body` is aligned to 8, and `len` bytes there stay writable as long as this encoder and what
    /// it lends live. No reference to them exists meanwhile; another process may read them. Code
    /// that does not know of this gets [`Encoder::writer`] and never the encoder.
    #[inline]
    #[must_use]
    pub unsafe fn from_raw(body: *mut u8, len: usize) -> Self {
        Self { body, len, at: 0, beside: Rare(None) }
    }

    /// Lends the lists of an earlier message.
    #[inline]
    #[doc(hidden)]
    pub fn lend(&mut self, spare: Option<Box<Beside<'static>>>) {
        self.beside = Rare(spare);
    }

    /// Takes the lists back, emptied, for a later message.
    #[inline]
    #[doc(hidden)]
    pub fn take_back(&mut self) -> Option<Box<Beside<'static>>> {
        self.beside.0.take().map(Beside::recycle)
    }

    /// Returns true if the message is its body and nothing else.
    #[inline]
    #[doc(hidden)]
    pub fn is_body_only(&self) -> bool {
        self.beside.0.as_ref().is_none_or(|beside| beside.is_empty())
    }

    #[inline]
    fn beside(&mut self) -> &mut Beside<'d> {
        let beside = ready(self.beside.0.take());
        self.beside.0.insert(beside)
    }

    /// Returns the string items, in order.
    #[inline]
    #[must_use]
    pub fn items(&self) -> &[&'d [u8]] {
        self.beside.0.as_ref().map_or(&[], |beside| beside.items.as_slice())
    }

    /// Returns the descriptors, in order.
    #[inline]
    #[must_use]
    pub fn fds(&self) -> &[BorrowedFd<'d>] {
        self.beside.0.as_ref().map_or(&[], |beside| beside.fds.as_slice())
    }

    /// Returns the grants, in order.
    #[inline]
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        self.beside.0.as_ref().map_or(&[], |beside| beside.grants.as_slice())
    }

    /// Returns the writer of this message: all that safe code is given of it.
    #[inline]
    pub fn writer<'e>(&'e mut self) -> Writer<'e, 'd> {
        Writer { encoder: self, forms: Forms::BODY, contexts: None }
    }
}

/// Writes one message: hands out the blocks of its body, and takes what travels beside it.
///
/// Borrowed from the message's draft and passed by value. What it writes to cannot be reached
/// through it, so two messages cannot be exchanged; exchanging two writers only renames them, since
/// each keeps the drafts of both from being sent or dropped.
///
/// ```compile_fail,E0308
/// # use sojourn_ipc_rt::{Draft, Transport};
/// fn exchange<T: Transport>(one: &mut T, other: &mut T) {
///     let (mut first, mut second) = (one.start(0, 8), other.start(0, 8));
///     core::mem::swap(first.encoder(), second.encoder());
/// }
/// ```
///
/// ```compile_fail,E0505
/// # use sojourn_ipc_rt::{Deadline, Draft, Transport};
/// fn keep<T: Transport>(one: &mut T, other: &mut T) {
///     let (mut first, mut second) = (one.start(0, 8), other.start(0, 8));
///     let (mut here, mut there) = (first.encoder(), second.encoder());
///     core::mem::swap(&mut here, &mut there);
///     let _ = first.call(Deadline::NEVER); // still borrowed by what was exchanged
///     let _ = there.put_bytes(&[1]);
/// }
/// ```
///
/// This is accepted, since neither draft is used while its writer is:
///
/// ```
/// # use sojourn_ipc_rt::{Deadline, Draft, Transport};
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
    /// Issues context handles in `scope` from now on (servers).
    pub fn set_contexts(&mut self, scope: &'e ContextScope) {
        self.contexts = Some(scope);
    }

    /// Sets which arrays become string items; by default none.
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

    /// Returns the number of bytes written, in whole blocks.
    #[inline]
    #[must_use]
    pub fn written(&self) -> usize {
        self.encoder.at
    }

    /// Returns the length of the body in bytes.
    #[inline]
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.encoder.len
    }

    /// Returns true if body and string items, as far as written, are `bytes` bytes at most.
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
            sojourn_shm::copy::racy(bytes.as_ptr(), target, bytes.len());
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
        let WithItem { beside, done } = with_item(self.encoder.beside.0.take(), item);
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
