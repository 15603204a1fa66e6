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
    #[cfg(not(debug_assertions))]
    let _ = label;
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
