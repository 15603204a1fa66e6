//! The watchdog of every test that could hang, and names that no other test uses.
//!
//! Used by the tests of `sojourn-ipc-c` as well. Not here: servers and clients (`mod.rs`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Ends the process, loudly, unless dropped in time.
pub fn watchdog(seconds: u64) -> impl Drop {
    struct Watchdog(#[allow(dead_code, reason = "its drop is the message")] Sender<()>);
    impl Drop for Watchdog {
        fn drop(&mut self) {}
    }
    let (alive, dropped) = channel();
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::spawn(move || {
        if dropped.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
            // Not `eprintln`: what a test writes is kept back, and lost with the process.
            let text = format!("watchdog: {test} hung for {seconds} s\n");
            let _ = std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes());
            std::process::abort();
        }
    });
    Watchdog(alive)
}

/// A fresh name.
pub fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("sojourn-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
