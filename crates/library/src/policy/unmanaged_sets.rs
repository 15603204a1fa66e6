//! Epoll sets made past the library, by a program's own system calls: a descriptor in one must not
//! move, because the kernel would never report it again.
//!
//! Some programs make part of their calls themselves (Rust's rustix does, and many event loops use
//! it) while their data calls go through the C library. So before an offer the protocol thread
//! looks for epoll descriptors that the library does not know, and reads their members in
//! `/proc/self/fdinfo` (`tfd`, proc(5)). A look through many descriptors takes a while, so it is
//! made now and then (`process::looks`); a set that is made and filled in between is seen too late.
//! Not here: sets that the library knows (`ready::sets`).

use crate::host::descriptors::OpenDescriptors;
use crate::host::kernel;
use crate::process::library::Library;
use crate::process::looks::UnmanagedSets;
use crate::ready::set_entry::Registration;
use core::sync::atomic::Ordering;

impl Library {
    /// Returns true if one of `numbers`, all of one description, is in a set made past the library.
    /// Called by the protocol thread.
    pub(crate) fn is_in_unmanaged_set(
        &self,
        numbers: &[i32],
        known: &mut UnmanagedSets,
        descriptors: &mut dyn OpenDescriptors,
    ) -> bool {
        let sets = known.sets(|| self.unmanaged_sets(descriptors));
        let inode = numbers.first().and_then(|fd| inode(*fd));
        sets.iter().filter(|set| !self.knows_set(**set)).any(|set| {
            // The number in the registration may be closed or reused since, so the inode counts as
            // well.
            let is_it = |one: Member| {
                numbers.contains(&one.fd) || one.inode.is_some() && one.inode == inode
            };
            members_of(&descriptors.info(*set)).any(is_it)
        })
    }

    /// Makes sets that were made past the library its own, because from now on all calls for them
    /// arrive here; but not those in `waited`, for which threads still wait past the library, those
    /// that are members of others, and those that a child may use. Called by the protocol thread.
    pub(crate) fn adopt_sets(
        &self,
        known: &mut UnmanagedSets,
        waited: &[i32],
        descriptors: &mut dyn OpenDescriptors,
    ) {
        if self.fork_epoch.load(Ordering::SeqCst) != 0 {
            return;
        }
        let sets = known.sets(|| self.unmanaged_sets(descriptors));
        let inner: Vec<i32> = sets
            .iter()
            .flat_map(|set| {
                members_of(&descriptors.info(*set)).map(|one| one.fd).collect::<Vec<_>>()
            })
            .filter(|fd| sets.contains(fd))
            .collect();
        for set in sets {
            let is_fit = !waited.contains(set) && !inner.contains(set) && !self.knows_set(*set);
            if is_fit {
                self.adopt_set(*set, || members(&descriptors.info(*set)));
            }
        }
    }

    fn unmanaged_sets(&self, descriptors: &mut dyn OpenDescriptors) -> Vec<i32> {
        let mut sets = descriptors.sets();
        sets.retain(|fd| !self.is_own(*fd) && !self.knows_set(*fd));
        sets
    }
}

fn inode(fd: i32) -> Option<u64> {
    Some(rustix::fs::fstat(kernel::at(fd).ok()?).ok()?.st_ino)
}

/// A line of a set's `fdinfo` (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    fd: i32,
    events: u32,
    data: u64,
    inode: Option<u64>,
}

/// Parses a set's `fdinfo`.
fn members_of(text: &str) -> impl Iterator<Item = Member> {
    text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let fd = words.next()?.parse().ok()?;
        let mut member = Member { fd, events: 0, data: 0, inode: None };
        while let Some(word) = words.next() {
            let hex = |word: &str| u64::from_str_radix(word, 16).ok();
            match word {
                "events:" => member.events = hex(words.next()?)? as u32,
                "data:" => member.data = hex(words.next()?)?,
                _ => member.inode = word.strip_prefix("ino:").and_then(hex).or(member.inode),
            }
        }
        Some(member)
    })
}

/// Parses a set's `fdinfo`, for the set's notes: the registrations by their numbers. `None` if a
/// number has another meaning by now than at its registration.
fn members(text: &str) -> Option<Vec<(i32, Registration)>> {
    members_of(text)
        .map(|one| {
            let is_same = one.inode.is_some() && inode(one.fd) == one.inode;
            is_same.then_some((one.fd, Registration::new(one.events, one.data)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::descriptors::Direct;
    use crate::host::epoll::op;
    use crate::process::library::library;
    use crate::ready::sets::SetOf;
    use rustix::event::epoll::{self, EventData, EventFlags};
    use rustix::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_is_in_a_set_that_nobody_has_told_of_is_found_by_any_number() {
        let (one, other) = UnixStream::pair().unwrap();
        let again = one.try_clone().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &one, EventData::new_u64(1), EventFlags::IN).unwrap();
        let is_in = |end: &UnixStream| {
            library().is_in_unmanaged_set(
                &[end.as_raw_fd()],
                &mut UnmanagedSets::default(),
                &mut Direct::here(),
            )
        };
        assert!(is_in(&one) && is_in(&again) && !is_in(&other));
        epoll::delete(&set, &one).unwrap();
        assert!(!is_in(&one));
        epoll::add(&set, &one, EventData::new_u64(1), EventFlags::IN).unwrap();
        library().epoll_made(set.as_raw_fd());
        assert!(!is_in(&one), "the library knows of it");
    }

    #[test]
    fn a_set_is_adopted_with_what_is_in_it() {
        let (one, other) = UnixStream::pair().unwrap();
        let make = |data| {
            let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            epoll::add(&set, &one, EventData::new_u64(data), EventFlags::IN).unwrap();
            set
        };
        let info = |fd: i32| Direct::here().info(fd);
        let set = make(4711);
        let found: Vec<Member> = members_of(&info(set.as_raw_fd())).collect();
        assert_eq!((found[0].fd, found[0].data), (one.as_raw_fd(), 4711));
        assert_ne!(found[0].events & EventFlags::IN.bits(), 0);
        assert_eq!(found[0].inode, inode(one.as_raw_fd()));
        library().adopt_set(set.as_raw_fd(), || members(&info(set.as_raw_fd())));
        assert!(library().knows_set(set.as_raw_fd()));
        assert!(matches!(library().set_of(one.as_raw_fd()), SetOf::One(_)));
        assert_eq!(library().set_of(other.as_raw_fd()), SetOf::None);
        // The program goes on with the set as if it had been known from the beginning.
        library().epoll_ctl(set.as_raw_fd(), op::DEL, one.as_raw_fd(), None).unwrap();
        assert!(!info(set.as_raw_fd()).contains("tfd:"));
    }

    #[test]
    fn a_set_with_numbers_of_other_meaning_is_left_to_the_kernel() {
        let (one, other) = UnixStream::pair().unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &one, EventData::new_u64(1), EventFlags::IN).unwrap();
        let kept = one.try_clone().unwrap();
        // The number now means the other end; a duplicate keeps the registration.
        let number = one.as_raw_fd();
        let mut number_of_other = one.into();
        rustix::io::dup2(&other, &mut number_of_other).unwrap();
        let text = Direct::here().info(set.as_raw_fd());
        assert!(text.contains("tfd:") && members(&text).is_none());
        library().adopt_set(set.as_raw_fd(), || members(&text));
        assert_eq!(library().set_of(number), SetOf::None, "nothing is noted");
        drop((kept, number_of_other));
    }
}
