//! A descriptor whose number may have to change, in a descriptor table that belongs to the program.
//!
//! A library inside a program keeps a few descriptors in the program's table. If the program opens
//! a file of its own at such a number (dup2(2)), the library's descriptor moves to another number,
//! and all its users see the new one. Not here: the choice of numbers, and the interception of the
//! program's calls on them (`sojourn-preload`).

use crate::descriptor::of_program;
use core::sync::atomic::{AtomicI32, Ordering};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

/// A number that no descriptor has: calls on it fail with `EBADF`.
const GONE: i32 = i32::MAX;

/// The current number of a [`MovableFd`], shared with the code that moves it.
#[derive(Clone, Debug)]
pub struct FdNumber(Arc<AtomicI32>);

impl FdNumber {
    /// Returns the number.
    #[inline]
    pub fn number(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Gives the descriptor another number, or none. The old number is not closed.
    pub fn move_to(&self, number: Option<OwnedFd>) {
        self.0.store(number.map_or(GONE, IntoRawFd::into_raw_fd), Ordering::SeqCst);
    }
}

/// A descriptor, closed when this is dropped.
#[derive(Debug)]
pub struct MovableFd {
    place: FdNumber,
    /// Called with the number just before it is closed.
    closing: fn(i32),
}

impl MovableFd {
    /// Takes `fd`. `closing` is called with the number just before the descriptor is closed.
    pub fn new(fd: OwnedFd, closing: fn(i32)) -> Self {
        Self { place: FdNumber(Arc::new(AtomicI32::new(fd.into_raw_fd()))), closing }
    }

    /// Returns the shared number.
    pub fn place(&self) -> FdNumber {
        self.place.clone()
    }

    /// Returns the descriptor, which the caller owns from now on. Copies of [`MovableFd::place`]
    /// keep the number.
    pub fn into_owned(mut self) -> OwnedFd {
        let number = self.number();
        self.place = FdNumber(Arc::new(AtomicI32::new(GONE)));
        // SAFETY: the number came from an `OwnedFd`, and this does not close it any more.
        unsafe { OwnedFd::from_raw_fd(number) }
    }

    /// Returns the current number.
    #[inline]
    pub fn number(&self) -> i32 {
        self.place.number()
    }
}

impl From<OwnedFd> for MovableFd {
    fn from(fd: OwnedFd) -> Self {
        Self::new(fd, |_| ())
    }
}

impl AsFd for MovableFd {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        of_program(self.number()).unwrap_or(rustix::fs::CWD)
    }
}

impl Drop for MovableFd {
    fn drop(&mut self) {
        let number = self.place.0.swap(GONE, Ordering::SeqCst);
        if number != GONE {
            (self.closing)(number);
            // SAFETY: the number came from an `OwnedFd`, here or in `FdNumber::move_to`, and
            // nobody else closes it: it was taken out of its place.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{Errno, fcntl_dupfd_cloexec, fcntl_getfd};
    use std::os::fd::AsRawFd;

    fn is_open(number: i32) -> bool {
        of_program(number).is_some_and(|fd| fcntl_getfd(fd) != Err(Errno::BADF))
    }

    #[test]
    fn a_number_that_is_given_up_stays_open_and_the_new_one_is_closed() {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let at = |from| fcntl_dupfd_cloexec(&file, from).unwrap();
        let (first, second) = (at(800), at(820));
        let numbers = (first.as_raw_fd(), second.as_raw_fd());
        let held = MovableFd::from(first);
        assert_eq!(held.number(), numbers.0);
        held.place().move_to(Some(second));
        assert_eq!(held.as_fd().as_raw_fd(), numbers.1);
        drop(held);
        assert!(is_open(numbers.0) && !is_open(numbers.1));
        // SAFETY: given up above, and open.
        drop(unsafe { OwnedFd::from_raw_fd(numbers.0) });
        let held = MovableFd::from(at(800));
        let number = held.number();
        held.place().move_to(None);
        assert_eq!(fcntl_getfd(held.as_fd()), Err(Errno::BADF));
        drop(held);
        // SAFETY: given up above, and open.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
