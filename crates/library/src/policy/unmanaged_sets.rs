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
use sojourn_session::Inode;

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

    pub(crate) fn unmanaged_sets(&self, descriptors: &mut dyn OpenDescriptors) -> Vec<i32> {
        let mut sets = descriptors.sets();
        sets.retain(|fd| !self.is_own(*fd) && !self.knows_set(*fd));
        sets
    }
}

pub(crate) fn inode(fd: i32) -> Option<Inode> {
    Some(Inode(rustix::fs::fstat(kernel::at(fd).ok()?).ok()?.st_ino))
}

/// A line of a set's `fdinfo` (proc(5)): one registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) fd: i32,
    pub(crate) events: u32,
    pub(crate) data: u64,
    pub(crate) inode: Option<Inode>,
}

/// Parses a set's `fdinfo`.
pub(crate) fn members_of(text: &str) -> impl Iterator<Item = Member> {
    text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let fd = words.next()?.parse().ok()?;
        let mut member = Member { fd, events: 0, data: 0, inode: None };
        while let Some(word) = words.next() {
            let hex = |word: &str| u64::from_str_radix(word, 16).ok();
            match word {
                "events:" => member.events = hex(words.next()?)? as u32,
                "data:" => member.data = hex(words.next()?)?,
                _ => {
                    let inode = word.strip_prefix("ino:").and_then(hex).map(Inode);
                    member.inode = inode.or(member.inode);
                }
            }
        }
        Some(member)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::descriptors::Direct;
    use crate::process::library::library;
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
}
