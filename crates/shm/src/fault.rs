//! Labelled points at which a test can kill this process, as by `kill -9`, or delay a thread.
//!
//! The points exist in debug builds only; in a release build a point does nothing. The environment
//! variable `SOJOURN_FAULT_POINT` names the label and, after a colon, the number of times that the
//! point is passed before the process dies. Labels begin with the name of their part: `client.` and
//! `server.` (the IPC), `stream.`, `library.`, `sojournd.`. The tests that use them:
//! `tests/death.rs` of `sojourn-ipc`, `tests/deaths.rs` of `sojourn-library`.
//!
//! `SOJOURN_DELAY_POINTS` names labels, separated by commas, at which each thread sleeps for a
//! second: what other threads and processes do meanwhile comes before what follows the point.
//!
//! A fuzz target has a function called at each point that its thread passes ([`with_act`]): there a
//! hostile peer moves, between any two steps of the honest side.
//!
//! `SOJOURN_WITHOUT` names a facility of the kernel that this process must not use, as on an older
//! kernel: `futex_waitv`; the test is `tests/features/clients.rs` of `sojourn-ipc`.

/// Kills the process, or delays the thread, if the test wants that at this label.
#[inline(always)]
pub fn point(label: &str) {
    #[cfg(debug_assertions)]
    {
        delay(label);
        pass(label);
    }
    #[cfg(any(debug_assertions, fuzzing))]
    acting::pass(label);
    #[cfg(not(any(debug_assertions, fuzzing)))]
    let _ = label;
}

#[cfg(any(debug_assertions, fuzzing))]
pub use acting::with_act;

#[cfg(any(debug_assertions, fuzzing))]
mod acting {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicUsize, Ordering};

    type Act = *mut dyn FnMut(&str);

    /// The number of threads that have an act: without one, points do not look further.
    static ACTS: AtomicUsize = AtomicUsize::new(0);

    std::thread_local! {
        static ACT: Cell<Option<Act>> = const { Cell::new(None) };
    }

    /// Gives the thread the act that it had before.
    struct ActGuard(Option<Act>);

    impl Drop for ActGuard {
        fn drop(&mut self) {
            ACT.set(self.0);
            ACTS.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Runs `run`, and calls `act` with the label of each point that this thread passes meanwhile.
    /// Points within `act` do nothing.
    pub fn with_act<R>(act: &mut dyn FnMut(&str), run: impl FnOnce() -> R) -> R {
        ACTS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the types differ in their lifetime alone, and the guard takes the pointer away
        // before the loan of `act` ends.
        let act: Act = unsafe {
            core::mem::transmute::<&mut dyn FnMut(&str), &'static mut dyn FnMut(&str)>(act)
        };
        let _guard = ActGuard(ACT.replace(Some(act)));
        run()
    }

    pub(super) fn pass(label: &str) {
        if ACTS.load(Ordering::Relaxed) == 0 {
            return;
        }
        if let Some(act) = ACT.take() {
            // SAFETY: the act is lent for as long as it is there, and nobody else has it now.
            unsafe { (*act)(label) };
            ACT.set(Some(act));
        }
    }
}

#[cfg(debug_assertions)]
fn delay(label: &str) {
    use std::sync::OnceLock;
    // FORK: in tests only.
    static LABELS: OnceLock<Option<String>> = OnceLock::new();
    let labels = LABELS.get_or_init(|| std::env::var("SOJOURN_DELAY_POINTS").ok());
    if labels.as_ref().is_some_and(|labels| labels.split(',').any(|one| one == label)) {
        std::thread::sleep(core::time::Duration::from_secs(1));
    }
}

#[cfg(debug_assertions)]
fn pass(label: &str) {
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::OnceLock;
    // FORK: in tests only.
    static WANTED: OnceLock<Option<(String, u32)>> = OnceLock::new();
    static PASSED: AtomicU32 = AtomicU32::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("SOJOURN_FAULT_POINT").ok()?;
        let (label, times) = text.split_once(':').unwrap_or((&text, "0"));
        Some((label.to_owned(), times.parse().ok()?))
    });
    if let Some((wanted, times)) = wanted
        && wanted == label
        && PASSED.fetch_add(1, Ordering::Relaxed) == *times
    {
        let ourselves = rustix::process::getpid();
        let _ = rustix::process::kill_process(ourselves, rustix::process::Signal::KILL);
        // The signal is delivered at the latest on return from the system call; nothing may run
        // until then.
        loop {
            std::thread::park();
        }
    }
}

/// Returns true if this process must not use a facility of the kernel.
pub fn is_without(facility: &str) -> bool {
    cfg!(debug_assertions) && std::env::var("SOJOURN_WITHOUT").is_ok_and(|name| name == facility)
}

#[cfg(test)]
mod tests {
    use super::{point, with_act};

    #[test]
    fn an_act_is_called_at_each_point_of_its_thread_while_it_is_there() {
        let mut passed = Vec::new();
        let mut act = |label: &str| {
            point("within");
            passed.push(label.to_owned());
        };
        point("before");
        with_act(&mut act, || {
            point("one");
            std::thread::scope(|scope| scope.spawn(|| point("another thread")).join()).unwrap();
            with_act(&mut |_| {}, || point("another act"));
            point("two");
        });
        point("after");
        assert_eq!(passed, ["one", "two"]);
    }
}
