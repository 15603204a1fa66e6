//! What the rest of the library asks of sets, and tells them.

use crate::table::mark;
use crate::{Library, Session};

/// In which sets a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetOf {
    None,
    One(u32),
    Unfit,
}

impl Library {
    /// The set all these numbers of one description are in, 0 for none; `None` if they cannot move for it.
    pub(crate) fn set_for_offer(&self, numbers: &[i32]) -> Option<u32> {
        let mut set = 0;
        for fd in numbers {
            match self.set_of(*fd) {
                SetOf::None => {}
                SetOf::One(id) if set == 0 => set = id,
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

    pub(crate) fn set_of(&self, _fd: i32) -> SetOf {
        SetOf::None
    }
    pub(crate) fn set_joined(&self, _fd: i32, _session: &Session) {}
    pub(crate) fn set_left(&self, _fd: i32, _session: &Session) {}
    pub(crate) fn descriptor_closed(&self, _fd: i32) {}
    pub(crate) fn sets_after_fork_child(&self) {}
}
