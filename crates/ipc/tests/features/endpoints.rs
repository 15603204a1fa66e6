//! Endpoints of every kind: paths, listeners and sockets that are inherited, none at all.
//!
//! Not here: their clients (`clients`).

use super::descriptors::{null, send_fds};
use crate::common::service::*;
use crate::common::{Echo, Home, ask, call, call_until, path, soon, until, watchdog};
use rustix::fd::AsFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;
use sojourn_ipc::{
    Access, Address, BindError, CallError, ConnectError, ConnectOptions, Connection, Deadline,
    Endpoint, Event, Memory, ServerOptions, Wait,
};

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
    let stale = crate::common::raw_listener(&path);
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
    let mut child =
        crate::common::child::Process::start_with("bind-ignoring-children", &words, |_| {});
    assert_eq!(child.hear("file").as_deref(), Some("is there"));
    child.kill();
    until("the guard removes the file", || !path.exists());
}

pub(super) fn bind_ignoring_children(words: &[&str]) {
    crate::common::ignore_children();
    let _endpoint = Endpoint::bind(Address::parse(words[0]).unwrap(), Default::default()).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    let there = std::path::Path::new(words[0]).exists();
    crate::common::child::say("file", if there { "is there" } else { "is gone" });
    crate::common::child::wait_for_parent();
}

#[test]
fn a_listener_can_be_inherited() {
    let _watchdog = watchdog(60);
    let path = path();
    let listener = crate::common::raw_listener(&path);
    let endpoint = Endpoint::bind(Address::Descriptor(listener), Default::default()).unwrap();
    let server = endpoint.server();
    let serving = std::thread::spawn(move || crate::common::service::serve(server));
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
    let name = crate::common::name();
    let endpoint = Endpoint::bind(Address::abstract_name(&name), Default::default()).unwrap();
    let server = endpoint.server();
    let serving = std::thread::spawn(move || crate::common::service::serve(server));
    let here = Address::Descriptor(endpoint.offer().unwrap());
    let mut connection = Connection::connect(here, &Default::default()).unwrap();
    assert!(connection.is_local());
    assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
    assert_eq!(ask(&mut connection, WHO, &[]).unwrap()[1], u64::from(std::process::id()));
    // In another process: not by reference, and with that process's credentials.
    let offer = endpoint.offer().unwrap();
    let mut child = crate::common::child::Process::start_with("offered", &[], |command| {
        command.stdin(std::process::Stdio::from(offer));
    });
    let pid = child.child.id().to_string();
    assert_eq!(child.hear("server-saw"), Some(pid));
    child.child.wait().unwrap();
    drop(connection);
    drop(endpoint);
    serving.join().unwrap();
}

pub(super) fn offered(_words: &[&str]) {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let address = Address::Descriptor(socket);
    let mut connection = Connection::connect(address, &Default::default()).unwrap();
    assert!(!connection.is_local());
    for len in [0, 10, 1000, 100_000] {
        let body = vec![4; len];
        assert_eq!(call_until(&mut connection, ECHO, &body, Deadline::NEVER).unwrap(), body);
    }
    let who = ask(&mut connection, WHO, &[]).unwrap();
    crate::common::child::say("server-saw", who[1]);
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
