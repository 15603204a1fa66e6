//! The question that an offer asks about epoll sets.
//!
//! Not here: the sets (`sets`).

use crate::fds::table::mark;
use crate::process::library::Library;
use crate::ready::sets::SetOf;

impl Library {
    /// Returns the set that contains all these numbers of one description, 0 for none; `None` if
    /// the sets forbid a move.
    pub(crate) fn set_for_offer(&self, numbers: &[i32]) -> Option<u32> {
        let mut set = 0;
        for fd in numbers {
            match self.set_of(*fd) {
                SetOf::None => {}
                SetOf::One(id) if set == 0 => set = id,
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
