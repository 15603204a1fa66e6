//! `fork` and `exec`: who owns the sessions, and how another holder gets at them.
//!
//! After `fork` the parent keeps its sessions. The child has no mapping of them; when it uses one,
//! it writes the session's slot on the **board**, a page that both share, rings the parent's
//! doorbell, and waits until the parent has brought it home. Epoll sets likewise: the parent's
//! sessions are in them as ever, until a child says over the board that it uses one, which then is
//! the kernel's alone. Read `docs/understand/streams.md`, "Going home".

use crate::fds::table::{FdEntry, mark};
use crate::host::kernel;
use crate::host::lock::lock;
use crate::moves::flush::Rest;
use crate::process::deferred::Telling;
use crate::process::engine::{BOARD_SLOTS, Engine};
use crate::process::library::Library;
use crate::process::patience::{PASS_LIMIT, Waits};
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::io::FdFlags;
use sojourn_session::ReasonT;
use sojourn_shm::{AtomicU32, Deadline, Mapping, futex};

/// A slot's word on the board: nothing asked.
const QUIET: u32 = 0;
/// Asked for.
const WANTED: u32 = 1;
/// How often a waiting child looks whether its parent lives.
const SLICE: Duration = Duration::from_millis(20);
/// How long it waits for one that lives and does not answer: stopped, or without hearing of us.
/// Then it goes on with the kernel's part alone, as a program without the library would with a
/// parent that never reads.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// Where the words of sets begin, in words; the first word counts requests, the second says whether
/// anybody serves them.
const SETS_AT: usize = SESSIONS_AT + BOARD_SLOTS as usize;
const SESSIONS_AT: usize = 2;

impl Engine {
    /// The board, made before the first `fork` that finds something a child could ask for.
    fn board(&self) -> Option<&Mapping> {
        let len = (SETS_AT + BOARD_SLOTS as usize) * size_of::<u32>();
        let made = self.board.get_or_init(|| Mapping::for_children(len).ok()).as_ref();
        self.note_serving();
        made
    }

    /// Whether a child may hold what this process has.
    pub(crate) fn has_children(&self) -> bool {
        self.board.get().is_some()
    }

    fn at(&self, index: usize) -> Option<&AtomicU32> {
        self.board.get()?.as_ref()?.word32(index * size_of::<u32>())
    }

    /// The word of a session.
    fn word(&self, slot: u32) -> Option<&AtomicU32> {
        (slot < BOARD_SLOTS).then(|| self.at(SESSIONS_AT + slot as usize))?
    }

    /// The word of a set.
    fn set_word(&self, index: u32) -> Option<&AtomicU32> {
        (index < BOARD_SLOTS).then(|| self.at(SETS_AT + index as usize))?
    }

    fn requests(&self) -> Option<&AtomicU32> {
        self.at(0)
    }

    /// Whether the owner's protocol thread serves the board, or has never had anything to serve.
    fn serving(&self) -> Option<&AtomicU32> {
        self.at(1)
    }

    /// Says on the board whether the protocol thread runs.
    pub(crate) fn note_serving(&self) {
        if let Some(serving) = self.serving() {
            // SYNC: before the thread looks at the requests; pairs with `ask`.
            serving.store(u32::from(self.is_running()), Ordering::SeqCst);
        }
    }

    /// Brings home what children have asked for, of the sessions in the slots `joined`, and gives
    /// up sets that they use.
    pub(crate) fn serve_board(&self, library: &Library, joined: impl Iterator<Item = u32>) {
        let Some(requests) = self.requests() else { return };
        // SYNC: acquire; pairs with the child's increment after it has written its word.
        if requests.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        let is_wanted = |word: Option<&AtomicU32>| {
            word.is_some_and(|word| word.load(Ordering::Acquire) == WANTED)
        };
        // Whichever peers do not answer: children do not wait for each of them in turn.
        let until = library.patience.until(PASS_LIMIT);
        let wanted: Vec<_> = joined
            .filter(|slot| is_wanted(self.word(*slot)))
            .filter_map(|slot| self.pool.session(slot))
            .collect();
        for session in &wanted {
            let how = (Rest::of(ReasonT::Fork, true), Waits { room: until, ..Waits::NOT });
            session.leave_within(ReasonT::Fork, how, Telling::Now);
        }
        wanted.iter().for_each(|session| session.await_peer(until));
        for index in (0..BOARD_SLOTS).filter(|index| is_wanted(self.set_word(*index))) {
            library.set_used_by_child(index);
        }
        self.answer_board();
    }

    /// The protocol thread ends; nothing is away any more.
    pub(crate) fn stop_serving(&self) {
        if let Some(serving) = self.serving() {
            // SYNC: before the words are looked at; pairs with `ask`.
            serving.store(0, Ordering::SeqCst);
            self.answer_board();
        }
    }

    /// All that was asked for is so, also of what was home already.
    pub(crate) fn answer_board(&self) {
        for word in (SESSIONS_AT..SETS_AT + BOARD_SLOTS as usize).filter_map(|at| self.at(at)) {
            if word.load(Ordering::Relaxed) == WANTED {
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
            // A join is done by now, so that the child's table has it, or comes later and sees the
            // epoch.
            let _joining = self.engine().map(|engine| lock(&engine.joining));
            self.fork_epoch.fetch_add(1, Ordering::SeqCst);
        }
        let has_sets = self.has_sets() && !self.policy.is_forbidden();
        let engine = if has_sets { self.engine_or_new() } else { self.engine() };
        let is_away = engine.is_some_and(|engine| engine.away.load(Ordering::SeqCst) > 0);
        if !has_sets && !is_away {
            return;
        }
        if engine.and_then(Engine::board).is_none() {
            // No way for the child to ask.
            self.all_home(ReasonT::Resources, false);
            self.give_up_sets();
        }
    }

    /// After `fork`, in the child: nothing of the parent's engine is touched but its board. That
    /// every session and set there was is the parent's, the words of the table say already.
    pub fn after_fork_child(&self) {
        let parent = self.engine();
        self.next_generation();
        if let Some(parent) = parent {
            sojourn_shm::wait::read_load_from(None);
            for fd in parent.own.numbers_to_close() {
                self.host().close(fd);
            }
        }
    }

    /// Before `exec`, `posix_spawn` and their like: what stays open over it goes home.
    pub fn before_exec(&self) {
        self.sets_before_exec();
        self.inherited_sets_before_exec();
        let stays_open = |fd: &i32| {
            let flags = kernel::at(*fd).and_then(rustix::io::fcntl_getfd);
            flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
        };
        let all = self.table.with_sessions().map(|(fd, _)| fd).filter(stays_open);
        self.go_home_together(&all.collect::<Vec<_>>(), ReasonT::Exec);
        self.fork_epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Before `vfork`: as before `exec`, for the child has our memory but its own descriptors.
    pub fn before_vfork(&self) {
        self.before_exec();
    }

    /// The session of `entry` belongs to the process we were `fork`ed from: asks it to bring the
    /// session home, and takes the number for an ordinary one.
    pub(crate) fn recall_from_parent(&self, entry: &FdEntry) {
        let Some((generation, slot)) = self.foreign_session(entry) else { return };
        if let Some(engine) = self.engine_of(generation) {
            ask(engine, engine.word(slot));
        }
        // The kernel's set that it is in knows nothing of a session of ours.
        let sets = [&entry.set, &entry.last_set].map(|set| set.load(Ordering::SeqCst));
        let is_in_sets = entry.has(mark::SETS) || sets != [0; 2];
        entry.reset(mark::ALIASED | if is_in_sets { mark::SETS } else { 0 }, 0);
        entry.session.store(0, Ordering::SeqCst);
    }

    /// The set `word` of a table entry belongs to a process we were `fork`ed from: that process
    /// leaves it to the kernel from now on.
    pub(crate) fn take_set_from_parent(&self, word: u32) {
        let Some((generation, index)) = self.foreign_index(word) else { return };
        if let Some(engine) = self.engine_of(generation) {
            ask(engine, engine.set_word(index));
        }
    }
}

/// Asks the process of `engine` for what `word` of its board stands for, and waits until that is in
/// the kernel, or the process is gone.
fn ask(engine: &Engine, word: Option<&AtomicU32>) {
    let (Some(word), Some(requests)) = (word, engine.requests()) else { return };
    let Some(owner) = i32::try_from(engine.pid).ok().and_then(rustix::process::Pid::from_raw)
    else {
        return;
    };
    word.store(WANTED, Ordering::SeqCst);
    // SYNC: release; pairs with the owner's swap.
    requests.fetch_add(1, Ordering::SeqCst);
    engine.ring();
    let deadline = Deadline::after(ASK_LIMIT);
    while word.load(Ordering::Acquire) == WANTED && !deadline.is_over() {
        // SYNC: after the request; pairs with `note_serving`. Who begins to serve finds it before
        // anything else.
        if engine.serving().is_some_and(|serving| serving.load(Ordering::SeqCst) == 0) {
            return;
        }
        futex::wait(word, WANTED, Some(SLICE));
        if rustix::process::test_kill_process(owner) == Err(rustix::io::Errno::SRCH) {
            return;
        }
    }
}
