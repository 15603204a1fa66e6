//! An orderly end when the system or a user asks for it: `SIGTERM` and `SIGINT`.
//!
//! A thread of its own waits for them, and then says to the serving thread what `sojourn server
//! stop --force` says: over the server's own socket, for that is what the serving thread sleeps at.
//! A second signal ends the process at once. Not here: what is done before the end (`run`).
#![allow(unsafe_code, reason = "signal masks, which rustix does not have")]

use crate::service::Sojournd;
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_session::{AdminClient, admin_connect_options};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the serving thread may take to answer.
const LIMIT: Duration = Duration::from_secs(2);

fn both() -> libc::sigset_t {
    // SAFETY: zeroes are a set, and both calls write into it.
    unsafe {
        let mut set = core::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        set
    }
}

/// The signals wait from now on, for this thread and those that it makes.
pub(crate) fn block() {
    let set = both();
    // SAFETY: the kernel reads `set`.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut()) };
}

/// They are let through as if nobody had waited for them.
fn unblock() {
    let set = both();
    // SAFETY: the kernel reads `set`.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, core::ptr::null_mut()) };
}

fn wait() {
    let set = both();
    let mut signal = 0;
    // SAFETY: the kernel reads `set` and writes `signal`.
    while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
}

/// From now on the server that serves `address` ends in order when it is told to. Without a thread
/// it ends at once.
pub(crate) fn heed(server: &Arc<Sojournd>, address: &str) {
    let (server, address) = (Arc::clone(server), address.to_owned());
    let work = move || {
        wait();
        server.stop_now();
        if wake(&address).is_none() {
            end(&server);
        }
        // Whoever asks twice does not want to wait.
        unblock();
        loop {
            std::thread::park();
        }
    };
    if std::thread::Builder::new().name("sojourn-signals".into()).spawn(work).is_err() {
        unblock();
    }
}

/// Has the serving thread look at what is wanted; `None` where it cannot be reached.
fn wake(address: &str) -> Option<()> {
    if address.starts_with("fd:") {
        // That is the listening one here.
        return None;
    }
    let address = Address::parse(address).ok()?;
    let connection = Connection::connect(address, &admin_connect_options()).ok()?;
    let mut client = AdminClient::bind_by(connection, Deadline::after(LIMIT)).ok()?;
    client.with_deadline(Deadline::after(LIMIT)).stop(true).ok()
}

/// The end without the serving thread.
fn end(server: &Sojournd) -> ! {
    server.leave_all();
    let begun = Instant::now();
    while server.carries() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::process::exit(0)
}
