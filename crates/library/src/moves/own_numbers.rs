//! The program takes numbers that the library has for itself.
//!
//! Not here: the library's own descriptors (`own`).

use crate::process::library::Library;
use sojourn_session::ReasonT;

impl Library {
    /// The program is about to have something of its own at `fd`, which may be one of the
    /// library's: it may choose its numbers. All that is away goes home for good, as sets of the
    /// program know some of them by their numbers.
    pub fn make_way(&self, fd: i32) {
        if !self.is_own(fd) {
            return;
        }
        self.all_home(ReasonT::Operation, true);
        self.give_up_sets();
        for engine in self.all_engines() {
            engine.own.make_way(fd);
        }
        self.host().show(ReasonT::StoodDown);
    }

    /// The program has as many descriptors as it may have, but for the library's. It gets those:
    /// all that is away goes home for good. False: there are none.
    pub fn gives_numbers_back(&self) -> bool {
        let Some(engine) = self.engine().filter(|engine| engine.own.next(0).is_some()) else {
            return false;
        };
        self.all_home(ReasonT::Resources, true);
        self.give_up_sets();
        self.end_threads();
        engine.own.close_all(self.host());
        self.host().show(ReasonT::StoodDown);
        true
    }
}
