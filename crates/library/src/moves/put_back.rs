//! The last bytes of a pipe whose writer has died, which are only in the ring: they are put back
//! into the kernel, where every holder finds them.
//!
//! A writer that ends of its own will does so itself (`home`, `flush`). A writer that was killed
//! cannot, nor can one that found the kernel full. The reader's library could take the rest from
//! the ring; but if the reading end is passed on (`fork`, `exec`, a message), the next holder has
//! the kernel's pipe alone. The name that /proc has for a pipe can be opened for writing by whoever
//! may read the pipe (pipe(7), proc_pid_fd(5)). Sockets have no such way. Not here: the flush of a
//! writer that lives (`flush`). Read `docs/understand/streams.md`, "Going home", first.

use crate::host::descriptors::in_table;
use crate::host::kernel;
use crate::host::lock::lock;
use crate::process::library::OwnSession;
use crate::session::directions::{Residue, RxPhase};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sojourn_session::KindT;
use sojourn_shm::MovableFd;
use sojourn_stream::Stream;

impl OwnSession<'_> {
    /// Puts the bytes back that a dead writer left. Does nothing if the writer is still there, or
    /// nothing is owed. Needs a page of stack, so the caller is on a stack of the library's own.
    #[inline(never)]
    pub(crate) fn put_back_rest(self, stream: &Stream) {
        let mut rx = lock(&self.rx);
        let Ok(owed) = stream.peer_leftover() else { return };
        let RxPhase::Residue(residue) = rx.phase else { return };
        if self.kind() != KindT::Pipe || !self.peer_is_dead() {
            return;
        }
        let since_freeze = residue.since_freeze;
        let mut done = match residue.flushed(stream) {
            Some(flushed) => flushed.max(since_freeze),
            None if !stream.peer_flushes() => since_freeze,
            // The writer died in its flush, and nobody else has written since: the pipe has the
            // bytes from before the debt, then those that the writer has paid of it.
            None => {
                let queued = kernel::input_queue(self.number());
                since_freeze + queued.saturating_sub(residue.before_owed)
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
                let write = || kernel::write_pipe(end.number(), &piece[..len]);
                match self.library.without_sigpipe(write) {
                    Ok(0) => break,
                    Ok(sent) => done += sent,
                    Err(Errno::INTR) => {}
                    Err(_) => break,
                }
            }
        }
        rx.phase = RxPhase::Residue(Residue { flushed: Some(done), ..residue });
        if done >= owed {
            self.finish(&mut rx);
        }
    }

    fn writing_end(self) -> Option<MovableFd> {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open_one = |path: &str| rustix::fs::openat(rustix::fs::CWD, path, flags, Mode::empty());
        let name = format!("fd/{}", self.number());
        let open = || in_table(rustix::thread::gettid(), &name, open_one);
        self.library.engine()?.own.make(true, open).ok()
    }
}
