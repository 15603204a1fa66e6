//! Reading a message: views of known size over a private body, taken one after the other.
//!
//! # Theory of operation
//! The body has been copied to private memory before, so it is read in place and read as often as
//! is convenient. One pass reads an object and everything it refers to. String items, grants and
//! descriptors are numbered in the order of the words that name them, which is not the order of
//! that pass: where a message has any, each object's words are counted (`slots`) when the object is
//! opened, so that its own words and those of the objects behind it draw from the right places.
//!
//! What few messages need is done out of line by functions that take and give plain values: a
//! decoder whose address nobody takes can live in registers. Nothing here can be switched off. Not
//! here: arrays and strings (`arrays`).

use super::item::{FdList, Item};

use super::pod::Words;
use super::shared::{LazyObjects, Objects, Reference, Shared};
use super::slots::{Elements, Slot, Taken, count_items, count_words};
use super::{Cause, ContextScope, DecodeError, Descriptor, Interface, View};
use std::os::fd::OwnedFd;

/// A received message being read.
#[derive(Debug)]
pub struct Decoder<'m> {
    /// What has not been taken yet.
    rest: &'m [u8],
    /// Bytes of the body.
    len: usize,
    level: u32,
    pub(super) items: &'m [Item<'m>],
    pub(super) grants: &'m [Item<'m>],
    fds: &'m mut FdList,
    /// True if anything travels beside the body.
    beside: bool,
    /// What the next word of the object being read takes.
    pub(super) now: Taken,
    /// What the first word of the next object takes.
    next: Taken,
    /// Most messages have none.
    objects: LazyObjects,
    contexts: Option<&'m ContextScope>,
}

impl<'m> Decoder<'m> {
    /// Creates a decoder over a private `body` and what came with it. `grants` are those of the
    /// message, resolved to memory by the transport.
    #[inline]
    #[must_use]
    pub fn new(
        body: &'m [u8],
        items: &'m [Item<'m>],
        grants: &'m [Item<'m>],
        fds: &'m mut FdList,
    ) -> Self {
        let beside = !items.is_empty() || !grants.is_empty() || !fds.is_empty();
        Self {
            rest: body,
            len: body.len(),
            level: 0,
            items,
            grants,
            fds,
            beside,
            now: Taken::default(),
            next: Taken::default(),
            objects: LazyObjects::default(),
            contexts: None,
        }
    }

    /// Looks context handles up in `scope` from now on (servers).
    pub fn set_contexts(&mut self, scope: &'m ContextScope) {
        self.contexts = Some(scope);
    }

    /// Returns true if body and string items are `bytes` bytes at most. To be asked before anything
    /// is taken.
    ///
    /// # Errors
    /// [`Cause::TooLarge`].
    pub fn within(&self, bytes: u64) -> Result<(), DecodeError> {
        let items = self.items.iter().map(|item| item.len() as u64);
        let all = items.fold(self.len as u64, u64::saturating_add);
        if all <= bytes { Ok(()) } else { Self::fail(Cause::TooLarge, self.at()) }
    }

    /// Returns the error `cause` at byte `at`. Does not look at the decoder, which therefore can
    /// live in registers.
    #[inline]
    pub(super) fn fail<T>(cause: Cause, at: usize) -> Result<T, DecodeError> {
        Err(DecodeError::new(cause, at))
    }

    fn objects(&mut self) -> &mut Objects {
        self.objects.get()
    }

    /// Returns the number of bytes taken.
    #[inline]
    fn at(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Takes the next `bytes` bytes; those up to the next multiple of 8 must be zero.
    #[inline]
    pub(super) fn take(&mut self, bytes: usize) -> Result<&'m [u8], DecodeError> {
        // Wraps only for what no slice has.
        let padded = bytes.wrapping_add(7) & !7;
        let Some((all, rest)) = self.rest.split_at_checked(padded) else {
            return Self::fail(Cause::Short, self.at());
        };
        let Some(object) = all.get(..bytes) else { return Self::fail(Cause::Short, self.at()) };
        let used = bytes % 8;
        if let (true, Some(last)) = (used != 0, all.last_chunk::<8>())
            && u64::from_le_bytes(*last) >> (8 * used) != 0
        {
            return Self::fail(Cause::Padding, self.at() + bytes);
        }
        self.rest = rest;
        Ok(object)
    }

    /// Takes the primary block, whose words are at `slots`.
    ///
    /// # Errors
    /// [`Cause::Short`], and those of counting the words.
    #[inline]
    pub fn primary<const N: usize>(&mut self, slots: &[Slot]) -> Result<View<'m, N>, DecodeError> {
        let view = self.view::<N>()?;
        self.enter(slots, view.bytes, view.offset, 1, N)?;
        Ok(view)
    }

    #[inline]
    fn view<const N: usize>(&mut self) -> Result<View<'m, N>, DecodeError> {
        let offset = self.at();
        match self.take(N)?.first_chunk::<N>() {
            Some(bytes) => Ok(View { bytes, offset }),
            None => Self::fail(Cause::Short, offset),
        }
    }

    /// Counts the words of `count` elements of `stride` bytes: they take what is next, and what the
    /// objects behind them take comes after.
    #[inline]
    fn enter(
        &mut self,
        slots: &[Slot],
        bytes: &[u8],
        offset: usize,
        count: usize,
        stride: usize,
    ) -> Result<(), DecodeError> {
        if slots.is_empty() {
            return Ok(());
        }
        if super::slots::have_numbers(slots) {
            self.now = self.next;
            let elements = Elements { slots, bytes, offset, count, stride };
            self.next = count_words(&elements, self.next, &mut self.objects)?;
        } else if self.beside {
            self.now = self.next;
            let elements = Elements { slots, bytes, offset, count, stride };
            self.next = count_items(&elements, self.next);
        }
        Ok(())
    }

    /// Takes the object behind a word, of `N` bytes, and reads it by `read`.
    ///
    /// # Errors
    /// [`Cause::Short`], [`Cause::Depth`], and those of `read`.
    #[inline]
    pub fn object<const N: usize, R>(
        &mut self,
        slots: &[Slot],
        read: impl FnOnce(&mut Self, View<'m, N>) -> Result<R, DecodeError>,
    ) -> Result<R, DecodeError> {
        self.descend()?;
        let view = self.view::<N>()?;
        let outer = self.now;
        self.enter(slots, view.bytes, view.offset, 1, N)?;
        let value = read(self, view)?;
        if !slots.is_empty() {
            self.now = outer;
        }
        self.level -= 1;
        Ok(value)
    }

    /// Goes one level down.
    #[inline]
    pub(super) fn descend(&mut self) -> Result<(), DecodeError> {
        if self.level >= super::measure::LEVELS_MAX {
            return Self::fail(Cause::Depth, self.at());
        }
        self.level += 1;
        Ok(())
    }

    /// Goes one level up again.
    #[inline]
    pub(super) fn ascend(&mut self) {
        self.level -= 1;
    }

    /// Takes `count` elements of `N` bytes from the body, and reads each by `read`.
    #[inline]
    pub(super) fn elements<const N: usize, R>(
        &mut self,
        count: usize,
        slots: &[Slot],
        read: &mut impl for<'x> FnMut(&mut Self, View<'x, N>) -> Result<R, DecodeError>,
    ) -> Result<Vec<R>, DecodeError> {
        if count == 0 {
            return Ok(Vec::new());
        }
        self.descend()?;
        let offset = self.at();
        let Some(bytes) = count.checked_mul(N) else { return Self::fail(Cause::Short, offset) };
        let bytes = self.take(bytes)?;
        let outer = self.now;
        self.enter(slots, bytes, offset, count, N)?;
        let mut values = Vec::with_capacity(count);
        for (index, chunk) in bytes.as_chunks::<N>().0.iter().enumerate() {
            values.push(read(self, View { bytes: chunk, offset: offset + index * N })?);
        }
        if !slots.is_empty() {
            self.now = outer;
        }
        self.level -= 1;
        Ok(values)
    }

    /// Reads a descriptor word.
    ///
    /// # Errors
    /// [`Cause::Pointer`] for a word other than 0 and 1, [`Cause::Descriptor`] if none is left.
    pub fn descriptor<const AT: usize, const N: usize>(
        &mut self,
        view: View<'_, N>,
    ) -> Result<Option<OwnedFd>, DecodeError> {
        match view.get::<AT, u32>() {
            0 => Ok(None),
            1 => {
                let index = usize::from(self.now.fds);
                self.now.fds += 1;
                match self.fds.take(index) {
                    Some(fd) => Ok(Some(fd)),
                    None => Self::fail(Cause::Descriptor, view.offset + AT),
                }
            }
            _ => Self::fail(Cause::Pointer, view.offset + AT),
        }
    }

    /// Reads an interface reference.
    ///
    /// # Errors
    /// As [`Decoder::descriptor`]; [`Cause::Padding`] for a null one that is not all zero.
    pub fn interface<const AT: usize, const N: usize>(
        &mut self,
        view: View<'_, N>,
    ) -> Result<Option<Interface>, DecodeError> {
        let part = view.sub::<AT, 24>();
        part.zero::<4, 4>()?;
        match self.descriptor::<0, 24>(part)? {
            Some(fd) => {
                let socket = Descriptor::from(fd);
                Ok(Some(Interface { uuid: *part.bytes::<8, 16>(), socket }))
            }
            None => part.zero::<8, 16>().map(|()| None),
        }
    }

    /// Reads a `ptr` pointer to an object of `M` bytes, which `read` reads when it is first named.
    ///
    /// # Errors
    /// [`Cause::Number`], [`Cause::Padding`], [`Cause::Depth`], and those of `read`.
    pub fn shared<const AT: usize, const M: usize, T: Send + Sync + 'static, const N: usize>(
        &mut self,
        view: View<'_, N>,
        slots: &[Slot],
        read: impl FnOnce(&mut Self, View<'m, M>) -> Result<T, DecodeError>,
    ) -> Result<Option<Shared<T>>, DecodeError> {
        let Words(number, rest) = view.pair::<AT>();
        let slot = view.offset + AT;
        if rest != 0 {
            return Self::fail(Cause::Padding, slot + 4);
        }
        if number == 0 {
            return Ok(None);
        }
        let Reference { object, is_first } = self.objects().refer::<T>(number, slot)?;
        if is_first {
            self.objects().open(number);
            let value = self.object::<M, T>(slots, read)?;
            self.objects().fill(&object, value);
        }
        Ok(Some(object))
    }

    /// Returns true if a `unique` pointer is present.
    ///
    /// # Errors
    /// [`Cause::Pointer`] for words other than 0 and 1.
    #[inline]
    pub fn present<const AT: usize, const N: usize>(
        &self,
        view: View<'_, N>,
    ) -> Result<bool, DecodeError> {
        match view.pair::<AT>() {
            Words(0, 0) => Ok(false),
            Words(1, 0) => Ok(true),
            _ => Self::fail(Cause::Pointer, view.offset + AT),
        }
    }

    /// Reads a context handle of interface type `kind`.
    ///
    /// # Errors
    /// [`Cause::Handle`] for a handle that this client does not hold.
    pub fn context<const AT: usize, const N: usize>(
        &self,
        view: View<'_, N>,
        kind: u32,
    ) -> Result<u64, DecodeError> {
        let word = view.get::<AT, u64>();
        match self.contexts {
            None => Ok(word),
            Some(scope) => {
                scope.find(kind, word).ok_or(DecodeError::new(Cause::Handle, view.offset + AT))
            }
        }
    }

    /// Checks that everything has been read.
    ///
    /// # Errors
    /// [`Cause::Trailing`], [`Cause::Item`], [`Cause::Descriptor`], [`Cause::Cycle`].
    #[inline]
    pub fn finish(&self) -> Result<(), DecodeError> {
        if !self.rest.is_empty() {
            return Self::fail(Cause::Trailing, self.at());
        }
        if self.beside {
            if usize::from(self.next.items) != self.items.len()
                || usize::from(self.next.grants) != self.grants.len()
            {
                return Self::fail(Cause::Item, self.len);
            }
            if usize::from(self.next.fds) != self.fds.len() {
                return Self::fail(Cause::Descriptor, self.len);
            }
        }
        self.objects.finish(self.len)
    }
}
