//! Clients that do what no library does, servers that begin at once, and users that are kept apart.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Folder, Program, Server, be_fake, is_there, until};
use sojourn_ipc::{Access, Address, Connection, Deadline, Memory};
use sojourn_session::{AdminClient, HomeT, ReasonT, SessionClient, session_connect_options};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The fault that a call was answered with.
fn code<T: core::fmt::Debug>(result: Result<T, sojourn_ipc::CallError>) -> i32 {
    result.unwrap_err().status() as i32
}

#[test]
fn fake() {
    be_fake();
}

/// Two other programs can still be joined.
fn assert_serves(server: &str) {
    let [a, b] = [(); 2].map(|()| Program::start(server));
    assert!(a.hello() && b.hello());
    let (first, second) = UnixStream::pair().unwrap();
    assert!(a.offer(1, first, true));
    assert!(!b.offer(1, second, true));
    assert_eq!(a.joined().stream, b.joined().stream);
}

#[test]
fn garbage_and_thousands_of_offers_disturb_nobody() {
    let folder = Folder::new();
    let server = Server::start(&folder.server(), &[]);
    let before = server.descriptors();
    let mut hostile = Program::start(&folder.server());
    assert!(hostile.hello());
    let taken = hostile.tell("pipes 10000", None);
    eprintln!("an offer that waits: {} µs", taken[0]);
    assert_eq!(hostile.tell("garbage 500 500", None), ["ok"]);
    assert_serves(&folder.server());
    let rows = server.sessions();
    assert_eq!(rows.iter().filter(|row| row.pid == hostile.pid()).count(), 10_000);
    hostile.kill();
    until("all of it is gone", || {
        let counters = server.admin().stats().unwrap().counters;
        counters.processes == 0 && counters.streams == 0
    });
    until("no descriptor is left", || server.descriptors() <= before);
}

#[test]
fn who_never_collects_is_disconnected() {
    let folder = Folder::new();
    let server = Server::start(&folder.server(), &[]);
    let hostile = Program::start(&folder.server());
    assert!(hostile.hello());
    assert_eq!(hostile.tell("garbage 400 0", None), ["ok"]);
    assert_serves(&folder.server());
    // Late is ten seconds.
    until("it is dropped", || server.admin().stats().unwrap().counters.processes == 0);
    assert_eq!(hostile.tell("garbage 1 1", None)[0], "error");
    assert_serves(&folder.server());
}

#[test]
fn calls_out_of_order_are_answered_with_faults() {
    let folder = Folder::new();
    let _server = Server::start(&folder.server(), &[]);
    let connect = || {
        let address = Address::parse(&folder.server()).unwrap();
        Connection::connect(address, &session_connect_options()).unwrap()
    };
    let mut client = SessionClient::bind(connect()).unwrap();
    let (end, _other) = UnixStream::pair().unwrap();
    let what = sojourn_session::OfferT {
        local: 1,
        set: 0,
        ring_bytes: 0,
        is_sole: true,
        home: HomeT::Library,
    };
    let no_hello = sojourn_session::FAULT_NO_HELLO;
    let argument = sojourn_session::FAULT_ARGUMENT;
    assert_eq!(code(client.offer(Some(end.as_fd()), &what).map(drop)), no_hello);
    assert_eq!(code(client.next().map(drop)), no_hello);
    client.left(1, ReasonT::Closed, 0, 0).unwrap();
    assert_eq!(code(client.hello(c"x", Some(end.as_fd()))), argument, "no event descriptor");
    assert_eq!(code(client.hello(c"x", None)), argument);
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    client.hello(c"x", Some(bell.as_fd())).unwrap();
    assert_eq!(code(client.hello(c"x", Some(bell.as_fd()))), argument);
    assert_eq!(code(client.offer(None, &what).map(drop)), argument);
    assert!(client.offer(Some(end.as_fd()), &what).unwrap());
    assert_eq!(code(client.offer(Some(end.as_fd()), &what).map(drop)), argument);
    assert_eq!(code(client.adopt(Some(end.as_fd()), &what, 1, 0).map(drop)), argument);
}

/// Each grant would be a mapping of the server's, of which a process has 65,530.
#[test]
fn no_client_registers_memory() {
    let folder = Folder::new();
    let _server = Server::start(&folder.server(), &[]);
    let address = Address::parse(&folder.server()).unwrap();
    let mut connection = Connection::connect(address, &session_connect_options()).unwrap();
    let memory = Memory::new(4096, Access::Read).unwrap();
    let registered = connection.register(&memory, Deadline::after(Duration::from_secs(10)));
    assert!(matches!(registered, Err(sojourn_ipc::CallError::TooLarge)), "{registered:?}");
    assert_serves(&folder.server());
}

/// A program may connect as root and give up that right: the process that has its connection
/// afterwards is no administrator.
#[test]
fn a_librarys_connection_is_no_administrators() {
    let folder = Folder::new();
    let _server = Server::start(&folder.server(), &[]);
    let address = Address::parse(&folder.server()).unwrap();
    let connection = Connection::connect(address, &session_connect_options()).unwrap();
    let mut admin = AdminClient::bind(connection).unwrap();
    assert!(admin.list(0).is_ok());
    let mut client = SessionClient::bind(admin.into_inner()).unwrap();
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    client.hello(c"x", Some(bell.as_fd())).unwrap();
    let mut admin = AdminClient::bind(client.into_inner()).unwrap();
    let code = |error: sojourn_ipc::CallError| error.status() as i32;
    let errors = [
        admin.list(0).map(drop).unwrap_err(),
        admin.refused(0).map(drop).unwrap_err(),
        admin.connections(0).map(drop).unwrap_err(),
        admin.processes(0).map(drop).unwrap_err(),
        admin.recall_stream(1).map(drop).unwrap_err(),
        admin.move_in(1, 1, HomeT::Library).map(drop).unwrap_err(),
        admin.stats().map(drop).unwrap_err(),
    ];
    assert_eq!(errors.map(code), [sojourn_session::FAULT_NOT_ALLOWED; 7]);
    let _ = admin.stop(true);
    assert_serves(&folder.server());
}

#[test]
fn who_connected_and_has_ended_says_no_hello() {
    let folder = Folder::new();
    let _server = Server::start(&folder.server(), &[]);
    let mut program = Program::start(&folder.server());
    let number = program.tell("connect", None)[0].parse().unwrap();
    let pid = rustix::process::Pid::from_child(&program.child);
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let Ok(socket) = rustix::process::pidfd_getfd(&process, number, flags) else {
        return eprintln!("skipped: descriptors of others cannot be had here");
    };
    // The number is still the program's own, but the program does not have the connection.
    program.child.kill().unwrap();
    assert!(common::is_readable(process.as_fd()));
    let connection = Connection::connect(Address::Descriptor(socket), &session_connect_options());
    let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let mut client = SessionClient::bind(connection.unwrap()).unwrap();
    let error = client.hello(c"x", Some(bell.as_fd())).unwrap_err();
    assert_eq!(error.status() as i32, sojourn_session::FAULT_ARGUMENT);
}

/// Whoever has an event descriptor can fill it and let writes to it wait.
#[test]
fn no_owner_of_an_inbox_holds_up_peers_of_another_user() {
    if !can_be_others() {
        return;
    }
    let address = open_address("fill");
    let _server = Server::start(&address, &["--system"]);
    let [hostile, honest] = USERS.map(|user| Program::start_as(Some(user), &address));
    assert!(hostile.hello() && honest.hello());
    let (first, second) = UnixStream::pair().unwrap();
    assert!(hostile.offer(1, first, true));
    assert!(honest.offer(1, second, false), "its holders are counted");
    assert_eq!(hostile.joined().stream, honest.joined().stream);
    assert_eq!(hostile.tell("fill 1", None), ["false", "false"]);
    assert_eq!(honest.tell("ring 1 peer", None), ["ok"]);
    assert_eq!(hostile.tell("rung 1", None), ["true"], "it hears the ring all the same");
}

#[test]
fn of_servers_that_begin_at_once_one_serves() {
    let folder = Folder::new();
    for _ in 0..5 {
        let start = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sojournd"));
            command.args(["--address", &folder.server(), "--log", "warn", "--idle-exit"]);
            command.stdout(Stdio::piped()).spawn().unwrap()
        };
        let mut servers: Vec<_> = (0..6).map(|_| start()).collect();
        let mut left = Vec::new();
        until("all but one have ended", || {
            left = servers.iter_mut().map(|server| server.try_wait().unwrap()).collect();
            left.iter().filter(|status| status.is_none()).count() == 1
        });
        assert!(left.iter().flatten().all(std::process::ExitStatus::success));
        assert_serves(&folder.server());
        for server in &mut servers {
            let _ = server.kill();
            server.wait().unwrap();
        }
    }
}

#[test]
fn a_server_on_demand_ends_when_nobody_is_left() {
    let folder = Folder::new();
    let mut server = Server::start(&folder.server(), &["--idle-exit", "0.3"]);
    let client = Program::start(&folder.server());
    assert!(client.hello());
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(900) {
        assert!(server.child.try_wait().unwrap().is_none(), "it has a client");
        std::thread::sleep(Duration::from_millis(50));
    }
    client.tell("bye", None);
    let begun = Instant::now();
    assert!(server.child.wait().unwrap().success());
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(!is_there(&folder.server()));
    // The next begins at once, though the lock's file is still there.
    let _next = Server::start(&folder.server(), &[]);
    assert!(client.hello());
}

#[test]
fn clients_that_come_as_a_server_ends_find_the_next_one() {
    let folder = Folder::new();
    let client = Program::start(&folder.server());
    for _ in 0..20 {
        // Like a program's starter: see that there is a server, then connect; if it was just
        // ending, once more.
        let mut servers = Vec::new();
        until("a client is served", || {
            servers.push(Server::start(&folder.server(), &["--idle-exit", "0"]));
            client.hello()
        });
        client.tell("bye", None);
        for server in &mut servers {
            assert!(server.child.wait().unwrap().success());
        }
    }
}

/// Users other than the one who runs the tests.
const USERS: [u32; 2] = [65_533, 65_534];

/// A name that every user can connect to.
fn open_address(name: &str) -> String {
    format!("@sojournd-test-{name}-{}", std::process::id())
}

fn can_be_others() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    let mut command = Command::new(std::env::current_exe().unwrap());
    std::os::unix::process::CommandExt::uid(&mut command, USERS[0]);
    let can = is_root && command.arg("--list").stdout(Stdio::null()).status().is_ok();
    if !can {
        eprintln!("skipped: cannot become another user here");
    }
    can
}

#[test]
fn a_users_server_is_for_that_user() {
    if !can_be_others() {
        return;
    }
    let address = open_address("own");
    let _server = Server::start_as(Some(USERS[0]), &address, &[]);
    assert!(!Program::start_as(Some(USERS[1]), &address).hello());
    let own = Program::start_as(Some(USERS[0]), &address);
    let root = Program::start(&address);
    assert!(own.hello() && root.hello());
    let (first, second) = UnixStream::pair().unwrap();
    assert!(own.offer(1, first, true));
    assert!(!root.offer(1, second, true));
    assert_eq!(own.told(), ("refused".into(), 1, ReasonT::OtherUser));
    assert_eq!(root.told(), ("refused".into(), 1, ReasonT::OtherUser));
}

/// A user name space in which the server's user has no number shows it as the user that stands for
/// all without one; so does it show everybody else.
#[test]
fn a_server_that_cannot_tell_users_apart_serves_none_of_them() {
    if !can_be_others() {
        return;
    }
    let address = open_address("unmapped");
    let mut command = Command::new("unshare");
    command.args(["--user", env!("CARGO_BIN_EXE_sojournd")]);
    std::os::unix::process::CommandExt::uid(&mut command, USERS[0]);
    let mut server = Server::started(command, &address, &[]);
    for user in USERS.map(Some).into_iter().chain([None]) {
        assert!(!Program::start_as(user, &address).hello(), "{user:?}");
    }
    // Root of another name space is one of them, too.
    server.admin().stop(true).unwrap();
    assert!(server.admin().stats().is_ok());
    assert!(server.child.try_wait().unwrap().is_none(), "it goes on");
}

#[test]
fn roots_server_is_for_root_unless_it_is_started_for_all() {
    if !can_be_others() {
        return;
    }
    for (flags, is_for_all) in [(&[][..], false), (&["--system"][..], true)] {
        let address = open_address("roots");
        let _server = Server::start(&address, flags);
        assert!(Program::start(&address).hello());
        assert_eq!(Program::start_as(Some(USERS[0]), &address).hello(), is_for_all);
        let folder = Folder::new();
        std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
        let _server = Server::start(&folder.server(), flags);
        let mode = std::fs::metadata(folder.server()).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if is_for_all { 0o777 } else { 0o700 });
        assert_eq!(Program::start_as(Some(USERS[0]), &folder.server()).hello(), is_for_all);
    }
}

/// Returns true if this process may look into those of other users: root may be without that right,
/// too.
fn sees_others() -> bool {
    let held = rustix::thread::capabilities(None).unwrap().effective;
    held.contains(rustix::thread::CapabilitySet::SYS_PTRACE)
}

#[test]
fn roots_server_joins_users_and_shows_each_its_own() {
    if !can_be_others() {
        return;
    }
    if !sees_others() {
        eprintln!("skipped: root may not look into others' processes here (CAP_SYS_PTRACE)");
        return;
    }
    let address = open_address("all");
    let server = Server::start(&address, &["--system"]);
    let [a, b] = USERS.map(|user| Program::start_as(Some(user), &address));
    assert!(a.hello() && b.hello());
    let (first, second) = UnixStream::pair().unwrap();
    assert!(a.offer(1, first, true));
    assert!(b.offer(1, second, false), "its holders are counted");
    assert_eq!(a.joined().stream, b.joined().stream);
    let rows = server.sessions();
    assert_eq!(rows.iter().map(|row| row.uid).collect::<Vec<_>>().len(), 2);
    assert_eq!(rows.iter().filter(|row| row.uid == USERS[0]).count(), 1);
}

/// Two programs of the second user have a session with each other, and it moves.
fn assert_joins_another_user(address: &str) {
    let other = [(); 2].map(|()| Program::start_as(Some(USERS[1]), address));
    assert!(other.iter().all(Program::hello));
    let (reader, writer) = pipe();
    assert!(other[0].offer(1, reader, true));
    assert!(!other[1].offer(1, writer, true));
    assert_eq!(other[0].joined().stream, other[1].joined().stream);
}

#[test]
fn no_user_takes_all_descriptors() {
    if !can_be_others() {
        return;
    }
    let address = open_address("share");
    let _server = Server::start_with(600, &address, &["--system"]);
    let greedy = [(); 2].map(|()| Program::start_as(Some(USERS[0]), &address));
    assert!(greedy.iter().all(Program::hello));
    let mut refused = None;
    for local in 0..300 {
        let ends = pipe();
        let ends = [ends.0, ends.1];
        for (program, end) in greedy.iter().zip(&ends) {
            let text = format!("offer-apart {local}");
            assert!(program.tell(&text, Some(end.as_fd()))[0].starts_with("Ok"));
        }
        let told = greedy[0].tell("next", None);
        assert_eq!(told[0], greedy[1].tell("next", None)[0]);
        if told[0] == "refused" {
            refused = Some((local, told[2].clone()));
            break;
        }
    }
    let (streams, reason) = refused.unwrap();
    assert_eq!(reason, "quota", "after {streams} streams");
    assert!((20..60).contains(&streams), "{streams}: half of what there is, seven for each");
    assert_joins_another_user(&address);
}

/// A client may send descriptors before the call that takes them; nobody has to call.
#[test]
fn no_user_takes_all_descriptors_with_those_that_no_call_takes() {
    if !can_be_others() {
        return;
    }
    let address = open_address("hoard");
    let _server = Server::start_with(600, &address, &["--system"]);
    let greedy = Program::start_as(Some(USERS[0]), &address);
    assert!(greedy.hello());
    assert_eq!(greedy.tell("hoard 10", None), ["ok"]);
    assert_joins_another_user(&address);
}

#[test]
fn another_users_word_that_it_is_sole_is_not_taken() {
    if !can_be_others() || !sees_others() {
        eprintln!("skipped: needs root, and to look into others' processes");
        return;
    }
    let address = open_address("sole");
    let server = Server::start(&address, &["--system"]);
    let [liar, honest] = USERS.map(|user| Program::start_as(Some(user), &address));
    let other = Program::start_as(Some(USERS[0]), &address);
    assert!(liar.hello() && honest.hello() && other.hello());
    for (local, ends) in [pipe(), pipe()].into_iter().enumerate() {
        let local = local as u64;
        other.tell(&format!("keep {local}"), Some(ends.1.as_fd()));
        assert!(honest.offer(local, ends.0, true));
        liar.offer(local, ends.1, true);
        assert_eq!(liar.told(), ("refused".into(), local, ReasonT::SeveralHolders));
    }
    // The word about an end that really is the honest one's own is checked, and true.
    let (reader, writer) = pipe();
    assert!(honest.offer(7, reader, true));
    liar.offer(7, writer, true);
    assert_eq!(honest.joined().stream, liar.joined().stream);
    assert!(server.admin().stats().unwrap().counters.scans >= 1);
}

fn pipe() -> (rustix::fd::OwnedFd, rustix::fd::OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

#[test]
fn a_users_server_counts_holders_without_privileges() {
    if !can_be_others() {
        return;
    }
    let address = open_address("count");
    let _server = Server::start_as(Some(USERS[0]), &address, &[]);
    let [a, b] = [(); 2].map(|()| Program::start_as(Some(USERS[0]), &address));
    assert!(a.hello() && b.hello());
    let (first, second) = UnixStream::pair().unwrap();
    assert!(a.offer(1, first, true));
    assert!(b.offer(1, second, false));
    // This very test program is root's, in the same session, and cannot be inspected.
    assert_eq!(b.told(), ("refused".into(), 1, ReasonT::HoldersUnknown));
    let (third, fourth) = UnixStream::pair().unwrap();
    for program in [&a, &b] {
        program.tell("setsid", None);
    }
    assert!(a.offer(2, third, false));
    assert!(b.offer(2, fourth, false));
    assert_eq!(a.joined().stream, b.joined().stream, "nobody else is kin");
}
