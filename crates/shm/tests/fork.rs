//! A child of fork(2) needs nothing that another thread of its parent was about to make: there is
//! no such thread in the child.
//!
//! The delay points exist in debug builds only (`sojourn_shm::fault`), so this file is empty in a
//! release build.
#![cfg(all(debug_assertions, not(loom)))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(unsafe_code, reason = "fork(2)")]

use rustix::process::{Pid, WaitOptions, waitpid};
use sojourn_shm::wait::sleep_cost_ns;
use std::process::Command;
use std::time::{Duration, Instant};

/// The longest wait of a step. A delay point takes a second.
const LIMIT: Duration = Duration::from_secs(20);
/// Set in the process that forks.
const FORKS: &str = "SOJOURN_TEST_FORKS";

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + LIMIT;
    while !holds() {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

/// Forks while another thread measures the cost of a sleep; the child measures it, too.
fn fork_during_a_measurement() {
    let (tell, told) = std::sync::mpsc::channel();
    let measures = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid()).unwrap();
        sleep_cost_ns()
    });
    let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
    eventually("the thread is at the delay point", || {
        let text = std::fs::read_to_string(&stat).unwrap();
        text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"))
    });
    // SAFETY: the child measures, which takes neither memory nor locks, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        sleep_cost_ns();
        // SAFETY: ends the child.
        unsafe { libc::_exit(7) };
    }
    let child = Pid::from_raw(child).unwrap();
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            break status.exit_status();
        }
        if Instant::now() > until {
            rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
            panic!("the child waits for a thread that it does not have");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status, Some(7));
    measures.join().unwrap();
}

#[test]
fn a_child_measures_itself_what_another_thread_of_its_parent_was_measuring() {
    if std::env::var_os(FORKS).is_some() {
        return fork_during_a_measurement();
    }
    // A process of its own, because the cost is measured once.
    let mut command = Command::new(std::env::current_exe().unwrap());
    let name = "a_child_measures_itself_what_another_thread_of_its_parent_was_measuring";
    command.args([name, "--exact", "--nocapture"]);
    command.env(FORKS, "1").env("SOJOURN_DELAY_POINTS", "shm.cost");
    assert!(command.status().unwrap().success());
}
