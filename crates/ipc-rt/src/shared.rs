//! Objects behind `ptr` pointers: shared, their identity kept on the wire.
//!
//! # Theory of operation
//! The wire numbers such objects in the order of the words that name them, so a word may name an
//! object whose bytes come later. The decoder therefore makes the object's cell when its number
//! first appears and fills it when its bytes do. Every cell is filled, and the references are
//! checked to be free of cycles, before the value leaves the decoder.

use core::any::Any;
use core::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::{Cause, DecodeError};

/// A shared, immutable object. Two pointers to one object travel as one object.
#[derive(Debug)]
pub struct Shared<T>(Arc<OnceLock<T>>);

impl<T> Shared<T> {
    /// Creates an object.
    pub fn new(value: T) -> Self {
        Self(Arc::new(OnceLock::from(value)))
    }

    /// Returns true if both are the same object.
    #[must_use]
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        Arc::ptr_eq(&a.0, &b.0)
    }

    /// Returns an address that identifies the object while it lives.
    #[must_use]
    pub fn address(this: &Self) -> usize {
        Arc::as_ptr(&this.0) as usize
    }
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: PartialEq> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Self::ptr_eq(self, other) || **self == **other
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self.0.get() {
            Some(value) => value,
            // The decoder hands out a value only when `Objects::finish` has seen all cells filled.
            None => unreachable!("a shared object left the decoder before it was complete"),
        }
    }
}

impl<T> From<T> for Shared<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

/// Numbers given to objects by a sender.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    seen: Vec<Seen>,
}

/// An object that has a number.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// Address of the object.
    address: usize,
    /// Address of the pointer that named it first.
    pointer: usize,
}

/// The number of an object on the wire.
pub(super) struct Name {
    pub(super) number: u32,
    /// True if the object got the number just now.
    pub(super) is_new: bool,
}

impl Numbers {
    /// Returns the number of the object at `address`, a new one if it has none yet.
    pub(super) fn name(&mut self, address: usize, pointer: usize) -> Name {
        if let Some(at) = self.seen.iter().position(|seen| seen.address == address) {
            return Name { number: at as u32 + 1, is_new: false };
        }
        self.seen.push(Seen { address, pointer });
        Name { number: self.seen.len() as u32, is_new: true }
    }

    /// Returns true if the pointer at `pointer` was the first to name the object at `address`.
    pub(super) fn is_first(&self, address: usize, pointer: usize) -> bool {
        self.seen.contains(&Seen { address, pointer })
    }
}

/// Numbers of a message that mostly has none: then dropping this costs a comparison.
#[derive(Debug, Default)]
pub(super) struct LazyNumbers(Option<Box<Numbers>>);

impl LazyNumbers {
    pub(super) fn get(&mut self) -> &mut Numbers {
        self.0.get_or_insert_default()
    }
}

impl Drop for LazyNumbers {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_some() {
            release_numbers(self.0.take());
        }
    }
}

#[cold]
#[inline(never)]
fn release_numbers(numbers: Option<Box<Numbers>>) {
    drop(numbers);
}

/// An object of a message being read.
#[derive(Debug)]
struct Object {
    /// Offset of the word that named it first.
    named_at: usize,
    /// Its cell, once someone has asked for it: `Arc<OnceLock<T>>`.
    cell: Option<Arc<dyn Any + Send + Sync>>,
    filled: bool,
    /// Numbers of the objects it refers to.
    refers: Vec<u32>,
}

/// An object that a word names.
pub(super) struct Reference<T> {
    pub(super) object: Shared<T>,
    /// True if the object's bytes are to be read for this word: it named the object first.
    pub(super) is_first: bool,
}

/// The objects of a message being read, by number.
#[derive(Debug, Default)]
pub(super) struct Objects {
    list: Vec<Object>,
    /// Numbers of the objects whose bytes are being read.
    open: Vec<u32>,
}

impl Objects {
    /// Takes note of a word `number` at `slot`, in the order of the bytes.
    pub(super) fn scan(&mut self, number: u32, slot: usize) -> Result<(), DecodeError> {
        let next = self.list.len() as u32 + 1;
        if number > next {
            return Err(DecodeError::new(Cause::Number, slot));
        }
        if number == next {
            self.list.push(Object {
                named_at: slot,
                cell: None,
                filled: false,
                refers: Vec::new(),
            });
        }
        Ok(())
    }

    /// Returns the object `number` (not 0), named by the word at `slot`.
    pub(super) fn refer<T: Send + Sync + 'static>(
        &mut self,
        number: u32,
        slot: usize,
    ) -> Result<Reference<T>, DecodeError> {
        let wrong = || DecodeError::new(Cause::Number, slot);
        if let Some(outer) = self.open.last()
            && let Some(object) = self.list.get_mut(*outer as usize - 1)
        {
            object.refers.push(number);
        }
        let object = self.list.get_mut(number as usize - 1).ok_or_else(wrong)?;
        let cell = object.cell.get_or_insert_with(|| Arc::new(OnceLock::<T>::new()));
        let cell = Arc::clone(cell).downcast::<OnceLock<T>>().map_err(|_| wrong())?;
        Ok(Reference { object: Shared(cell), is_first: object.named_at == slot })
    }

    /// Notes that the bytes of object `number` are being read from now on.
    pub(super) fn open(&mut self, number: u32) {
        self.open.push(number);
    }

    /// Notes that they have been read, and fills the object's cell.
    pub(super) fn fill<T>(&mut self, cell: &Shared<T>, value: T) {
        if let Some(number) = self.open.pop()
            && let Some(object) = self.list.get_mut(number as usize - 1)
        {
            object.filled = cell.0.set(value).is_ok();
        }
    }

    /// Returns true if every object is complete and none refers to itself.
    pub(super) fn finish(&self, end: usize) -> Result<(), DecodeError> {
        if self.list.iter().any(|o| !o.filled) {
            return Err(DecodeError::new(Cause::Number, end));
        }
        let mut degree = vec![0_u32; self.list.len()];
        for to in self.list.iter().flat_map(|o| &o.refers) {
            degree[*to as usize - 1] += 1;
        }
        let mut free: Vec<usize> = (0..degree.len()).filter(|i| degree[*i] == 0).collect();
        let mut done = 0;
        while let Some(at) = free.pop() {
            done += 1;
            for to in &self.list[at].refers {
                let to = *to as usize - 1;
                degree[to] -= 1;
                if degree[to] == 0 {
                    free.push(to);
                }
            }
        }
        if done == degree.len() { Ok(()) } else { Err(DecodeError::new(Cause::Cycle, end)) }
    }
}

/// The objects of a message, of which most have none: then dropping this costs a comparison, which
/// lets a decoder live in registers.
#[derive(Debug, Default)]
pub(super) struct LazyObjects(Option<Box<Objects>>);

impl LazyObjects {
    pub(super) fn get(&mut self) -> &mut Objects {
        self.0.get_or_insert_default()
    }

    #[inline]
    pub(super) fn finish(&self, end: usize) -> Result<(), DecodeError> {
        match &self.0 {
            None => Ok(()),
            Some(objects) => objects.finish(end),
        }
    }
}

impl Drop for LazyObjects {
    #[inline(always)]
    fn drop(&mut self) {
        if self.0.is_some() {
            release(self.0.take());
        }
    }
}

#[cold]
#[inline(never)]
fn release(objects: Option<Box<Objects>>) {
    drop(objects);
}
