//! Sequence numbers: counters of bytes modulo 2³² (RFC 9293 section 3.4).
//!
//! Not here: the order of timestamps (RFC 7323 section 5.2), which is the same arithmetic on plain
//! numbers.

use core::cmp::Ordering;
use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A sequence number. A number is greater than another if it is ahead by less than 2³¹.
///
/// The order holds within one window (less than 2³⁰ bytes), where it is transitive; it is therefore
/// [`PartialOrd`] only, and must not be used to sort arbitrary numbers. Two numbers exactly 2³¹
/// apart are ordered as plain numbers, so that either `<` or `>` always holds and a forged segment
/// never falls between the cases of a comparison.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Returns the number of bytes by which `self` is ahead of `other`; negative if it is behind.
    pub const fn ahead_of(self, other: Self) -> i32 {
        self.0.wrapping_sub(other.0) as i32
    }

    /// Returns the number of bytes from `from` up to `self`, for numbers known to be in this order.
    pub const fn since(self, from: Self) -> u32 {
        self.0.wrapping_sub(from.0)
    }

    /// Returns true if `self` lies in the `len` numbers from `start` on.
    pub const fn is_in(self, start: Self, len: u32) -> bool {
        self.since(start) < len
    }

    /// Returns the later of two numbers.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    /// Returns the earlier of two numbers.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        if other < self { other } else { self }
    }
}

impl PartialOrd for SeqNum {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(match self.ahead_of(*other) {
            i32::MIN => self.0.cmp(&other.0),
            ahead => ahead.cmp(&0),
        })
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;

    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;

    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl SubAssign<u32> for SeqNum {
    fn sub_assign(&mut self, bytes: u32) {
        *self = *self - bytes;
    }
}

impl From<u32> for SeqNum {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
#[path = "seq_tests.rs"]
mod tests;
