//! Sessions that somebody wants away now (`sojourn move SESSION library`), hot or not.
//!
//! The protocol thread's work: it is told an inode by the server, and offers what this process has
//! of it, or says why it does not. Whether a session is hot does not count here; what binds it to
//! the kernel does. Not here: offers and what comes of them (`offer`, `protocol`).

use crate::fds::table::{FdEntry, mark};
use crate::host::kernel;
use crate::host::look::Look;
use crate::moves::offer::Offer;
use crate::process::library::Library;
use crate::process::thresholds::{allows, kind_of};
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;

/// What becomes of a wish.
#[derive(Debug)]
pub(crate) enum Wanted {
    /// These are to be offered.
    Offer(Vec<Offer>),
    /// It is away, or offered, already.
    Done,
    /// It stays.
    Not(ReasonT),
}

impl Library {
    /// The offers of everything that this process has open of that inode: several numbers of one
    /// description are one offer, both ends of a pipe are two.
    pub(crate) fn wanted(&self, inode: u64, look: &mut dyn Look) -> Wanted {
        if self.policy.is_forbidden() {
            return Wanted::Not(ReasonT::Policy);
        }
        let (mut offers, mut reason) = (Vec::<Offer>::new(), ReasonT::Closed);
        for fd in numbers_of(self, inode, look).into_iter().filter(|fd| !self.is_own(*fd)) {
            if offers.iter().any(|offer| offer.numbers.contains(&fd)) {
                continue;
            }
            match self.offer_wanted(fd, look) {
                Ok(Some(offer)) => offers.push(offer),
                Ok(None) => return Wanted::Done,
                Err(why) => reason = why,
            }
        }
        if offers.is_empty() { Wanted::Not(reason) } else { Wanted::Offer(offers) }
    }

    /// The offer of a number; none if it needs none.
    fn offer_wanted(&self, fd: i32, look: &mut dyn Look) -> Result<Option<Offer>, ReasonT> {
        let entry = self.table.entry(fd).ok_or(ReasonT::Resources)?;
        if entry.session.load(Ordering::SeqCst) != 0 {
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
        let offer = self.prepare_offer(fd, version, kind, look);
        if offer.is_none() {
            entry.unmark(mark::OFFERED);
        }
        offer.map(Some).ok_or(entry.kept_for().unwrap_or(ReasonT::Set))
    }

    fn may_be_offered(&self, fd: i32, entry: &FdEntry) -> Result<(), ReasonT> {
        if fd == 2 || self.host().stdio_uses(fd) {
            return Err(ReasonT::Stdio);
        }
        // What is kept for a ring is looked at anew.
        entry.kept_for().filter(|reason| *reason != ReasonT::Ring).map_or(Ok(()), Err)
    }
}

/// Numbers of this process that are open on that inode of a socket or pipe.
fn numbers_of(library: &Library, inode: u64, look: &mut dyn Look) -> Vec<i32> {
    let is_it = |fd: &i32| {
        let found = kernel::at(*fd).and_then(rustix::fs::fstat);
        found.is_ok_and(|found| found.st_ino == inode) && kind_of(*fd).is_some()
    };
    let mut all = look.numbers();
    if all.is_empty() {
        all = library.open_numbers();
    }
    all.into_iter().filter(is_it).collect()
}
