//! Numbers of the library's own that the program takes for itself.
//!
//! Not here: the library's own descriptors (`fds::own`).

use crate::process::library::Library;
use sojourn_session::ReasonT;

impl Library {
    /// Makes way for the program, which is about to put something of its own at `fd`. If that is a
    /// number of the library's, all that is away goes home for good: the program's sets know some
    /// of the library's descriptors by their numbers.
    pub fn vacate(&self, fd: i32) {
        if !self.is_own(fd) {
            return;
        }
        self.all_home(ReasonT::Operation, true);
        for engine in self.all_engines() {
            engine.own.vacate(fd);
        }
        self.host().show(ReasonT::StoodDown);
    }

    /// Gives the library's numbers to a program that has no others left: all that is away goes home
    /// for good. Returns false if the library has none.
    pub fn gives_numbers_back(&self) -> bool {
        let Some(engine) = self.engine().filter(|engine| engine.own.next(0).is_some()) else {
            return false;
        };
        self.all_home(ReasonT::Resources, true);
        self.end_threads();
        engine.own.close_all(self.host());
        self.host().show(ReasonT::StoodDown);
        true
    }
}
