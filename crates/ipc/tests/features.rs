//! What travels beside bytes, and what surrounds a connection: descriptors, grants, who is who,
//! limits, endpoints of every kind, closing. Each test runs with the server in this process and in
//! another, where that makes sense.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::service::*;
use common::{Echo, Home, ask, call, call_until, limit, path, soon, until, watchdog};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use sojourn_ipc::{
    Access, Address, BindError, CallError, ConnectError, ConnectOptions, Connection, Deadline,
    Endpoint, Event, Fault, Grant, KEEP as KEEP_FLAG, Memory, Reason, ServerOptions, WRITE, Wait,
};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

#[test]
fn child_entry() {
    common::child::entry(&[
        ("few-descriptors", few_descriptors),
        ("offered", offered),
        ("greedy", greedy),
        ("secluded", secluded),
        ("bind-ignoring-children", bind_ignoring_children),
    ]);
}

macro_rules! in_both_homes {
    ($($test:ident)*) => {
        mod within {
            $(#[test] fn $test() { super::$test(super::Home::Within); })*
        }
        mod across {
            $(#[test] fn $test() { super::$test(super::Home::Across); })*
        }
    };
}

in_both_homes! {
    descriptors_travel_both_ways
    descriptors_of_messages_that_fail_are_forgotten
    descriptors_of_answers_nobody_wants_are_closed
    grants_are_read_and_written_in_place
    grants_out_of_bounds_end_the_connection
    grants_are_limited
    the_server_knows_who_calls
    a_dropped_token_answers_with_a_fault
    too_large_is_an_error_and_nothing_worse
    items_are_read_where_they_lie
    clients_beyond_the_limit_are_refused
    clients_of_one_user_beyond_the_limit_are_refused
    an_expelled_client_knows_why
    identifiers_are_not_reused
    closing_is_told
}

fn send_fds(
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

fn null() -> OwnedFd {
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
    let mut child = common::child::Process::start("few-descriptors", &[&echo.name]);
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

fn few_descriptors(words: &[&str]) {
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
    common::child::say("client", "fine");
}

fn with_grant(
    connection: &mut Connection,
    op: u16,
    body: &[u8],
    grant: Grant,
) -> Result<Vec<u8>, CallError> {
    let mut draft = connection.start(op, body.len());
    draft.encoder().put_bytes(body)?;
    draft.encoder().grant(grant)?;
    Ok(draft.call(limit())?.body().to_vec())
}

fn grants_are_read_and_written_in_place(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let ours = Memory::new(10_000, Access::Read).unwrap();
    let shared = Memory::new(10_000, Access::ReadWrite).unwrap();
    ours.span(5000, 5).unwrap().copy_from(b"hello");
    shared.span(0, 5).unwrap().copy_from(b"there");
    let read = connection.register(&ours, limit()).unwrap();
    let write = connection.register(&shared, limit()).unwrap();
    let grant = |id, flags, offset, len| Grant { id, flags, offset, len };
    assert_eq!(with_grant(&mut connection, GRANT, b"", grant(read, 0, 5000, 5)).unwrap(), b"hello");
    // Read-only by seal: what the server tries to write goes nowhere.
    with_grant(&mut connection, GRANT, b"w", grant(read, 0, 5000, 5)).unwrap();
    assert_eq!(with_grant(&mut connection, GRANT, b"", grant(read, 0, 5000, 5)).unwrap(), b"hello");
    let flags = WRITE | KEEP_FLAG;
    with_grant(&mut connection, GRANT, b"w", grant(write, flags, 0, 5)).unwrap();
    let mut seen = [0; 5];
    shared.span(0, 5).unwrap().copy_to(&mut seen);
    assert_eq!(&seen, b"!here");
    // Kept only if allowed; a kept one sees what is written later.
    let kept = |bytes: Vec<u8>| bytes == 1u64.to_ne_bytes();
    assert!(!kept(with_grant(&mut connection, KEEP_GRANT, b"", grant(read, 0, 0, 5)).unwrap()));
    assert!(kept(with_grant(&mut connection, KEEP_GRANT, b"", grant(write, flags, 0, 5)).unwrap()));
    shared.span(0, 5).unwrap().copy_from(b"later");
    assert_eq!(call(&mut connection, KEPT, &[]).unwrap(), b"later");
    // Unregistered: known no more, but kept is kept.
    connection.unregister(write, limit()).unwrap();
    assert_eq!(call(&mut connection, KEPT, &[]).unwrap(), b"later");
    let error = with_grant(&mut connection, GRANT, b"", grant(write, 0, 0, 5)).unwrap_err();
    assert_eq!(error, CallError::Disconnected(Reason::BadGrant));
}

fn grants_out_of_bounds_end_the_connection(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let memory = Memory::new(4096, Access::Read).unwrap();
    for (flags, offset, len) in
        [(0, 4096, 1), (0, 0, 4097), (0, u64::MAX, 2), (0, 2, u64::MAX), (WRITE, 0, 1), (8, 0, 1)]
    {
        let mut connection = echo.connect();
        let id = connection.register(&memory, limit()).unwrap();
        let edge = Grant { id, flags: 0, offset: 4095, len: 1 };
        assert_eq!(with_grant(&mut connection, GRANT, b"", edge).unwrap(), [0]);
        let beyond = Grant { id, flags, offset, len };
        let error = with_grant(&mut connection, GRANT, b"", beyond).unwrap_err();
        assert_eq!(error, CallError::Disconnected(Reason::BadGrant), "{beyond:?}");
    }
}

fn grants_are_limited(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { max_granted: 100 << 12, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let mut connection = echo.connect();
    let page = Memory::new(4096, Access::Read).unwrap();
    let large = Memory::new(101 << 12, Access::Read).unwrap();
    assert_eq!(connection.register(&large, limit()), Err(CallError::TooLarge));
    let ids: Vec<u32> = (0..64).map(|_| connection.register(&page, limit()).unwrap()).collect();
    assert_eq!(connection.register(&page, limit()), Err(CallError::TooLarge));
    connection.unregister(ids[0], limit()).unwrap();
    connection.register(&page, limit()).unwrap();
    assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
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

fn too_large_is_an_error_and_nothing_worse(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { max_message: 50_000, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let small = ConnectOptions { max_message: 50_000, ..Default::default() };
    let mut connection = echo.connect_with(small);
    for deadline in [limit(), soon(10_000)] {
        let answer = call_until(&mut connection, ECHO, &[1; 60_000], deadline);
        assert_eq!(answer, Err(CallError::TooLarge));
        let answer = call_until(&mut connection, SIZED, &60_000u64.to_ne_bytes(), deadline);
        assert_eq!(answer, Err(CallError::Fault(Fault::TOO_LARGE)));
        assert_eq!(call(&mut connection, ECHO, &[1; 49_000]).unwrap().len(), 49_000);
    }
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

fn items_are_read_where_they_lie(home: Home) {
    let _watchdog = watchdog(60);
    for (wait, max_inflight) in [(Wait::Adaptive, 8), (Wait::Park, 1)] {
        let options =
            ServerOptions { items_in_place: true, wait, max_inflight, ..Default::default() };
        let echo = Echo::start_with(home, 1, options);
        let mut connection = echo.connect_waiting(wait);
        let bytes: Vec<u8> = (0..200_000).map(|n| (n * 7 + n / 256) as u8).collect();
        let mut count = 0u32;
        for len in [0, 1, 100, 5000, 30_000, 65_000, 200_000] {
            let items = [&bytes[..len], &bytes[7..7 + len / 2]];
            let back = common::call_with_items(&mut connection, b"body", &items).unwrap();
            assert_eq!(back, (b"body".to_vec(), items.map(<[u8]>::to_vec).to_vec()));
            // The slot is given back when the next message is waited for: more of them than there
            // are.
            for _ in 0..12 {
                let mut draft = connection.start(COUNT, 4);
                draft.encoder().put_bytes(&count.to_ne_bytes()).unwrap();
                draft.encoder().put_item(items[0]).unwrap();
                draft.send(limit()).unwrap();
                count += 1;
            }
            let counted = ask(&mut connection, COUNTED, &[]).unwrap();
            assert_eq!(counted, [u64::from(count), 1]);
        }
    }
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
        let name = format!("@{}", common::name());
        let options = ServerOptions { wait, ..Default::default() };
        let words = [&[name.clone(), "1".into()][..], &common::service::words(&options)].concat();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut server = common::child::Process::start_with("serve", &words, |command| {
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
    let mut child = common::child::Process::start_with("greedy", &[&echo.name], |command| {
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
fn greedy(words: &[&str]) {
    let address = || Address::parse(words[0]).unwrap();
    let mut held = vec![];
    let error = loop {
        match Connection::connect(address(), &Default::default()) {
            Ok(connection) => held.push(connection),
            Err(error) => break error,
        }
    };
    let ConnectError::Refused(_, reason) = error else { panic!("{error}") };
    common::child::say("took", format!("{} {reason}", held.len()));
    common::child::wait_for_parent();
}

/// A server that cannot see our process at all, in a pid name space of its own, knows who we are
/// but for that, over its name and over a socket that it offers.
#[test]
#[allow(unsafe_code, reason = "a name space is unshared by a system call")]
fn a_client_whose_process_is_not_seen_is_process_0() {
    let _watchdog = watchdog(60);
    let name = common::name();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let words = name.clone();
    // A thread of its own: what it unshares is where its later children live.
    let child = std::thread::spawn(move || {
        // SAFETY: nothing but the name space of this thread's children changes.
        let unshared =
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) };
        unshared.ok()?;
        Some(common::child::Process::start_with("secluded", &[&words], |command| {
            command.stdin(std::process::Stdio::from(OwnedFd::from(theirs)));
        }))
    });
    let Some(mut child) = child.join().unwrap() else {
        eprintln!("skipped: no right to make a pid name space");
        return;
    };
    assert_eq!(child.hear("ready"), Some("1".into()));
    let offer = common::raw::receive_fd(&ours.as_fd().try_clone_to_owned().unwrap());
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

fn secluded(words: &[&str]) {
    let endpoint = Endpoint::bind(Address::abstract_name(words[0]), Default::default()).unwrap();
    let server = endpoint.server();
    let serving = std::thread::spawn(move || serve(server));
    let offer = endpoint.offer().unwrap();
    let parent = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    common::raw::send_bytes(&parent, b"x", &[offer.as_fd()]).unwrap();
    common::child::say("ready", std::process::id());
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

/// In one address space a call passes the caller's own memory.
#[test]
fn a_call_within_one_address_space_is_by_reference() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Home::Within);
    let mut connection = echo.connect();
    let item = vec![5; 1000];
    for body_len in [10, 50_000] {
        let mut draft = connection.start(WHERE, body_len);
        draft.encoder().put_bytes(&vec![1; body_len]).unwrap();
        draft.encoder().put_item(&item).unwrap();
        let reply = draft.call(Deadline::NEVER).unwrap();
        let word = |at: usize| u64::from_ne_bytes(reply.body()[at..at + 8].try_into().unwrap());
        assert_eq!(word(8), item.as_ptr() as u64, "the item is the caller's");
        let mut draft = connection.start(WHERE, body_len);
        draft.encoder().put_item(&item).unwrap();
        let reply = draft.call(limit()).unwrap();
        let word = |at: usize| u64::from_ne_bytes(reply.body()[at..at + 8].try_into().unwrap());
        assert_ne!(
            word(8),
            item.as_ptr() as u64,
            "a caller that may go keeps its memory to itself"
        );
    }
}

/// What a caller lent is not looked at any more once its call has ended, however that ends.
#[test]
fn a_loan_ends_before_its_call_does() {
    let _watchdog = watchdog(60);
    use sojourn_ipc::Event;
    let name = common::name();
    let endpoint = Endpoint::bind(Address::abstract_name(&name), Default::default()).unwrap();
    let mut server = endpoint.server();
    let (seen, looking) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        loop {
            match server.recv(Deadline::NEVER) {
                Ok(Event::Call(request)) => {
                    seen.send(()).unwrap();
                    may_go_on.recv().unwrap();
                    assert!(request.item(0).unwrap().iter().all(|byte| *byte == 9));
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let address = Address::abstract_name(&name);
    let mut connection = Connection::connect(address, &Default::default()).unwrap();
    let (returned, has_returned) = std::sync::mpsc::channel();
    let caller = std::thread::spawn(move || {
        let mut item = vec![9; 100_000];
        let mut draft = connection.start(1, 0);
        draft.encoder().put_item(&item).unwrap();
        let error = draft.call(Deadline::NEVER).map(drop).unwrap_err();
        item.fill(0);
        returned.send(()).unwrap();
        error
    });
    looking.recv().unwrap();
    // The endpoint goes while the server looks at the caller's memory.
    drop(endpoint);
    let early = has_returned.recv_timeout(std::time::Duration::from_millis(50));
    assert!(early.is_err(), "the caller has its memory back while the server looks at it");
    go_on.send(()).unwrap();
    assert_eq!(caller.join().unwrap(), CallError::Disconnected(Reason::Closed));
    serving.join().unwrap();
}

#[test]
fn a_stopped_server_holds_nobody_past_the_deadline_and_goes_on_later() {
    let _watchdog = watchdog(60);
    let options = ServerOptions { area: 4096, ..Default::default() };
    for wait in [Wait::Adaptive, Wait::Park] {
        let mut echo = Echo::start_with(Home::Across, 1, options);
        let mut connection = echo.connect_waiting(wait);
        assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
        for round in 0..3 {
            echo.process().stop();
            let start = std::time::Instant::now();
            // In pieces, of which only some find room; with descriptors; short; one-way.
            let error = call_until(&mut connection, ECHO, &[3; 300_000], soon(50)).unwrap_err();
            assert_eq!(error, CallError::Timeout);
            let fd = null();
            let mut draft = connection.start(FDS, 200_000);
            draft.encoder().put_fd(fd.as_fd()).unwrap();
            assert_eq!(draft.call(soon(50)).unwrap_err(), CallError::Timeout);
            assert_eq!(call_until(&mut connection, ECHO, b"y", soon(50)), Err(CallError::Timeout));
            while let Ok(()) = connection.start(COUNT, 0).send(soon(20)) {}
            let memory = Memory::new(4096, Access::Read).unwrap();
            assert_eq!(connection.register(&memory, soon(20)), Err(CallError::Timeout));
            let quick = ConnectOptions {
                timeout: std::time::Duration::from_millis(50),
                ..Default::default()
            };
            let error = Connection::connect(echo.address(), &quick).unwrap_err();
            assert!(matches!(error, ConnectError::TimedOut(_)), "{error}");
            assert!(start.elapsed().as_secs() < 10);
            echo.process().signal(Signal::CONT);
            for len in [0, 10, 100_000] {
                let body = vec![round; len];
                assert_eq!(call(&mut connection, ECHO, &body).unwrap(), body, "round {round}");
            }
            assert_eq!(send_fds(&mut connection, FDS, &[], &[null()]), Ok(1));
        }
    }
}

#[test]
fn a_path_is_guarded_private_and_cleaned_up() {
    let _watchdog = watchdog(60);
    let path = path();
    let address = path.to_str().unwrap().to_owned();
    let mut echo = Echo::start_at(&address, 1, Default::default());
    let mut connection = echo.connect();
    assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
    let error = Endpoint::bind(echo.address(), Default::default()).unwrap_err();
    assert!(matches!(error, BindError::InUse(_)), "{error}");
    assert!(path.exists(), "a refused endpoint leaves the other's file alone");
    // After an orderly end, and after any other.
    echo.close();
    assert!(!path.exists());
    let mut echo = Echo::start_at(&address, 1, Default::default());
    echo.process().kill();
    until("the guard removes the file", || !path.exists());
    // A stale file, as a machine that crashed leaves it, is replaced.
    let stale = common::raw_listener(&path);
    drop(stale);
    assert!(path.exists());
    let echo = Echo::start_at(&address, 1, Default::default());
    assert_eq!(call(&mut echo.connect(), ECHO, b"x").unwrap(), b"x");
    drop(echo);
    until("the guard removes the file", || !path.exists());
    // Something that is no socket is nobody's to remove.
    std::fs::write(&path, "precious").unwrap();
    let error = Endpoint::bind(Address::parse(&address).unwrap(), Default::default()).unwrap_err();
    assert!(matches!(error, BindError::InUse(_) | BindError::System(..)), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
    std::fs::remove_file(&path).unwrap();
    let nowhere = Address::parse("/nonexistent/socket").unwrap();
    let error = Endpoint::bind(nowhere, Default::default()).unwrap_err();
    assert!(matches!(error, BindError::System(..)), "{error}");
}

/// The guard must not take a parent that does not care for its children for one that died.
#[test]
fn a_program_that_ignores_its_children_keeps_its_file() {
    let _watchdog = watchdog(60);
    let path = path();
    let words = [path.to_str().unwrap()];
    let mut child = common::child::Process::start_with("bind-ignoring-children", &words, |_| {});
    assert_eq!(child.hear("file").as_deref(), Some("is there"));
    child.kill();
    until("the guard removes the file", || !path.exists());
}

fn bind_ignoring_children(words: &[&str]) {
    common::ignore_children();
    let _endpoint = Endpoint::bind(Address::parse(words[0]).unwrap(), Default::default()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let there = std::path::Path::new(words[0]).exists();
    common::child::say("file", if there { "is there" } else { "is gone" });
    common::child::wait_for_parent();
}

#[test]
fn a_listener_can_be_inherited() {
    let _watchdog = watchdog(60);
    let path = path();
    let listener = common::raw_listener(&path);
    let endpoint = Endpoint::bind(Address::Descriptor(listener), Default::default()).unwrap();
    let server = endpoint.server();
    let serving = std::thread::spawn(move || common::service::serve(server));
    let address = Address::Path(path.clone());
    let mut connection = Connection::connect(address, &Default::default()).unwrap();
    assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
    drop(connection);
    drop(endpoint);
    serving.join().unwrap();
    std::fs::remove_file(path).unwrap();
    let error = Endpoint::bind(Address::Descriptor(null()), Default::default()).unwrap_err();
    assert!(matches!(error, BindError::NotAListener(_)), "{error}");
}

/// An offered socket is a connection for whoever holds it, and the kernel says who that is.
#[test]
fn an_offer_is_a_connection_for_whoever_takes_it() {
    let _watchdog = watchdog(60);
    let name = common::name();
    let endpoint = Endpoint::bind(Address::abstract_name(&name), Default::default()).unwrap();
    let server = endpoint.server();
    let serving = std::thread::spawn(move || common::service::serve(server));
    let here = Address::Descriptor(endpoint.offer().unwrap());
    let mut connection = Connection::connect(here, &Default::default()).unwrap();
    assert!(connection.is_local());
    assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
    assert_eq!(ask(&mut connection, WHO, &[]).unwrap()[1], u64::from(std::process::id()));
    // In another process: not by reference, and with that process's credentials.
    let offer = endpoint.offer().unwrap();
    let mut child = common::child::Process::start_with("offered", &[], |command| {
        command.stdin(std::process::Stdio::from(offer));
    });
    let pid = child.child.id().to_string();
    assert_eq!(child.hear("server-saw"), Some(pid));
    child.child.wait().unwrap();
    drop(connection);
    drop(endpoint);
    serving.join().unwrap();
}

fn offered(_words: &[&str]) {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let address = Address::Descriptor(socket);
    let mut connection = Connection::connect(address, &Default::default()).unwrap();
    assert!(!connection.is_local());
    for len in [0, 10, 1000, 100_000] {
        let body = vec![4; len];
        assert_eq!(call_until(&mut connection, ECHO, &body, Deadline::NEVER).unwrap(), body);
    }
    let who = ask(&mut connection, WHO, &[]).unwrap();
    common::child::say("server-saw", who[1]);
}

#[test]
fn an_endpoint_without_an_address_serves_sockets_that_others_have_accepted() {
    let endpoint = Endpoint::unnamed(ServerOptions::default()).unwrap();
    let mut server = endpoint.server();
    let serving = std::thread::spawn(move || {
        let mut served = 0;
        while served < 2 {
            if let Event::Call(request) = server.reply_wait(None, soon(20_000)).unwrap() {
                served += 1;
                assert_eq!(request.credentials().pid, std::process::id().cast_signed());
                let mut draft = request.into_token().start(1);
                draft.encoder().put_bytes(&[7]).unwrap();
                draft.finish().send().unwrap();
            }
        }
    });
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    for _ in 0..2 {
        let (own, accepted) =
            rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
        endpoint.adopt(accepted).unwrap();
        let mut connection =
            Connection::connect(Address::Descriptor(own), &ConnectOptions::default()).unwrap();
        let draft = connection.start(1, 0);
        assert_eq!(draft.call(soon(20_000)).unwrap().body(), [7]);
    }
    serving.join().unwrap();
}
