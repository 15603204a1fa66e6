//! Descriptors travel with calls and answers, and none is left over.
//!
//! Not here: descriptors of memory (`memory`).

use crate::common::service::*;
use crate::common::{Echo, Home, ask, call, call_until, limit, until, watchdog};
use rustix::fd::AsFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sojourn_ipc::{
    Address, CallError, ConnectError, ConnectOptions, Connection, Deadline, Fault, Reason,
    ServerOptions,
};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

in_both_homes! {
    descriptors_travel_both_ways
    descriptors_of_messages_that_fail_are_forgotten
    descriptors_of_answers_nobody_wants_are_closed
}

pub(super) fn send_fds(
    connection: &mut Connection,
    op: u16,
    body: &[u8],
    fds: &[OwnedFd],
) -> Result<usize, CallError> {
    let mut draft = connection.start(op, body.len());
    draft.encoder().put_bytes(body)?;
    for fd in fds {
        draft.encoder().put_fd(fd.as_fd())?;
    }
    let mut reply = draft.call(limit())?;
    Ok((0..16).map_while(|index| reply.take_fd(index)).count())
}

pub(super) fn null() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

fn descriptors_travel_both_ways(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let before = ask(&mut connection, STATE, &[]).unwrap()[0];
    for _ in 0..20 {
        // A pipe that went there and came back still works.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut draft = connection.start(FDS, 0);
        draft.encoder().put_fd(writer.as_fd()).unwrap();
        draft.encoder().put_fd(reader.as_fd()).unwrap();
        let mut reply = draft.call(limit()).unwrap();
        let mut back = std::fs::File::from(reply.take_fd(0).unwrap());
        drop(writer);
        back.write_all(b"through").unwrap();
        drop(back);
        let mut text = String::new();
        std::fs::File::from(reader).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert!(reply.take_fd(0).is_none(), "once");
        assert!(reply.take_fd(1).is_some());
        // As many as a message can have, with a long body as well.
        let fds: Vec<_> = (0..16).map(|_| null()).collect();
        assert_eq!(send_fds(&mut connection, FDS, &[0; 5000], &fds), Ok(16));
        let one_more = null();
        let mut draft = connection.start(FDS, 0);
        fds.iter().for_each(|fd| draft.encoder().put_fd(fd.as_fd()).unwrap());
        assert!(draft.encoder().put_fd(one_more.as_fd()).is_err());
    }
    let mut after = 0;
    until("the server has closed all", || {
        after = ask(&mut connection, STATE, &[]).unwrap()[0];
        // Within one process other tests have descriptors open too.
        home == Home::Within || after <= before + 2
    });
}

fn descriptors_of_messages_that_fail_are_forgotten(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { max_message: 100_000, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let mut connection = echo.connect();
    for _ in 0..50 {
        let error = send_fds(&mut connection, FDS, &[0; 200_000], &[null()]).unwrap_err();
        assert_eq!(error, CallError::TooLarge);
    }
    // What comes next gets its own.
    assert_eq!(send_fds(&mut connection, FDS, &[], &[null(), null()]), Ok(2));
    assert_eq!(send_fds(&mut connection, FDS, &[], &[]), Ok(0));
}

fn descriptors_of_answers_nobody_wants_are_closed(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let options = ConnectOptions { max_message: 100_000, ..Default::default() };
    let mut connection = echo.connect_with(options);
    let before = open_fds();
    for n in 0..200u64 {
        let fault = call(&mut connection, GIVE_TOO_MUCH, &200_000u64.to_ne_bytes());
        assert_eq!(fault, Err(CallError::Fault(Fault::TOO_LARGE)), "{n}");
        // Given up before the answer comes.
        let error = call_until(&mut connection, GIVE, &1u64.to_ne_bytes(), Deadline::NOW);
        assert!(matches!(error, Err(CallError::Timeout) | Ok(_)), "{n}: {error:?}");
        assert_eq!(call(&mut connection, ECHO, b"x"), Ok(b"x".to_vec()), "{n}");
    }
    if home == Home::Across {
        assert!(open_fds() < before + 50, "they pile up: {before} to {}", open_fds());
    }
    assert_eq!(send_fds(&mut connection, GIVE, &3u64.to_ne_bytes(), &[]), Ok(3));
}

/// Tests whose process has few descriptors get a process of their own.
#[test]
fn running_out_of_descriptors_is_an_error() {
    let _watchdog = watchdog(60);
    let mut echo = Echo::start(Home::Across);
    let mut child = crate::common::child::Process::start("few-descriptors", &[&echo.name]);
    assert_eq!(child.hear("client").as_deref(), Some("fine"));
    let mut honest = echo.connect();
    // The server has few as well: whoever sends it one more than it can hold is let go.
    let now = ask(&mut honest, STATE, &[]).unwrap()[0];
    let pid = rustix::process::Pid::from_child(&echo.process().child);
    let few = Rlimit { current: Some(now + 4), maximum: Some(now + 4) };
    rustix::process::prlimit(Some(pid), Resource::Nofile, few).unwrap();
    let mut greedy = echo.connect();
    let fds: Vec<_> = (0..16).map(|_| null()).collect();
    let error = send_fds(&mut greedy, FDS, &[], &fds).unwrap_err();
    assert_eq!(error, CallError::Disconnected(Reason::NoResources));
    assert_eq!(call(&mut honest, ECHO, b"still here"), Ok(b"still here".to_vec()));
    drop(greedy);
    // Newcomers are refused, or wait until there is room again; nothing worse.
    let quick =
        ConnectOptions { timeout: std::time::Duration::from_millis(300), ..Default::default() };
    let mut more = vec![];
    let error = loop {
        match Connection::connect(echo.address(), &quick) {
            Ok(connection) => more.push(connection),
            Err(error) => break error,
        }
    };
    assert!(
        matches!(
            error,
            ConnectError::Refused(_, Reason::NoResources | Reason::PeerDied)
                | ConnectError::TimedOut(_)
        ),
        "{error}"
    );
    drop(more);
    until("there is room again", || Connection::connect(echo.address(), &quick).is_ok());
    assert_eq!(call(&mut honest, ECHO, b"and here"), Ok(b"and here".to_vec()));
}

pub(super) fn few_descriptors(words: &[&str]) {
    let options = ConnectOptions::default();
    let mut connection = Connection::connect(Address::parse(words[0]).unwrap(), &options).unwrap();
    let few = open_fds() + 3;
    let old = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(few), maximum: old.maximum }).unwrap();
    let error = send_fds(&mut connection, GIVE, &16u64.to_ne_bytes(), &[]).unwrap_err();
    assert_eq!(error, CallError::System(rustix::io::Errno::MFILE.raw_os_error()));
    let address = Address::parse(words[0]).unwrap();
    let held: Vec<_> = (0..1000).map_while(|_| std::fs::File::open("/dev/null").ok()).collect();
    let error = Connection::connect(address, &options).unwrap_err();
    assert!(matches!(error, ConnectError::System(..)), "{error}");
    drop(held);
    // The connection is none the worse for it.
    assert_eq!(call(&mut connection, ECHO, b"x"), Ok(b"x".to_vec()));
    assert_eq!(send_fds(&mut connection, GIVE, &1u64.to_ne_bytes(), &[]), Ok(1));
    crate::common::child::say("client", "fine");
}
