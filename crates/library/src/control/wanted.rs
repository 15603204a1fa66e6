//! Sessions that an administrator wants elsewhere now (`sojourn move SESSION library`), hot or not.
//!
//! The protocol thread does this: the server names an inode, and the thread offers this process's
//! descriptors of it, or says why it does not. A reason that binds a session to the kernel counts
//! here, too; its use does not. Not here: offers and their outcome (`moves::offer`, `protocol`).

use crate::fds::entry::{FdEntry, mark};
use crate::host::descriptors::OpenDescriptors;
use crate::host::kernel;
use crate::moves::offer::Offer;
use crate::process::library::Library;
use crate::process::thresholds::{allows, kind_of};
use core::sync::atomic::Ordering;
use sojourn_session::{HomeT, Inode, ReasonT};

/// The answer to an administrator's wish.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// These offers are to be made.
    Offer(Vec<Offer>),
    /// The session is there, or offered, already, or has gone home.
    Done,
    /// The session has gone home from another home, and is to be offered when the server knows
    /// that.
    Later,
    /// The session stays in the kernel.
    Not(ReasonT),
}

impl Library {
    /// Makes the offers of everything that this process has open of that inode: several numbers of
    /// one description are one offer, both ends of a pipe are two. What is away in another home
    /// goes to the kernel first.
    pub(crate) fn wanted(
        &self,
        inode: Inode,
        home: HomeT,
        descriptors: &mut dyn OpenDescriptors,
    ) -> Wanted {
        if self.policy.is_forbidden() {
            return Wanted::Not(ReasonT::Policy);
        }
        let (mut offers, mut reason) = (Vec::<Offer>::new(), ReasonT::Closed);
        for fd in numbers_of(self, inode, descriptors).into_iter().filter(|fd| !self.is_own(*fd)) {
            // First, so that an offer which the program's own calls cause names this home, too.
            self.table.entry(fd).into_iter().for_each(|entry| entry.wish(home));
            if offers.iter().any(|offer| offer.numbers.contains(&fd)) {
                continue;
            }
            let is_served = self.session_of(fd).map(|session| session.service.is_any());
            let is_elsewhere =
                is_served.is_some_and(|is_served| is_served != (home == HomeT::Server));
            if is_elsewhere || home == HomeT::Kernel {
                self.go_home(fd, ReasonT::User, false);
                return if home == HomeT::Kernel { Wanted::Done } else { Wanted::Later };
            }
            match self.offer_wanted(fd, descriptors) {
                Ok(Some(offer)) => offers.push(offer),
                Ok(None) => return Wanted::Done,
                Err(why) => reason = why,
            }
        }
        if offers.is_empty() { Wanted::Not(reason) } else { Wanted::Offer(offers) }
    }

    /// Makes the offer of a number; `None` if it is offered or away already.
    fn offer_wanted(
        &self,
        fd: i32,
        descriptors: &mut dyn OpenDescriptors,
    ) -> Result<Option<Offer>, ReasonT> {
        let entry = self.table.entry(fd).ok_or(ReasonT::Resources)?;
        if entry.session.load(Ordering::SeqCst).is_some() {
            return Ok(None);
        }
        let kind = kind_of(fd).ok_or(ReasonT::Kind)?;
        self.may_be_offered(fd, entry)?;
        if !allows(self.policy.config(), fd, kind) {
            return Err(ReasonT::Policy);
        }
        let before = entry.marks.fetch_or(mark::OFFERED | mark::WAS_OFFERED, Ordering::SeqCst);
        if before & mark::OFFERED != 0 {
            return Ok(None);
        }
        let version = entry.version.load(Ordering::SeqCst);
        let offer = self.prepare_offer(fd, version, kind, descriptors);
        if offer.is_none() {
            entry.unmark(mark::OFFERED);
        }
        offer.map(Some).ok_or(entry.kept_for().unwrap_or(ReasonT::Set))
    }

    fn may_be_offered(&self, fd: i32, entry: &FdEntry) -> Result<(), ReasonT> {
        if fd == 2 || self.host().stdio_uses(fd) {
            return Err(ReasonT::Stdio);
        }
        // Rings are looked for anew before each offer.
        entry.kept_for().filter(|reason| *reason != ReasonT::Ring).map_or(Ok(()), Err)
    }
}

/// Lists the numbers of this process at which that inode, of a socket or pipe, is open.
fn numbers_of(library: &Library, inode: Inode, descriptors: &mut dyn OpenDescriptors) -> Vec<i32> {
    let is_it = |fd: &i32| {
        let found = kernel::at(*fd).and_then(rustix::fs::fstat);
        found.is_ok_and(|found| Inode(found.st_ino) == inode) && kind_of(*fd).is_some()
    };
    let mut all = descriptors.numbers();
    if all.is_empty() {
        all = library.open_numbers();
    }
    all.into_iter().filter(is_it).collect()
}
