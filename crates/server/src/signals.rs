//! An orderly end when the system or a user asks for it by `SIGTERM` or `SIGINT`.
//!
//! A thread of its own waits for the signals. Then it sends the serving thread the same message as
//! `sojourn server stop --force`, over the server's own socket, because the serving thread sleeps
//! there. A second signal ends the process at once. Not here: the steps of the end (`run`).
#![allow(unsafe_code, reason = "signal masks, which rustix does not have")]

use crate::service::Sojournd;
use sojourn_ipc::{Address, Connection, Deadline};
use sojourn_session::{AdminClient, admin_connect_options};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time that the serving thread may take to answer.
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

/// Blocks the signals from now on, for this thread and those that it makes: sigwait(3) needs that.
pub(crate) fn block() {
    let set = both();
    // SAFETY: the kernel reads `set`.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut()) };
}

/// Blocks the same signals and that of a child's end, and returns them: signalfd(2) needs that.
pub(crate) fn block_for_parent() -> libc::sigset_t {
    let mut set = both();
    // SAFETY: both calls use `set`, which lives until they return.
    unsafe {
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, core::ptr::null_mut());
    }
    set
}

/// Unblocks the signals for this thread: the next one ends the process.
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

/// Makes the server that serves `address` end in order when a signal asks for it. If no thread can
/// be made, a signal ends it at once.
pub(crate) fn end_on_signals(server: &Arc<Sojournd>, address: &str) {
    let (server, address) = (Arc::clone(server), address.to_owned());
    let work = move || {
        wait();
        server.stop_now();
        if wake(&address).is_none() {
            end(&server);
        }
        // A user who asks twice does not want to wait.
        unblock();
        loop {
            std::thread::park();
        }
    };
    if std::thread::Builder::new().name("sojourn-signals".into()).spawn(work).is_err() {
        unblock();
    }
}

/// Wakes the serving thread, so that it looks whether it is to end; `None` if it cannot be reached.
fn wake(address: &str) -> Option<()> {
    if address.starts_with("fd:") {
        // The descriptor of this address is the listening socket itself, so there is nothing to
        // connect to.
        return None;
    }
    let address = Address::parse(address).ok()?;
    let connection = Connection::connect(address, &admin_connect_options()).ok()?;
    let mut client = AdminClient::bind_by(connection, Deadline::after(LIMIT)).ok()?;
    client.with_deadline(Deadline::after(LIMIT)).stop(true).ok()
}

/// Ends the process without the serving thread, after its carried sessions are home or the time is
/// up.
fn end(server: &Sojournd) -> ! {
    server.leave_all();
    let begun = Instant::now();
    while server.carries() && begun.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::process::exit(0)
}
