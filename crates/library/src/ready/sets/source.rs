//! What a set asks of the process: the library's answers to [`ReadinessSource`].
//!
//! Not here: the sets (`super`), and one set's waiting (`crate::ready::set_wait`).

use crate::host::kernel;
use crate::process::library::{Library, OwnSession};
use crate::ready::set_readiness::{ReadinessSource, RingReadiness};
use rustix::event::PollFlags;

impl ReadinessSource for Library {
    fn turn(&self) {
        self.turn_net();
    }

    fn begin_sleep(&self) -> bool {
        self.net().is_some_and(|net| net.begin_sleep(self, true))
    }

    fn end_sleep(&self, watches: bool) {
        if let Some(net) = self.net() {
            net.watch.end_sleep(watches);
        }
    }

    fn ring(&self, fd: i32, wanted: u32) -> RingReadiness {
        let gone = RingReadiness { is_home: true, is_in_kernel: true, ..RingReadiness::default() };
        self.session_of(fd).map_or(gone, |session| {
            let ready = session.ready(wanted);
            RingReadiness {
                input: ready.input,
                output: ready.output,
                error: ready.error,
                is_home: ready.is_home,
                is_in_kernel: ready.is_in_kernel,
                others: ready.others,
            }
        })
    }

    fn kernel_decides_room(&self, fd: i32) -> bool {
        self.session_of(fd).is_none_or(OwnSession::kernel_decides_room)
    }

    fn arm(&self, fd: i32, input: bool, output: bool) {
        if let Some(session) = self.session_of(fd) {
            session.arm(input, output);
        }
    }

    fn kernel(&self, fd: i32, events: u32) -> u32 {
        if self.session_of(fd).is_some_and(|session| session.is_deaf()) {
            return 0;
        }
        let wanted = PollFlags::from_bits_retain(events as u16);
        let found = kernel::at(fd).and_then(|fd| kernel::poll(fd, wanted));
        found.map_or(0, |found| u32::from(found.bits()))
    }

    fn note_kernel_event(&self, fd: i32) {
        if let Some(session) = self.session_of(fd) {
            session.note_kernel_event();
        }
    }
}
