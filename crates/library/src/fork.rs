//! `fork` and `exec`: who owns the sessions, and how another holder gets at them.
//!
//! After `fork` the parent keeps its sessions. The child has no mapping of them; when it uses one, it
//! writes the session's slot on the **board**, a page that both share, rings the parent's doorbell, and waits until the parent
//! has brought it home. Read `docs/streams.md`, "Going home".

use crate::engine::{BOARD_SLOTS, Engine};
use crate::session::lock;
use crate::table::{Entry, mark};
use crate::{Library, kernel};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::io::FdFlags;
use sojourn_session::ReasonT;
use sojourn_shm::{AtomicU32, Mapping, futex};

/// A slot's word on the board: nothing asked.
const QUIET: u32 = 0;
/// Asked for.
const WANTED: u32 = 1;
/// How often a waiting child looks whether its parent lives.
const SLICE: Duration = Duration::from_millis(20);

impl Engine {
    /// The board, made before the first `fork` that finds sessions away.
    fn board(&self) -> Option<&Mapping> {
        let len = (BOARD_SLOTS as usize + 1) * size_of::<u32>();
        self.board.get_or_init(|| Mapping::for_children(len).ok()).as_ref()
    }

    fn word(&self, slot: u32) -> Option<&AtomicU32> {
        let board = self.board.get()?.as_ref()?;
        (slot < BOARD_SLOTS).then(|| board.word32((slot as usize + 1) * size_of::<u32>()))?
    }

    fn requests(&self) -> Option<&AtomicU32> {
        self.board.get()?.as_ref()?.word32(0)
    }

    /// Brings home what children have asked for, of the sessions in the slots `joined`.
    pub(crate) fn serve_board(&self, joined: impl Iterator<Item = u32>) {
        let Some(requests) = self.requests() else { return };
        // SYNC: acquire; pairs with the child's increment after it has written its word.
        if requests.swap(0, Ordering::AcqRel) == 0 {
            return;
        }
        for slot in joined {
            if self.word(slot).is_some_and(|word| word.load(Ordering::Acquire) == WANTED)
                && let Some(session) = self.pool.session(slot)
            {
                session.leave(ReasonT::Fork, true);
            }
        }
        // Also those asked for that were home already.
        for slot in 0..BOARD_SLOTS {
            if let Some(word) = self.word(slot)
                && word.load(Ordering::Relaxed) == WANTED
            {
                word.store(QUIET, Ordering::Release);
                futex::wake_all(word);
            }
        }
    }
}

impl Library {
    /// Before `fork`.
    pub fn before_fork(&self) {
        {
            // A join is done by now, so that the child's table has it, or comes later and sees the epoch.
            let _joining = self.engine().map(|engine| lock(&engine.joining));
            self.fork_epoch.fetch_add(1, Ordering::SeqCst);
        }
        self.sets_before_fork();
        let Some(engine) = self.engine() else { return };
        if engine.away.load(Ordering::SeqCst) > 0 && engine.board().is_none() {
            // No way for the child to ask.
            self.all_home(ReasonT::Resources, false);
        }
    }

    /// After `fork`, in the child: nothing of the parent's engine is touched but its board. That every session and set
    /// there was is the parent's, the words of the table say already.
    pub fn after_fork_child(&self) {
        let parent = self.engine();
        self.next_generation();
        for fd in parent.map(Engine::numbers_to_close).unwrap_or_default() {
            self.host().close(fd);
        }
    }

    /// Before `exec`, `posix_spawn` and their like: what stays open over it goes home.
    pub fn before_exec(&self) {
        self.sets_before_exec();
        let all: Vec<i32> = self.table.with_sessions().map(|(fd, _)| fd).collect();
        for fd in all {
            let flags = kernel::at(fd).and_then(rustix::io::fcntl_getfd);
            if flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
                self.go_home(fd, ReasonT::Exec, false);
            }
        }
        self.fork_epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Before `vfork`: as before `exec`, for the child has our memory but its own descriptors.
    pub fn before_vfork(&self) {
        self.before_exec();
    }

    /// The session of `entry` belongs to the process we were `fork`ed from: asks it to bring the session home, and
    /// takes the number for an ordinary one.
    pub(crate) fn recall_from_parent(&self, entry: &Entry) {
        let Some((generation, slot)) = self.foreign_session(entry) else { return };
        if let Some(engine) = self.engine_of(generation) {
            ask(engine, slot);
        }
        entry.reset(mark::ALIASED, 0);
        entry.session.store(0, Ordering::SeqCst);
    }
}

/// Asks the process of `engine` for the session in `slot`, and waits until it is home or that process is gone.
fn ask(engine: &Engine, slot: u32) {
    let (Some(word), Some(requests)) = (engine.word(slot), engine.requests()) else { return };
    let Some(owner) = i32::try_from(engine.pid).ok().and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    word.store(WANTED, Ordering::SeqCst);
    // SYNC: release; pairs with the owner's swap.
    requests.fetch_add(1, Ordering::AcqRel);
    engine.ring();
    while word.load(Ordering::Acquire) == WANTED {
        futex::wait(word, WANTED, Some(SLICE));
        if rustix::process::test_kill_process(owner) == Err(rustix::io::Errno::SRCH) {
            return;
        }
    }
}
