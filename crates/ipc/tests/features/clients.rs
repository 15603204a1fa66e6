//! What a server knows of its clients, and how many it takes.
//!
//! Not here: the address at which they find it (`endpoints`).

use crate::common::service::*;
use crate::common::{Echo, Home, ask, call, call_until, limit, until, watchdog};
use rustix::fd::AsFd;
use sojourn_ipc::{
    Address, CallError, ConnectError, ConnectOptions, Connection, Deadline, Endpoint, Fault,
    Reason, ServerOptions, Wait,
};
use std::io::Read;
use std::os::fd::OwnedFd;

in_both_homes! {
    the_server_knows_who_calls
    a_dropped_token_answers_with_a_fault
    clients_beyond_the_limit_are_refused
    clients_of_one_user_beyond_the_limit_are_refused
    an_expelled_client_knows_why
    identifiers_are_not_reused
    closing_is_told
}

fn the_server_knows_who_calls(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let (mut one, mut two) = (echo.connect(), echo.connect());
    let (who, other) = (ask(&mut one, WHO, &[]).unwrap(), ask(&mut two, WHO, &[]).unwrap());
    assert!(who[0] >= 1000 && other[0] >= 1000 && who[0] != other[0], "badges");
    assert_eq!(who[1], u64::from(std::process::id()));
    assert_eq!(who[2], u64::from(rustix::process::getuid().as_raw()));
    assert_eq!(who[3], u64::from(rustix::process::getgid().as_raw()));
    assert_eq!([who[4] as u32, who[5] as u32], [one.id().index, one.id().generation]);
}

fn a_dropped_token_answers_with_a_fault(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    for op in [DROP, UNSENT] {
        for body in [&b""[..], &[7; 100_000]] {
            for deadline in [limit(), Deadline::NEVER] {
                let answer = call_until(&mut connection, op, body, deadline);
                assert_eq!(answer, Err(CallError::Fault(Fault::DROPPED)));
            }
        }
    }
    assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
}

fn clients_beyond_the_limit_are_refused(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { max_clients: 3, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let mut held: Vec<_> = (0..3).map(|_| echo.connect()).collect();
    let error = Connection::connect(echo.address(), &Default::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Refused(_, Reason::TooManyClients)), "{error}");
    assert!(error.to_string().contains("as many clients as it may"));
    held.pop();
    until("a place is free", || Connection::connect(echo.address(), &Default::default()).is_ok());
    assert_eq!(call(&mut held[0], ECHO, b"x").unwrap(), b"x");
}

fn clients_of_one_user_beyond_the_limit_are_refused(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { clients_per_user_max: 2, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let mut held: Vec<_> = (0..2).map(|_| echo.connect()).collect();
    let error = Connection::connect(echo.address(), &Default::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Refused(_, Reason::TooManyOfUser)), "{error}");
    assert!(error.to_string().contains("as many clients of this user as it may"));
    held.pop();
    until("a place is free", || Connection::connect(echo.address(), &Default::default()).is_ok());
    assert_eq!(call(&mut held[0], ECHO, b"x").unwrap(), b"x");
}

/// The system calls that the threads of a process are asleep in; `None` while one of them runs.
fn sleeping_in(pid: i32) -> Option<Vec<i64>> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let call = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("syscall")).ok()?;
        text.split(' ').next()?.trim().parse().ok()
    };
    tasks.map(call).collect()
}

/// On a kernel before 5.16 a server thread cannot wait for several clients' futexes at once.
#[test]
fn a_server_does_without_futex_waitv() {
    let _watchdog = watchdog(60);
    for wait in [Wait::Park, Wait::Adaptive] {
        let name = format!("@{}", crate::common::name());
        let options = ServerOptions { wait, ..Default::default() };
        let words =
            [&[name.clone(), "1".into()][..], &crate::common::service::words(&options)].concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut server = crate::common::child::Process::start_with("serve", &words, |command| {
            command.env("SOJOURN_WITHOUT", "futex_waitv");
        });
        assert!(server.hear("ready").is_some());
        let options = ConnectOptions { wait, ..Default::default() };
        let connect = || Connection::connect(Address::parse(&name).unwrap(), &options).unwrap();
        let mut clients: Vec<_> = (0..3).map(|_| connect()).collect();
        for round in 0..50u8 {
            for client in &mut clients {
                assert_eq!(call(client, ECHO, &[round; 200]).unwrap(), [round; 200]);
            }
        }
        clients[1].notify(4).unwrap();
        assert_eq!(clients[1].wait_notify(limit()).unwrap(), 8);
        // It sleeps, and not in the call that it is to do without.
        until("every thread of the server sleeps", || {
            let calls = sleeping_in(server.pid());
            calls.is_some_and(|calls| {
                assert!(!calls.contains(&libc::SYS_futex_waitv));
                calls.contains(&libc::SYS_futex)
            })
        });
        clients.pop();
        until("the server knows who has gone", || ask(&mut clients[0], GONE, &[]).unwrap()[0] == 1);
        drop(clients);
        assert!(server.end());
    }
}

/// What one user takes leaves room for others, though nobody said how much.
#[test]
fn another_user_cannot_take_all_places() {
    let _watchdog = watchdog(60);
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become another user");
        return;
    }
    let options = ServerOptions { max_clients: 5, ..Default::default() };
    let echo = Echo::start_with(Home::Within, 1, options);
    let mut child = crate::common::child::Process::start_with("greedy", &[&echo.name], |command| {
        std::os::unix::process::CommandExt::uid(command, 12_345);
    });
    let reason = Reason::TooManyOfUser.to_string();
    assert_eq!(child.hear("took"), Some(format!("2 {reason}")));
    let held: Vec<_> = (0..3).map(|_| echo.connect()).collect();
    let error = Connection::connect(echo.address(), &Default::default()).unwrap_err();
    assert!(matches!(error, ConnectError::Refused(_, Reason::TooManyClients)), "{error}");
    assert!(child.end());
    drop(held);
}

/// Connects until it is refused.
pub(super) fn greedy(words: &[&str]) {
    let address = || Address::parse(words[0]).unwrap();
    let mut held = vec![];
    let error = loop {
        match Connection::connect(address(), &Default::default()) {
            Ok(connection) => held.push(connection),
            Err(error) => break error,
        }
    };
    let ConnectError::Refused(_, reason) = error else { panic!("{error}") };
    crate::common::child::say("took", format!("{} {reason}", held.len()));
    crate::common::child::wait_for_parent();
}

/// A server that cannot see our process at all, in a pid name space of its own, knows who we are
/// but for that, over its name and over a socket that it offers.
#[test]
#[allow(unsafe_code, reason = "a name space is unshared by a system call")]
fn a_client_whose_process_is_not_seen_is_process_0() {
    let _watchdog = watchdog(60);
    let name = crate::common::name();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let words = name.clone();
    // A thread of its own: what it unshares is where its later children live.
    let child = std::thread::spawn(move || {
        // SAFETY: nothing but the name space of this thread's children changes.
        let unshared =
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) };
        unshared.ok()?;
        Some(crate::common::child::Process::start_with("secluded", &[&words], |command| {
            command.stdin(std::process::Stdio::from(OwnedFd::from(theirs)));
        }))
    });
    let Some(mut child) = child.join().unwrap() else {
        eprintln!("skipped: no right to make a pid name space");
        return;
    };
    assert_eq!(child.hear("ready"), Some("1".into()));
    let offer = crate::common::raw::receive_fd(&ours.as_fd().try_clone_to_owned().unwrap());
    for address in [Address::abstract_name(&name), Address::Descriptor(offer)] {
        let mut connection = Connection::connect(address, &Default::default()).unwrap();
        assert!(!connection.is_local());
        assert_eq!(call(&mut connection, ECHO, &[3; 5000]).unwrap(), [3; 5000]);
        let who = ask(&mut connection, WHO, &[]).unwrap();
        assert_eq!(who[1..3], [0, u64::from(rustix::process::geteuid().as_raw())]);
    }
    drop(ours);
    child.child.wait().unwrap();
}

pub(super) fn secluded(words: &[&str]) {
    let endpoint = Endpoint::bind(Address::abstract_name(words[0]), Default::default()).unwrap();
    let server = endpoint.server();
    let serving = std::thread::spawn(move || serve(server));
    let offer = endpoint.offer().unwrap();
    let parent = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    crate::common::raw::send_bytes(&parent, b"x", &[offer.as_fd()]).unwrap();
    crate::common::child::say("ready", std::process::id());
    let _ = std::io::stdin().read(&mut [0]);
    drop(endpoint);
    serving.join().unwrap();
}

fn an_expelled_client_knows_why(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    for deadline in [limit(), Deadline::NEVER] {
        let error = call_until(&mut connection, EXPEL, &[1; 200], deadline).unwrap_err();
        assert_eq!(error, CallError::Disconnected(Reason::Expelled));
        assert_eq!(connection.ended(), Some(Reason::Expelled));
        let error = call(&mut connection, ECHO, &[]).unwrap_err();
        assert_eq!(error, CallError::Disconnected(Reason::Expelled));
        connection = echo.connect();
    }
}

fn identifiers_are_not_reused(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut seen = std::collections::HashSet::new();
    let mut witness = echo.connect();
    for round in 0..30 {
        let mut connection = echo.connect();
        let id = connection.id();
        assert!(seen.insert((id.index, id.generation)), "{id:?} was another's");
        // A call left with the server: its token outlives the client, and its answer must not reach
        // whoever has the place next.
        let _pending = connection.start(KEEP, 0).submit(limit()).unwrap();
        assert_eq!(call(&mut connection, ECHO, &[round]).unwrap(), [round]);
        drop(connection);
        until("the server has noticed", || ask(&mut witness, STATE, &[]).unwrap()[1] == 1);
        let mut next = echo.connect();
        let pending = next.start(99, 0).submit(limit()).unwrap();
        call(&mut witness, RELEASE, b"").unwrap();
        assert_eq!(next.finish(pending, limit()).unwrap().body(), b"");
        drop(next);
        until("the server has noticed", || ask(&mut witness, STATE, &[]).unwrap()[1] == 1);
    }
    assert!(seen.iter().any(|(index, _)| *index == 1), "places are reused, with a new generation");
}

fn closing_is_told(home: Home) {
    let _watchdog = watchdog(60);
    let mut echo = Echo::start(home);
    let mut waiting = echo.connect();
    let mut calling = echo.connect();
    let caller =
        std::thread::spawn(move || calling.start(KEEP, 200).call(Deadline::NEVER).map(drop));
    until("the call is there", || {
        // The witness is a client too; the third call comes when the first two are kept.
        ask(&mut waiting, STATE, &[]).unwrap()[1] == 2
    });
    echo.close();
    assert_eq!(caller.join().unwrap().unwrap_err(), CallError::Disconnected(Reason::Closed));
    let error = call(&mut waiting, ECHO, b"").unwrap_err();
    assert_eq!(error, CallError::Disconnected(Reason::Closed));
    assert!(matches!(
        Connection::connect(echo.address(), &Default::default()),
        Err(ConnectError::NotFound(_))
    ));
}
