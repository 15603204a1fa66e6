//! Labelled points at which a test can let this process die, as if by `kill -9`.
//!
//! Debug builds only; in a release build a point is nothing at all. The environment variable
//! `SOJOURN_FAULT_POINT` names the label and, after a colon, how often it is passed before. Labels
//! begin with the part they are in: `client.` and `server.` (the IPC), `stream.`, `library.`,
//! `sojournd.`. The tests that use them: `tests/death.rs` of `sojourn-ipc`, `tests/deaths.rs` of
//! `sojourn-library`.
//!
//! `SOJOURN_WITHOUT` names a facility of the kernel that this process is to do without, as on an
//! older one: `futex_waitv`; the test is `tests/features.rs` of `sojourn-ipc`.

/// Dies here if that is wanted.
#[inline(always)]
pub fn point(label: &str) {
    #[cfg(debug_assertions)]
    pass(label);
    #[cfg(not(debug_assertions))]
    let _ = label;
}

#[cfg(debug_assertions)]
fn pass(label: &str) {
    use core::sync::atomic::{AtomicU32, Ordering};
    use std::sync::OnceLock;
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
        // The signal comes on the way out of the call, at the latest.
        loop {
            std::thread::park();
        }
    }
}

/// Whether this process is to do without a facility of the kernel.
pub fn is_without(facility: &str) -> bool {
    cfg!(debug_assertions) && std::env::var("SOJOURN_WITHOUT").is_ok_and(|name| name == facility)
}
