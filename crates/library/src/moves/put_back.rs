//! A pipe whose writer has ended, and whose last bytes are in the ring only: they are put back into
//! the kernel, where everybody finds them.
//!
//! A writer that ends of its own will does so itself (`home`, `flush`). One that was killed cannot,
//! nor one whose kernel was full. Its reader's library could take the rest from the ring; but if
//! the reading end is passed on (`fork`, `exec`, a message), the next holder has the kernel's pipe
//! alone. The name that /proc gives a pipe can be opened for writing by whoever may read it
//! (pipe(7), proc_pid_fd(5)). Of sockets nothing of the kind can be had. Read
//! `docs/understand/streams.md`, "Going home", first.

use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::library;
use crate::session::Session;
use crate::session::directions::RxPhase;
use crate::session::owed::flushed;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sojourn_session::KindT;
use sojourn_shm::Held;
use sojourn_stream::Stream;

impl Session {
    /// See the head of this file; on a stack of the library's own, for it takes a page. Nothing is
    /// changed if the writer is there still, or nothing is owed.
    #[inline(never)]
    pub(crate) fn put_back_rest(&self, stream: &Stream) {
        let mut rx = lock(&self.rx);
        let Ok(owed) = stream.peer_leftover() else { return };
        let may_be = self.kind() == KindT::Pipe && rx.phase == RxPhase::Residue;
        if !may_be || !self.peer_is_dead() {
            return;
        }
        let mut done = match flushed(stream, &rx) {
            Some(flushed) => flushed.max(rx.since_freeze),
            None if !stream.peer_flushes() => rx.since_freeze,
            // It died meanwhile, and nobody else has written: what is there is what came before the
            // debt, then what was paid of it.
            None => {
                rx.since_freeze + kernel::input_queue(self.number()).saturating_sub(rx.before_owed)
            }
        };
        if done < owed
            && let Some(end) = self.writing_end()
        {
            kernel::make_room(end.number(), KindT::Pipe, owed - done, true);
            let mut piece = [0; kernel::PAGE];
            while done < owed {
                let len = stream.copy_unflushed(done, &mut piece);
                if len == 0 {
                    break;
                }
                match kernel::write_pipe(end.number(), &piece[..len]) {
                    Ok(0) => break,
                    Ok(sent) => done += sent,
                    Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
        rx.flushed = Some(done);
        if done >= owed {
            self.finish(&mut rx);
        }
    }

    fn writing_end(&self) -> Option<Held> {
        let name = format!("/proc/self/fd/{}", self.number());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = || rustix::fs::openat(rustix::fs::CWD, name, flags, Mode::empty());
        library().engine()?.own.make(false, open).ok()
    }
}
