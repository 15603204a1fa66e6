//! The library's notes on one registration of a set, and the tags by which it recognizes the
//! kernel's answers about it.
//!
//! Values only. Not here: the ready list (`set_ready`), the set (`set`), waiting (`set_wait`).
//!
//! # Theory of operation
//! The kernel returns with each event the 64 bits of the registration. Where the library answers
//! for a descriptor, it registers a *tag* instead: a prefix that no program uses knowingly, and the
//! descriptor. A set in which a program does use the prefix carries no sessions. The count in a tag
//! tells an event from before the last change of the registration from a current one.

use crate::host::epoll::{Interest, bit};
use core::hash::{BuildHasherDefault, Hasher};
use std::collections::HashMap;

const PREFIX: u64 = 0x9d5e_52b7;
const INBOX: u32 = 1 << 31;
/// A tag like an inbox's, with an index that no inbox has.
const PACKETS: u32 = !0;
const FD_BITS: u32 = 20;
/// The number of values of a tag's count.
const COUNTS: u32 = 1 << (31 - FD_BITS);

/// The meaning of a tag in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// The event descriptor of the set's inbox with that index.
    Inbox(usize),
    /// The packet sockets of the process.
    Packets,
    /// A descriptor for which the library answers, and the count of its registration.
    Descriptor(i32, u32),
}

impl Tag {
    pub(crate) fn to_data(self) -> u64 {
        let low = match self {
            Self::Inbox(index) => INBOX | index as u32,
            Self::Packets => PACKETS,
            Self::Descriptor(fd, count) => (count % COUNTS) << FD_BITS | fd as u32,
        };
        PREFIX << 32 | u64::from(low)
    }

    /// Returns the tag in an event's data, if it is one.
    #[inline]
    pub(crate) fn of_data(data: u64) -> Option<Self> {
        if data >> 32 != PREFIX {
            return None;
        }
        let low = data as u32;
        Some(if low == PACKETS {
            Self::Packets
        } else if low & INBOX != 0 {
            Self::Inbox((low & !INBOX) as usize)
        } else {
            Self::Descriptor((low & ((1 << FD_BITS) - 1)) as i32, low >> FD_BITS)
        })
    }

    /// Returns true if the descriptor's number fits a tag.
    pub(crate) fn fits(fd: i32) -> bool {
        (0..1 << FD_BITS).contains(&fd)
    }
}

/// The registration of a descriptor that a set had before it was known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredFd {
    pub(crate) fd: i32,
    pub(crate) registration: Registration,
}

/// One registration, as the program made it and as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registration {
    pub(crate) events: u32,
    pub(crate) data: u64,
    /// The index in the ready list + 1; 0: the kernel answers for the descriptor.
    pub(crate) member: u32,
    /// Changes with each change of the registration; part of the tag.
    pub(crate) count: u32,
    /// One-shot, and hot: watched from the next change on, see [`Registration::is_watched`].
    pub(crate) is_wanted: bool,
    /// One-shot, not joined, but tagged: so the library learns whether the registration has had its
    /// shot, which it must know when the session joins.
    pub(crate) is_watched: bool,
    /// One-shot, watched or joined: reported, and not changed since.
    pub(crate) is_spent: bool,
    /// Joined, and taken out of the set by the program: the kernel keeps the registration, since
    /// the program may put the descriptor back at once.
    pub(crate) is_absent: bool,
    /// Joined: the events that the kernel has been asked for.
    pub(crate) asked: u32,
}

impl Registration {
    pub(crate) fn new(events: u32, data: u64) -> Self {
        Self { events, data, ..Self::default() }
    }

    /// Returns what the program has asked for.
    pub(crate) fn interest(&self) -> Interest {
        Interest { events: self.events, data: self.data }
    }

    pub(crate) fn is_oneshot(&self) -> bool {
        self.events & bit::ONESHOT != 0
    }

    /// Makes the program's change.
    pub(crate) fn change(&mut self, events: u32, data: u64) {
        self.events = events;
        self.data = data;
        self.is_spent = false;
        self.next_count();
    }

    pub(crate) fn next_count(&mut self) {
        self.count = (self.count + 1) % COUNTS;
    }

    /// Returns the kernel's form of a registration for which the library answers: enough to learn
    /// of the kernel's events, edge by edge. Room is asked for only while bytes go to the kernel.
    pub(crate) fn joined_form(&self, fd: i32, sends_to_kernel: bool) -> Interest {
        let output = if sends_to_kernel { bit::OUTPUT } else { 0 };
        let asked = self.events & (bit::PRI | bit::RDBAND | output);
        Interest { events: bit::IN | bit::RDHUP | bit::ET | asked, data: self.tag(fd) }
    }

    /// Returns the kernel's form of a registration for which the kernel answers.
    pub(crate) fn kernel_form(&self, fd: i32) -> Interest {
        let data = if self.is_watched { self.tag(fd) } else { self.data };
        // Of a spent registration the kernel reports EPOLLERR and EPOLLHUP unasked, and those are
        // dropped when they come.
        let is_spent = self.is_watched && self.is_spent;
        Interest { events: if is_spent { bit::ONESHOT } else { self.events }, data }
    }

    fn tag(&self, fd: i32) -> u64 {
        Tag::Descriptor(fd, self.count).to_data()
    }
}

/// Registrations by descriptor number.
pub(crate) type Registrations = HashMap<i32, Registration, BuildHasherDefault<NumberHasher>>;

/// Notes that `fd` was reported to the program; with `is_spent` that was its shot.
pub(crate) fn reported(registrations: &mut Registrations, fd: i32, is_spent: bool) {
    if is_spent && let Some(registration) = registrations.get_mut(&fd) {
        registration.is_spent = true;
    }
}

/// Hashes descriptor numbers. They are small and dense, so a multiplication spreads them well
/// enough, and needs no random key, which would take a system call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
    }

    fn write_i32(&mut self, number: i32) {
        self.0 = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_come_back_as_they_were() {
        for tag in [
            Tag::Inbox(0),
            Tag::Inbox(7),
            Tag::Packets,
            Tag::Descriptor(0, 0),
            Tag::Descriptor((1 << FD_BITS) - 1, COUNTS - 1),
            Tag::Descriptor(42, 5),
        ] {
            assert_eq!(Tag::of_data(tag.to_data()), Some(tag));
        }
    }

    #[test]
    fn what_programs_register_is_no_tag() {
        for data in [0, 5, u64::MAX, 0x7fff_0123_4567, 0x5555_5555_5000, 1 << 63] {
            assert_eq!(Tag::of_data(data), None);
        }
    }

    #[test]
    fn counts_wrap_as_tags_do() {
        let mut registration = Registration::new(bit::IN, 1);
        for _ in 0..COUNTS + 3 {
            registration.next_count();
        }
        let data = registration.joined_form(9, true).data;
        assert_eq!(Tag::of_data(data), Some(Tag::Descriptor(9, registration.count)));
        assert_eq!(registration.count, 3);
    }

    #[test]
    fn a_spent_one_shot_is_given_back_spent() {
        let mut registration = Registration::new(bit::IN | bit::ONESHOT, 77);
        let asked = Interest { events: bit::IN | bit::ONESHOT, data: 77 };
        assert_eq!(registration.kernel_form(3), asked);
        registration.is_watched = true;
        assert_eq!(registration.kernel_form(3).events, bit::IN | bit::ONESHOT);
        registration.is_spent = true;
        assert_eq!(registration.kernel_form(3).events, bit::ONESHOT);
        registration.change(bit::OUT | bit::ONESHOT, 78);
        assert_eq!(registration.kernel_form(3).events, bit::OUT | bit::ONESHOT);
        assert!(Tag::of_data(registration.kernel_form(3).data).is_some());
    }
}
