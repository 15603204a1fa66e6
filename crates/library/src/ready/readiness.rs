//! The question that an offer asks about epoll sets.
//!
//! Not here: the sets (`sets`).

use crate::fds::entry::mark;
use crate::fds::slot::SetNumber;
use crate::process::library::Library;
use crate::ready::sets::SetOf;

impl Library {
    /// Returns the set that contains all these numbers of one description; `None` if
    /// the sets forbid a move.
    pub(crate) fn set_for_offer(&self, numbers: &[i32]) -> Option<SetNumber> {
        let mut set = SetNumber::NONE;
        for fd in numbers {
            match self.set_of(*fd) {
                SetOf::None => {}
                SetOf::One(id) if set.is_none() => set = id,
                SetOf::NotYet => return None,
                SetOf::One(_) | SetOf::Unfit => {
                    if let Some(entry) = self.table.known(*fd) {
                        entry.mark(mark::SETS);
                    }
                    return None;
                }
            }
        }
        Some(set)
    }
}
