//! Epoll sets that were made past the library, and become the library's own once the program's own
//! system calls arrive here (`Host::own_calls`).
//!
//! Not here: sets that stay unknown (`policy::unmanaged_sets`), and one set (`set`).

use crate::host::descriptors::OpenDescriptors;
use crate::policy::unmanaged_sets::{inode, members_of};
use crate::process::library::Library;
use crate::process::looks::UnmanagedSets;
use crate::ready::set_entry::{RegisteredFd, Registration};
use core::sync::atomic::Ordering;

impl Library {
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
}

/// Parses a set's `fdinfo`, for the set's notes: the registrations by their numbers. `None` if a
/// number has another meaning by now than at its registration.
fn members(text: &str) -> Option<Vec<RegisteredFd>> {
    members_of(text)
        .map(|one| {
            let is_same = one.inode.is_some() && inode(one.fd) == one.inode;
            let registration = Registration::new(one.events, one.data);
            is_same.then_some(RegisteredFd { fd: one.fd, registration })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::descriptors::Direct;
    use crate::host::epoll::op;
    use crate::policy::unmanaged_sets::Member;
    use crate::process::library::library;
    use crate::ready::sets::SetOf;
    use rustix::event::epoll::{self, EventData, EventFlags};
    use rustix::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

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
        let (kept, other) = UnixStream::pair().unwrap();
        // A number that no other test has had.
        let mut one = rustix::io::fcntl_dupfd_cloexec(&kept, 801).unwrap();
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        epoll::add(&set, &one, EventData::new_u64(1), EventFlags::IN).unwrap();
        // The number now means the other end; a duplicate keeps the registration.
        rustix::io::dup2(&other, &mut one).unwrap();
        let text = Direct::here().info(set.as_raw_fd());
        assert!(text.contains("tfd:") && members(&text).is_none());
        library().adopt_set(set.as_raw_fd(), || members(&text));
        assert_eq!(library().set_of(one.as_raw_fd()), SetOf::None, "nothing is noted");
    }
}
