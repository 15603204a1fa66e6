//! A thread with a descriptor table of its own, and calls that run on it.
//!
//! A descriptor that such a thread opens or receives never has a number in the table that the
//! process's other threads share. A library uses the thread in a program whose descriptor numbers
//! it must not disturb. Descriptors cross from the shared table to the thread's in messages of a
//! socket (`SCM_RIGHTS`, unix(7)). Not here: the work of the thread.

use rustix::fd::{FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::thread::UnshareFlags;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Work of a calling thread, in that thread's own memory: nothing is allocated for a call.
type Work<'a, S> = &'a mut (dyn FnMut(&mut S) + Send + 'a);

/// The state of the exchange between the two threads.
enum Turn<S: 'static> {
    /// There is no work.
    Idle,
    /// Work that the other thread has not taken yet.
    Work(Work<'static, S>),
    /// The other thread is doing the work.
    Busy,
    /// The work is done.
    Done,
    /// The thread must end.
    End,
    /// The thread has ended or was never started.
    Over,
}

struct Shared<S: 'static> {
    turn: Mutex<Turn<S>>,
    turned: Condvar,
}

impl<S: 'static> Shared<S> {
    fn turn(&self) -> MutexGuard<'_, Turn<S>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, turn: Turn<S>) {
        *self.turn() = turn;
        self.turned.notify_all();
    }

    fn wait_while(&self, is_waited: impl Fn(&Turn<S>) -> bool) -> MutexGuard<'_, Turn<S>> {
        let mut turn = self.turn();
        while is_waited(&turn) {
            turn = self.turned.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        turn
    }
}

/// The calling side: runs work on the other thread, which owns a state `S`.
pub struct Aside<S: 'static> {
    shared: Arc<Shared<S>>,
}

/// The other thread's side.
pub struct Worker<S: 'static> {
    shared: Arc<Shared<S>>,
}

impl<S: 'static> core::fmt::Debug for Aside<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Aside").finish_non_exhaustive()
    }
}

impl<S: 'static> core::fmt::Debug for Worker<S> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Worker").finish_non_exhaustive()
    }
}

/// Both sides.
#[derive(Debug)]
pub struct Sides<S: 'static> {
    /// The side of the thread that asks.
    pub aside: Aside<S>,
    /// The other thread's side.
    pub worker: Worker<S>,
}

/// Creates the two sides.
pub fn pair<S: 'static>() -> Sides<S> {
    let shared = Arc::new(Shared { turn: Mutex::new(Turn::Idle), turned: Condvar::new() });
    Sides { aside: Aside { shared: Arc::clone(&shared) }, worker: Worker { shared } }
}

impl<S: 'static> Aside<S> {
    /// Runs `work` on the other thread and waits for its result. Returns `None` if the thread was
    /// not started or has ended. The result must not contain a descriptor, because its number would
    /// mean another file in this thread's table.
    pub fn call<R: Send>(&mut self, work: impl FnOnce(&mut S) -> R + Send) -> Option<R> {
        let mut answer = None;
        let mut work = Some(work);
        let mut once = |state: &mut S| answer = work.take().map(|work| work(state));
        let work: Work<'_, S> = &mut once;
        // SAFETY: only the lifetime changes. The closure is not used any more when this function
        // returns: `Over` and `Done` below are set after the other thread's call of it, and `Over`
        // takes the place of work that was never taken.
        let work = unsafe { core::mem::transmute::<Work<'_, S>, Work<'static, S>>(work) };
        let mut turn = self.shared.turn();
        if matches!(*turn, Turn::Over) {
            return None;
        }
        *turn = Turn::Work(work);
        self.shared.turned.notify_all();
        drop(turn);
        let mut turn = self.shared.wait_while(|turn| !matches!(turn, Turn::Done | Turn::Over));
        if matches!(*turn, Turn::Done) {
            *turn = Turn::Idle;
        }
        drop(turn);
        answer
    }
}

impl<S: 'static> Drop for Aside<S> {
    /// Ends the other thread, which drops its state, and waits for that.
    fn drop(&mut self) {
        let mut turn = self.shared.turn();
        if matches!(*turn, Turn::Idle) {
            *turn = Turn::End;
            self.shared.turned.notify_all();
        }
        drop(turn);
        drop(self.shared.wait_while(|turn| !matches!(turn, Turn::Over)));
    }
}

impl<S: 'static> Worker<S> {
    /// Runs the other side's work on the state that `make` returns, until the other side is
    /// dropped.
    pub fn serve(self, make: impl FnOnce() -> Option<S>) {
        let Some(mut state) = make() else { return };
        loop {
            let mut turn =
                self.shared.wait_while(|turn| matches!(turn, Turn::Idle | Turn::Busy | Turn::Done));
            let Turn::Work(work) = core::mem::replace(&mut *turn, Turn::Busy) else { return };
            drop(turn);
            work(&mut state);
            self.shared.set(Turn::Done);
        }
    }
}

impl<S: 'static> Drop for Worker<S> {
    /// Tells the other side that the thread is over, even if the thread was never started or its
    /// work panicked.
    fn drop(&mut self) {
        self.shared.set(Turn::Over);
    }
}

/// Gives this thread a descriptor table of its own that has only one descriptor: the shared table's
/// at `number` (close_range(2), unshare(2)).
///
/// # Errors
/// The kernel's error if the table cannot be unshared or `number` is not open.
pub fn keep_only(number: i32) -> Result<OwnedFd, Errno> {
    let kept = u32::try_from(number).map_err(|_| Errno::BADF)?;
    // The call closes the copies at once, so that a file closed by another thread stays open by a
    // copy for a few microseconds at most.
    let below = close_range(0, kept.saturating_sub(1), libc::CLOSE_RANGE_UNSHARE);
    if kept == 0 || below.is_err() {
        // `close_range` fails before Linux 5.9, and under system call filters that do not know it.
        // SAFETY: no descriptor is in use by this thread alone.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES)? };
        (0..kept).for_each(close);
    }
    if close_range(kept.saturating_add(1), u32::MAX, 0).is_err() {
        (kept + 1..MOST).for_each(close);
    }
    // SAFETY: this thread's alone now.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    rustix::io::fcntl_getfd(&fd)?;
    Ok(fd)
}

/// The limit of the numbers that are closed one by one if the kernel has no `close_range`.
const MOST: u32 = 1 << 16;

fn close(number: u32) {
    // SAFETY: in this thread's own table, where nobody uses it.
    unsafe { rustix::io::close(number as i32) };
}

fn close_range(first: u32, last: u32, flags: u32) -> Result<(), Errno> {
    // SAFETY: closes numbers that nobody uses: those of the copy.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::NOSYS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    /// Returns the numbers open in the calling thread's table, including that of the directory
    /// being read.
    fn numbers() -> Vec<i32> {
        let all = std::fs::read_dir("/proc/thread-self/fd").unwrap().flatten();
        let names = all.map(|found| found.file_name().into_string().unwrap().parse().unwrap());
        names.collect()
    }

    #[test]
    fn the_other_thread_has_one_descriptor_and_none_of_its_own_is_seen_here() {
        let file = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let high = rustix::io::fcntl_dupfd_cloexec(&file, 900).unwrap().as_raw_fd();
        let kept = rustix::io::fcntl_dupfd_cloexec(&file, high).unwrap();
        let number = kept.as_raw_fd();
        let Sides { mut aside, worker } = pair::<Vec<OwnedFd>>();
        let thread =
            std::thread::spawn(move || worker.serve(|| Some(vec![keep_only(number).ok()?])));
        let seen = aside.call(|_| numbers()).unwrap();
        assert!(seen.contains(&number) && seen.len() <= 2, "{seen:?}");
        let opened = aside.call(|files| {
            files.extend((0..40).map(|_| OwnedFd::from(std::fs::File::open("/dev/zero").unwrap())));
            files.len()
        });
        assert_eq!(opened, Some(41));
        let here = numbers().into_iter().filter(|fd| {
            std::fs::read_link(format!("/proc/thread-self/fd/{fd}"))
                .is_ok_and(|to| to.ends_with("zero"))
        });
        assert_eq!(here.count(), 0);
        drop(aside);
        thread.join().unwrap();
        assert!(rustix::io::fcntl_getfd(&kept).is_ok(), "this table has it still");
    }

    #[test]
    fn calls_may_borrow_and_one_that_fails_ends_the_other_thread() {
        let Sides { mut aside, worker } = pair::<u32>();
        let thread = std::thread::spawn(move || worker.serve(|| Some(1)));
        let words = ["a", "b"];
        let joined = aside.call(|count| {
            *count += 1;
            words.concat()
        });
        assert_eq!(joined.as_deref(), Some("ab"));
        assert_eq!(aside.call(|count| *count), Some(2));
        let failed: Option<u32> = aside.call(|_| panic!("as it must be able to"));
        assert_eq!(failed, None);
        assert_eq!(aside.call(|count| *count), None);
        assert!(thread.join().is_err());
    }
}
