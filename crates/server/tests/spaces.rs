//! Servers in process name spaces of their own, and programs that come into these from outside.
//!
//! They need the right to make such name spaces; skipped with a message otherwise.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Program, Server, be_fake, until};
use sojourn_session::ReasonT;
use std::process::Command;

#[test]
fn fake() {
    be_fake();
}

/// Starts a server in a process name space of its own; `None` where that cannot be.
fn server(name: &str, flags: &[&str]) -> Option<Server> {
    let words = [&["--pid", "--fork", "--kill-child"], flags].concat();
    let tried = Command::new("unshare").args(&words).arg("true").status();
    if !tried.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no process name space can be made here");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(&words).arg(env!("CARGO_BIN_EXE_sojournd"));
    let address = format!("@sojournd-test-{name}-{}", std::process::id());
    Some(Server::started(command, &address, &[]))
}

/// Starts a fake in the name spaces of the server, which is the child of `unshare`.
fn program(server: &Server, has_left: bool) -> Program {
    let list = format!("/proc/{0}/task/{0}/children", server.child.id());
    let mut inner = String::new();
    until("the server is there", || {
        inner = std::fs::read_to_string(&list).unwrap();
        !inner.is_empty()
    });
    let target = format!("--target={}", inner.trim());
    let mut words = vec!["nsenter", &target, "--pid", "--mount"];
    if has_left {
        words.push("setsid");
    }
    Program::start_by(&words, &server.address)
}

fn pipe() -> (rustix::fd::OwnedFd, rustix::fd::OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// Who enters a name space has been started by somebody outside, who has inherited the same ends:
/// this test has one of them still.
#[test]
fn an_end_of_who_has_entered_may_be_held_outside() {
    let Some(server) = server("entered", &["--mount-proc"]) else { return };
    let (reader, writer) = pipe();
    let _outside = writer.try_clone().unwrap();
    let [reads, writes] = [(); 2].map(|()| program(&server, false));
    assert!(reads.hello() && writes.hello());
    assert!(reads.offer(1, reader, false));
    writes.offer(2, writer, false);
    assert_eq!(writes.told(), ("refused".into(), 2, ReasonT::HoldersUnknown));
}

#[test]
fn who_has_entered_and_begun_a_session_has_no_kin_outside() {
    let Some(server) = server("left", &["--mount-proc"]) else { return };
    let (reader, writer) = pipe();
    let [reads, writes] = [(); 2].map(|()| program(&server, true));
    assert!(reads.hello() && writes.hello());
    assert!(reads.offer(1, reader, false));
    assert!(writes.offer(2, writer, false));
    assert_eq!(reads.joined().stream, writes.joined().stream);
}

/// The numbers in `/proc` are those of other processes.
#[test]
fn a_server_without_a_proc_of_its_own_counts_nobody() {
    let Some(server) = server("numbers", &[]) else { return };
    let (reader, writer) = pipe();
    let [reads, writes] = [(); 2].map(|()| program(&server, true));
    assert!(reads.hello() && writes.hello());
    assert!(reads.offer(1, reader, false));
    writes.offer(2, writer, false);
    assert_eq!(writes.told(), ("refused".into(), 2, ReasonT::HoldersUnknown));
}
