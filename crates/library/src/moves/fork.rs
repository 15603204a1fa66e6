//! `fork` and `exec`: the owner of the sessions, and the way in which another holder gets them.
//!
//! After `fork` the parent keeps its sessions. The child has no mapping of them. When it uses one,
//! it writes the session's slot on the **board**, pages that both share, rings the parent's
//! doorbell, and waits until the parent has brought the session home. Epoll sets work likewise: the
//! parent's sessions are in them as ever, until a child says over the board that it uses a set,
//! which then is the kernel's alone. Not here: the kernel's side of going home (`home`). Read
//! `docs/understand/streams.md`, "Going home".

use crate::fds::entry::{FdEntry, mark};
use crate::fds::slot::{Slot, SlotWord};
use crate::host::lock::lock;
use crate::host::{Host, kernel};
use crate::moves::flush::{Rest, ReturnTerms};
use crate::process::deferred::NotifyWhen;
use crate::process::engine::{BOARD_SLOTS, Engine};
use crate::process::library::{AncestorSlot, Library};
use crate::process::patience::{PASS_LIMIT, Waits};
use crate::remote::carry_server::ANSWER_LIMIT;
use core::sync::atomic::Ordering;
use core::time::Duration;
use rustix::io::FdFlags;
use rustix::process::Pid;
use sojourn_session::ReasonT;
use sojourn_shm::{AtomicU32, Deadline, Mapping, futex};

/// A word on the board: nothing is asked for.
const QUIET: u32 = 0;
/// A word on the board: a child asks for the session or set.
const WANTED: u32 = 1;
/// The second word of the board: nobody serves it.
const UNSERVED: u32 = 0;
/// The same: a protocol thread serves it that has not written its number yet.
const STARTING: u32 = 1;
/// Pause between two looks of a waiting child whether its parent lives.
const SLICE: Duration = Duration::from_millis(20);
/// Pause between two looks whether the carrier has put a session back.
const PUT_BACK_LOOK: Duration = Duration::from_micros(500);
/// How long a child waits for a parent that lives and does not answer: one that is stopped, or has
/// no thread that hears of the child. Then the child goes on with the kernel's part alone, as a
/// program without the library would with a parent that never reads.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// The index of the first word of the sets. The first word of the board counts requests, the second
/// says who serves them.
const SETS_AT: usize = SESSIONS_AT + BOARD_SLOTS as usize;
const SESSIONS_AT: usize = 2;

impl Engine {
    /// Returns the board, made before the first `fork` that finds something a child could ask for.
    fn board(&self) -> Option<&Mapping> {
        let len = (SETS_AT + BOARD_SLOTS as usize) * size_of::<u32>();
        let made = self.board.get_or_init(|| Box::new(Mapping::for_children(len).ok())).as_ref();
        self.note_serving();
        made
    }

    /// Returns true if a child may hold what this process has.
    pub(crate) fn has_children(&self) -> bool {
        self.board.get().is_some()
    }

    fn at(&self, index: usize) -> Option<&AtomicU32> {
        self.board.get()?.as_ref()?.word32(index * size_of::<u32>())
    }

    /// Returns the word of a session.
    fn word(&self, slot: Slot) -> Option<&AtomicU32> {
        (slot.number() < BOARD_SLOTS).then(|| self.at(SESSIONS_AT + slot.index()))?
    }

    /// Returns the word of a set.
    fn set_word(&self, slot: Slot) -> Option<&AtomicU32> {
        (slot.number() < BOARD_SLOTS).then(|| self.at(SETS_AT + slot.index()))?
    }

    fn requests(&self) -> Option<&AtomicU32> {
        self.at(0)
    }

    /// Returns the word that says who serves the board: the number of the owner's protocol thread,
    /// [`STARTING`], or [`UNSERVED`].
    fn serving(&self) -> Option<&AtomicU32> {
        self.at(1)
    }

    /// Writes on the board whether the protocol thread runs, and which it is.
    pub(crate) fn note_serving(&self) {
        let Some(serving) = self.serving() else { return };
        let says = || match self.protocol_thread() {
            _ if !self.is_running() => UNSERVED,
            thread => thread.map_or(STARTING, |tid| tid.as_raw_nonzero().get() as u32),
        };
        loop {
            let said = says();
            // SYNC: before the thread looks at the requests; pairs with `ask`.
            serving.store(said, Ordering::SeqCst);
            // Another thread may have written what has become true since.
            if says() == said {
                return;
            }
        }
    }

    /// Brings home the sessions that children have asked for, and gives up the sets that they use.
    /// A session whose return the server knows may still have bytes in its ring, which the peer's
    /// death has left there: they go into the kernel before the child is answered.
    pub(crate) fn serve_board(&self, library: &Library) {
        let Some(requests) = self.requests() else { return };
        // SYNC: acquire; pairs with the child's increment after it has written its word.
        if requests.swap(0, Ordering::SeqCst) == 0 {
            return;
        }
        let asked = self.asked();
        // One deadline for all: children must not wait for each of several dead peers in turn.
        let until = library.patience.until(PASS_LIMIT);
        let wanted: Vec<_> = asked.sessions().filter_map(|slot| library.session_in(slot)).collect();
        for session in &wanted {
            session.leave_within(ReturnTerms {
                reason: ReasonT::Fork,
                rest: Rest::of(ReasonT::Fork, true),
                waits: Waits { room: until, ..Waits::NOT },
                when: NotifyWhen::Now,
            });
        }
        wanted.iter().for_each(|session| session.await_peer(until));
        asked.sets().for_each(|slot| library.set_used_by_child(slot));
        self.answer(&asked);
    }

    /// Returns what children ask for now.
    fn asked(&self) -> Asked {
        let is_wanted = |index: &usize| {
            self.at(*index).is_some_and(|word| word.load(Ordering::Acquire) == WANTED)
        };
        Asked((SESSIONS_AT..SETS_AT + BOARD_SLOTS as usize).filter(is_wanted).collect())
    }

    /// Answers these requests, also those for sessions that were home already. A child that has
    /// its answer may ask for the next session before the others have theirs: that request waits
    /// until it is served itself.
    fn answer(&self, asked: &Asked) {
        for word in asked.0.iter().filter_map(|index| self.at(*index)) {
            word.store(QUIET, Ordering::Release);
            futex::wake_all(word);
        }
    }

    /// Ends the service, when the protocol thread ends; nothing is away any more.
    pub(crate) fn stop_serving(&self) {
        if let Some(serving) = self.serving() {
            // SYNC: before the words are looked at; pairs with `ask`.
            serving.store(UNSERVED, Ordering::SeqCst);
            self.answer(&self.asked());
        }
    }
}

/// The indices of the words by which children ask, in ascending order.
struct Asked(Vec<usize>);

impl Asked {
    fn sessions(&self) -> impl Iterator<Item = Slot> + '_ {
        let indices = self.0.iter().filter(|index| **index < SETS_AT);
        indices.map(|index| Slot::new((index - SESSIONS_AT) as u32))
    }

    fn sets(&self) -> impl Iterator<Item = Slot> + '_ {
        let indices = self.0.iter().filter(|index| **index >= SETS_AT);
        indices.map(|index| Slot::new((index - SETS_AT) as u32))
    }
}

/// The descriptors that a child gets which is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// All: the child may use those, too, that `exec` closes.
    All = 0,
    /// Those that stay open over `exec`.
    OpenOverExec = 1,
}

impl Library {
    /// Notes that a child, or a new program in place of this one, is about to be made. Until
    /// [`Library::child_made`] no session moves of which it would get a descriptor: the server,
    /// which looks for other holders before a move, may look before the child is there.
    fn child_begins(&self, inherited: Inherited) {
        // A join either is complete now, so that the caller and the child's table know it, or comes
        // later and sees the new epoch and the count.
        let _joining = self.engine().map(|engine| lock(&engine.joining));
        self.fork_epoch.fetch_add(1, Ordering::SeqCst);
        self.children_coming[inherited as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// Reports that the child has its descriptors, or was not made.
    pub fn child_made(&self, inherited: Inherited) {
        // Descriptors that were made, and offers that were prepared, since the beginning.
        self.fork_epoch.fetch_add(1, Ordering::SeqCst);
        let count = &self.children_coming[inherited as usize];
        let _ =
            count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1));
    }

    /// Returns true if a child that is being made gets one of `numbers`.
    pub(crate) fn comes_a_holder_of(&self, numbers: &[i32]) -> bool {
        let [all, open] = &self.children_coming;
        all.load(Ordering::SeqCst) != 0
            || open.load(Ordering::SeqCst) != 0 && numbers.iter().any(stays_open)
    }

    /// Prepares for `fork`: makes the board, if there is something to ask for. The parent calls
    /// [`Library::child_made`] after it.
    pub fn before_fork(&self) {
        self.child_begins(Inherited::All);
        let has_sets = self.has_sets() && !self.policy.is_forbidden();
        let engine = if has_sets { self.engine_or_new() } else { self.engine() };
        let is_away = engine.is_some_and(|engine| engine.away.load(Ordering::SeqCst) > 0);
        if !has_sets && !is_away {
            return;
        }
        if engine.and_then(Engine::board).is_none() {
            // Without a board the child has no way to ask, so nothing stays away.
            self.all_home(ReasonT::Resources, false);
            self.give_up_sets();
        }
    }

    /// Makes the library usable in a `fork` child. Nothing of the parent's engine is touched but
    /// its board. The words of the table already name the parent as the owner of every session and
    /// set.
    pub fn after_fork_child(&self) {
        let parent = self.engine();
        self.next_generation();
        if std::process::id() == 1 {
            // It begins a process name space: its ancestors are in another one. (Of a child that
            // enters one that is there, getppid(2) would tell, which a program's own filter of
            // system calls may forbid.)
            self.all_engines().for_each(|engine| engine.is_unseen.store(true, Ordering::SeqCst));
        }
        // Those of other threads are not made in this process.
        self.children_coming.iter().for_each(|count| count.store(0, Ordering::SeqCst));
        if let Some(parent) = parent {
            sojourn_shm::wait::read_load_from(None);
            for fd in parent.own.numbers_to_close() {
                self.host().close(fd);
            }
        }
    }

    /// Prepares for a child that knows of no session, or for `exec`: what it gets goes home. The
    /// caller reports with [`Library::child_made`] that the child is there, or that `exec` failed.
    ///
    /// A child that has this process's memory (vfork(2)) gets all: what it does before it runs its
    /// own program goes unseen, so it may use every session, and give each a number that stays open
    /// over `exec`.
    pub fn before_child(&self, inherited: Inherited) {
        self.child_begins(inherited);
        self.open_over_exec_home();
        if inherited == Inherited::All {
            self.all_home(ReasonT::Exec, false);
        }
    }

    /// Leaves everything to children made by `fork`, if there are any: after `exec` this process
    /// has the same number, but nobody in it answers them. If `exec` fails, the next `fork` makes
    /// the board serve again.
    pub fn leave_children(&self) {
        if let Some(engine) = self.engine().filter(|engine| engine.has_children()) {
            self.all_home(ReasonT::Exec, false);
            self.give_up_sets();
            engine.stop_serving();
        }
    }

    /// Sends home the sessions that stay open over `exec`, `posix_spawn` and the like. For callers
    /// that do not hear whether the new program was made; others call [`Library::before_child`].
    pub fn before_exec(&self) {
        self.leave_children();
        self.child_begins(Inherited::OpenOverExec);
        self.open_over_exec_home();
        self.child_made(Inherited::OpenOverExec);
    }

    /// Sends home what a new program would get.
    fn open_over_exec_home(&self) {
        self.sets_before_exec();
        self.inherited_sets_before_exec();
        let all = self.table.with_sessions().filter(stays_open);
        self.go_home_together(&all.collect::<Vec<_>>(), ReasonT::Exec);
        self.await_datagrams();
    }

    /// Waits until the protocol thread is done with UDP sockets that have gone home, for the server
    /// may have delegated one of them just then: the thread gives back the datagrams that have come
    /// for it here, and ends with the program.
    pub(crate) fn await_datagrams(&self) {
        let has_any = |engine: &&Engine| engine.has_datagrams.load(Ordering::SeqCst);
        if self.engine().filter(has_any).is_some() {
            self.await_server(ANSWER_LIMIT);
        }
    }

    /// Asks the ancestor that owns the session of `entry` to bring it home, and makes the number an
    /// ordinary one.
    pub(crate) fn recall_from_parent(&self, fd: i32, entry: &FdEntry) {
        let Some(AncestorSlot { process, slot }) = self.foreign_session(entry) else { return };
        if let Some(engine) = self.engine_of(process) {
            ask(self.host(), engine, engine.word(slot));
        }
        await_put_back(fd);
        // The kernel's set that contains the number knows nothing of a session of this process.
        let sets = [&entry.set, &entry.last_set].map(|set| set.load(Ordering::SeqCst));
        let is_in_sets = entry.has(mark::SETS) || sets != [None; 2];
        entry.reset(mark::ALIASED | if is_in_sets { mark::SETS } else { 0 }, 0);
        entry.session.store(None, Ordering::SeqCst);
    }

    /// Asks the ancestor that owns the set `word` of a table entry to leave it to the kernel.
    pub(crate) fn take_set_from_parent(&self, word: SlotWord) {
        let Some(AncestorSlot { process, slot }) = self.foreign_slot(word) else { return };
        if let Some(engine) = self.engine_of(process) {
            ask(self.host(), engine, engine.set_word(slot));
        }
    }
}

/// Returns true if `exec` does not close `fd`.
fn stays_open(fd: &i32) -> bool {
    let flags = kernel::at(*fd).and_then(rustix::io::fcntl_getfd);
    flags.is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC))
}

/// Asks the process of `engine` for the session or set of `word`, and waits until that is in the
/// kernel, or the process is gone.
fn ask(host: &dyn Host, engine: &Engine, word: Option<&AtomicU32>) {
    let (Some(word), Some(requests)) = (word, engine.requests()) else { return };
    word.store(WANTED, Ordering::SeqCst);
    // SYNC: release; pairs with the owner's swap.
    requests.fetch_add(1, Ordering::SeqCst);
    engine.ring();
    let deadline = Deadline::after(ASK_LIMIT);
    while word.load(Ordering::Acquire) == WANTED && !deadline.is_over() {
        // SYNC: after the request; pairs with `note_serving`. An owner that begins to serve looks
        // at the requests before anything else.
        if engine.serving().is_some_and(|serving| serving.load(Ordering::SeqCst) == UNSERVED) {
            return;
        }
        futex::wait(word, WANTED, Some(SLICE));
        if is_gone(host, engine) {
            return;
        }
    }
}

/// Waits until the carrier has put back the session of an owner that has ended. It does so when it
/// hears of the end, a moment later; a call of the kernel's before that would fail, or not hear of
/// what is put back.
fn await_put_back(fd: i32) {
    let deadline = Deadline::after(ASK_LIMIT);
    while kernel::is_with_carrier(fd) && !deadline.is_over() {
        std::thread::sleep(PUT_BACK_LOOK);
    }
}

/// Returns true if the process of `engine` has certainly ended, or has become another program.
/// While its parent has not waited for it, it has its number, but its protocol thread is gone.
fn is_gone(host: &dyn Host, engine: &Engine) -> bool {
    if engine.is_unseen.load(Ordering::SeqCst) {
        return false;
    }
    let Some(owner) = engine.pid.seen() else { return false };
    let said = engine.serving().map_or(UNSERVED, |serving| serving.load(Ordering::SeqCst));
    let thread = Some(said).filter(|said| *said > STARTING);
    let thread = thread.and_then(|said| Pid::from_raw(said as i32));
    thread.is_some_and(|thread| host.has_thread_ended(owner, thread))
        || rustix::process::test_kill_process(owner) == Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Plain;
    use rustix::fd::AsRawFd;
    use sojourn_session::ProcessId;

    /// A move that the server has allowed before a child is there must not be made: the child may
    /// hold the descriptor, and knows of no session.
    #[test]
    fn nothing_moves_of_which_a_child_gets_a_descriptor_that_is_being_made() {
        let library = Library::new();
        let closed = std::fs::File::open("/dev/null").unwrap();
        let open = rustix::io::dup(&closed).unwrap();
        let [closed, open] = [closed.as_raw_fd(), open.as_raw_fd()];
        let epoch = || library.fork_epoch.load(Ordering::SeqCst);
        assert!(!library.comes_a_holder_of(&[closed, open]));
        for inherited in [Inherited::All, Inherited::OpenOverExec] {
            let before = epoch();
            library.child_begins(inherited);
            let during = epoch();
            assert_ne!(during, before);
            assert!(library.comes_a_holder_of(&[closed, open]));
            assert_eq!(library.comes_a_holder_of(&[closed]), inherited == Inherited::All);
            library.child_made(inherited);
            // Offers that were prepared meanwhile fail, and what was opened meanwhile is looked
            // for.
            assert_ne!(epoch(), during);
            assert!(!library.comes_a_holder_of(&[closed, open]));
        }
        // Not below none.
        library.child_made(Inherited::All);
        assert!(!library.comes_a_holder_of(&[open]));
    }

    /// A child that has one session asks for the next one while others are still being answered.
    #[test]
    fn a_request_that_comes_during_the_answers_is_not_answered_with_them() {
        let engine = Engine::new(|_| {});
        engine.board().unwrap();
        let [first, second] = [0, 1].map(|slot| engine.word(Slot::new(slot)).unwrap());
        first.store(WANTED, Ordering::SeqCst);
        engine.set_word(Slot::new(3)).unwrap().store(WANTED, Ordering::SeqCst);
        let asked = engine.asked();
        assert!(asked.sessions().eq([Slot::new(0)]) && asked.sets().eq([Slot::new(3)]));
        second.store(WANTED, Ordering::SeqCst);
        engine.answer(&asked);
        assert_eq!(first.load(Ordering::SeqCst), QUIET);
        assert_eq!(second.load(Ordering::SeqCst), WANTED, "nobody has served it");
        engine.answer(&engine.asked());
        assert_eq!(second.load(Ordering::SeqCst), QUIET);
    }

    /// A child waits for a parent that lives, whatever its number is there.
    #[test]
    fn a_parent_in_another_name_space_is_not_taken_for_gone() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let mut engine = Engine::new(|_| {});
        assert!(!is_gone(&Plain, &engine));
        engine.pid = ProcessId(ended.id());
        assert!(is_gone(&Plain, &engine));
        engine.is_unseen.store(true, Ordering::SeqCst);
        assert!(!is_gone(&Plain, &engine));
    }
}
