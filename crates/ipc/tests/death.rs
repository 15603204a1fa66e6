//! Death of either side at every labelled point, and sides that stop: whoever lives is told in
//! time, and nothing is left behind.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::child::{Process, say, wait_for_parent};
use common::raw::{self, Raw};
use common::service::{COUNT, ECHO, FDS, GIVE, KEEP, SIZED, STATE, open_fds};
use common::{Echo, Home, ask, call, call_until, limit, path, soon, until, watchdog};
use rustix::fd::AsFd;
use sojourn_ipc::{
    Access, Address, CallError, ConnectError, ConnectOptions, Connection, Deadline, Endpoint,
    Grant, Memory, Reason, ServerOptions, Wait,
};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

const FAULT_POINT: &str = "SOJOURN_FAULT_POINT";

#[test]
fn child_entry() {
    common::child::entry(&[("client", client), ("idle", idle), ("bind", bind), ("hold", hold)]);
}

/// A little of everything that two sides can do with one another.
fn converse(address: &str, wait: Wait) -> Result<(), CallError> {
    let options = ConnectOptions { wait, ..Default::default() };
    let connection = Connection::connect(Address::parse(address).unwrap(), &options);
    let mut connection = connection.map_err(|error| match error {
        ConnectError::Refused(_, reason) => CallError::Disconnected(reason),
        // Dead before it listened, or while we waited for the answer.
        ConnectError::NotFound(_) | ConnectError::System(..) => {
            CallError::Disconnected(Reason::PeerDied)
        }
        other => panic!("{other}"),
    })?;
    let null = std::fs::File::open("/dev/null").unwrap();
    let memory = Memory::new(4096, Access::Read).unwrap();
    // Often enough that every point is passed, even if the machine is busy with something else.
    for round in 0..8u8 {
        call(&mut connection, ECHO, &[round; 10])?;
        call(&mut connection, ECHO, &[round; 300_000])?;
        call(&mut connection, SIZED, &200_000u64.to_ne_bytes())?;
        let mut draft = connection.start(FDS, 100_000);
        draft.encoder().put_fd(null.as_fd()).unwrap();
        draft.call(limit())?;
        call(&mut connection, GIVE, &2u64.to_ne_bytes())?;
        connection.start(COUNT, 4).send(limit())?;
        connection.notify(1)?;
        let id = connection.register(&memory, limit())?;
        let mut draft = connection.start(common::service::GRANT, 0);
        draft.encoder().grant(Grant { id, flags: 0, offset: 0, len: 100 }).unwrap();
        draft.call(limit())?;
        connection.unregister(id, limit())?;
        connection.wait_notify(limit())?;
        // Long enough to sleep on the bell and then on the socket.
        match call_until(&mut connection, KEEP, &[1], soon(12)) {
            Err(CallError::Timeout) => {}
            other => drop(other?),
        }
        call(&mut connection, common::service::RELEASE, &[])?;
    }
    Ok(())
}

fn client(words: &[&str]) {
    let wait = if words[1] == "park" { Wait::Park } else { Wait::Adaptive };
    let end = converse(words[0], wait);
    say("survived", format!("{end:?}"));
}

#[test]
fn the_conversation_goes_well_when_nobody_dies() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Home::Across);
    for wait in [Wait::Adaptive, Wait::Park] {
        converse(&echo.name, wait).unwrap();
    }
}

const CLIENT_POINTS: [&str; 11] = [
    "client.connected",
    "client.greeted",
    "client.welcomed",
    "client.published",
    "client.published:4",
    "client.piece",
    "client.piece:2",
    "client.more",
    "client.descriptors",
    "client.bell",
    "client.socket",
];

#[test]
fn a_client_that_dies_leaves_nothing_and_harms_nobody() {
    let _watchdog = watchdog(120);
    if !cfg!(debug_assertions) {
        return;
    }
    let echo = Echo::start(Home::Across);
    let mut witness = echo.connect();
    call(&mut witness, ECHO, &[1; 100]).unwrap();
    let before = ask(&mut witness, STATE, &[]).unwrap()[0];
    for point in CLIENT_POINTS {
        let words = [echo.name.as_str(), "park"];
        let mut child = Process::start_with("client", &words, |command| {
            command.env(FAULT_POINT, point);
        });
        assert_eq!(child.hear("survived"), None, "{point} is never passed");
        assert_eq!(child.child.wait().unwrap().signal(), Some(9), "{point}");
        let start = Instant::now();
        until(point, || ask(&mut witness, STATE, &[]).unwrap()[1] == 1);
        assert!(start.elapsed() < Duration::from_secs(5), "{point}");
        call(&mut witness, ECHO, &[1; 100_000]).unwrap();
        converse(&echo.name, Wait::Adaptive).unwrap();
    }
    until("nothing is left of them", || {
        let now = ask(&mut witness, STATE, &[]).unwrap();
        now[1] == 1 && now[0] <= before + 2
    });
}

const SERVER_POINTS: [&str; 17] = [
    "server.greeting",
    "server.region",
    "server.welcomed",
    "server.taken",
    "server.taken:1",
    "server.taken:4",
    "server.piece",
    "server.piece:2",
    "server.more",
    "server.extras",
    "server.answer",
    "server.answer:2",
    "server.answered:1",
    "server.answered:6",
    "server.answered:12",
    "server.park",
    "server.park:3",
];

#[test]
fn a_server_that_dies_ends_every_wait_and_leaves_nothing() {
    let _watchdog = watchdog(120);
    if !cfg!(debug_assertions) {
        return;
    }
    let memory_before = shared_memory_files();
    for (number, point) in SERVER_POINTS.into_iter().enumerate() {
        let path = path();
        let address = path.to_str().unwrap();
        let options = common::service::words(&ServerOptions::default());
        let mut words = vec![address, "1"];
        words.extend(options.iter().map(String::as_str));
        let mut server = Process::start_with("serve", &words, |command| {
            command.env(FAULT_POINT, point);
        });
        // One that dies when it first sleeps may do so before it says that it is ready.
        let _ = server.hear("ready");
        // The client in a process of its own, so that what it leaves can be seen.
        let wait = if number % 2 == 0 { "park" } else { "adaptive" };
        let mut client = Process::start("client", &[address, wait]);
        let heard = std::thread::spawn(move || (client.hear("survived"), Instant::now()));
        let mut died = None;
        until(&format!("{point} is passed"), || {
            died = server.child.try_wait().unwrap().map(|status| (status, Instant::now()));
            died.is_some() || heard.is_finished()
        });
        let (end, told) = heard.join().unwrap();
        assert_eq!(end.as_deref(), Some("Err(Disconnected(PeerDied))"), "{point}");
        let (status, died) = died.unwrap_or_else(|| (server.child.wait().unwrap(), told));
        assert_eq!(status.signal(), Some(9), "{point}");
        let delay = told.saturating_duration_since(died);
        assert!(delay < Duration::from_secs(3), "{point}: {delay:?}");
        until("the file is removed", || !path.exists());
        until("the guard has gone", || guards(address) == 0);
    }
    assert_eq!(shared_memory_files(), memory_before, "nothing in /dev/shm");
}

fn shared_memory_files() -> usize {
    std::fs::read_dir("/dev/shm").map_or(0, |files| {
        let is_ours =
            |file: &std::fs::DirEntry| file.file_name().to_string_lossy().contains("sojourn");
        files.flatten().filter(is_ours).count()
    })
}

/// How many processes guard that path.
fn guards(path: &str) -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
        .filter(|line| {
            let line = String::from_utf8_lossy(line);
            line.contains("sojourn-guard") && line.contains(path)
        })
        .count()
}

#[test]
fn a_server_that_dies_while_it_binds_is_no_hindrance() {
    let _watchdog = watchdog(60);
    if !cfg!(debug_assertions) {
        return;
    }
    for point in ["server.bound", "server.listening"] {
        let path = path();
        let address = path.to_str().unwrap();
        let mut child = Process::start_with("bind", &[address], |command| {
            command.env(FAULT_POINT, point);
        });
        assert_eq!(child.child.wait().unwrap().signal(), Some(9), "{point}");
        let endpoint =
            Endpoint::bind(Address::parse(address).unwrap(), Default::default()).unwrap();
        assert_eq!(guards(address), 1);
        drop(endpoint);
        assert!(!path.exists());
        until("the guard has gone", || guards(address) == 0);
    }
}

/// The next endpoint binds while the guard of the one before is at work.
#[test]
fn a_dead_servers_guard_leaves_the_next_ones_file() {
    let _watchdog = watchdog(120);
    let path = path();
    let address = path.to_str().unwrap();
    for round in 0..30 {
        let mut child = Process::start("hold", &[address]);
        assert_eq!(child.hear("ready").as_deref(), Some("yes"));
        child.kill();
        let parsed = Address::parse(address).unwrap();
        let endpoint = Endpoint::bind(parsed, Default::default()).unwrap();
        until("the dead one's guard has gone", || guards(address) == 1);
        assert!(path.exists(), "round {round}: the next one's file was removed");
        drop(endpoint);
        until("the guard has gone", || guards(address) == 0);
    }
}

fn hold(words: &[&str]) {
    let _endpoint = Endpoint::bind(Address::parse(words[0]).unwrap(), Default::default()).unwrap();
    say("ready", "yes");
    wait_for_parent();
}

fn bind(words: &[&str]) {
    let _ = Endpoint::bind(Address::parse(words[0]).unwrap(), Default::default());
}

#[test]
fn waits_of_every_kind_end_with_the_server() {
    let _watchdog = watchdog(60);
    for wait in [Wait::Park, Wait::Adaptive, Wait::Spin(None)] {
        let mut echo = Echo::start(Home::Across);
        let fds = open_fds();
        type WaitFor = fn(&mut Connection) -> Result<(), CallError>;
        let waits: [WaitFor; 4] = [
            |connection| connection.start(KEEP, 0).call(Deadline::NEVER).map(drop),
            |connection| connection.start(KEEP, 200_000).call(Deadline::NEVER).map(drop),
            |connection| connection.wait_notify(Deadline::NEVER).map(drop),
            |connection| {
                let pending = connection.start(KEEP, 0).submit(Deadline::NEVER)?;
                connection.finish(pending, Deadline::NEVER).map(drop)
            },
        ];
        // Pure spinners in numbers would only fight for the processors.
        let count = if wait == Wait::Spin(None) { 1 } else { waits.len() };
        let threads: Vec<_> = waits
            .into_iter()
            .take(count)
            .map(|wait_for| {
                let mut connection = echo.connect_waiting(wait);
                std::thread::spawn(move || {
                    let error = wait_for(&mut connection).unwrap_err();
                    (error, Instant::now())
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(30));
        let killed = Instant::now();
        echo.process().kill();
        for thread in threads {
            let (error, when) = thread.join().unwrap();
            assert_eq!(error, CallError::Disconnected(Reason::PeerDied));
            assert!(when.duration_since(killed) < Duration::from_secs(3));
        }
        drop(echo);
        // Other tests of this process open descriptors too, but not as many.
        assert!(open_fds() < fds + 200);
    }
}

#[test]
fn a_stopped_client_blocks_nobody() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Home::Across);
    let stopped: Vec<_> = (0..4)
        .map(|_| {
            let client = Process::start("client", &[&echo.name, "park"]);
            client.stop();
            client
        })
        .collect();
    // One that sleeps on its socket, and one that has told us that it sleeps on its bell.
    let raws: Vec<_> = (0..3).map(|_| Raw::connect(&echo.name)).collect();
    for (bell, raw) in (0..).zip(&raws) {
        raw.region.word32(raw::CLIENT_BELL).store(bell, std::sync::atomic::Ordering::SeqCst);
    }
    let mut honest = echo.connect();
    for n in 0..100u8 {
        assert_eq!(call_until(&mut honest, ECHO, &[n], soon(5000)).unwrap(), [n]);
    }
    drop(stopped);
    drop(raws);
    until("they are gone", || ask(&mut honest, STATE, &[]).unwrap()[1] == 1);
}

#[test]
fn idle_connections_use_no_processor_time() {
    let _watchdog = watchdog(60);
    let echo = Echo::start_with(Home::Across, 2, ServerOptions::default());
    let mut child = Process::start("idle", &[&echo.name]);
    assert_eq!(child.hear("idle").as_deref(), Some("200"));
    let server = echo.process.as_ref().unwrap().pid();
    // Lanes go to sleep one after another; a busy machine may take its time over that.
    until("a second without a tick", || {
        let before = [ticks(server), ticks(child.pid())];
        std::thread::sleep(Duration::from_secs(1));
        [ticks(server), ticks(child.pid())].iter().zip(before).all(|(now, then)| now - then <= 1)
    });
    // They all still work.
    assert!(child.end());
}

fn ticks(pid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn idle(words: &[&str]) {
    let connect =
        || Connection::connect(Address::parse(words[0]).unwrap(), &Default::default()).unwrap();
    let mut connections: Vec<_> = (0..200u8).map(|_| connect()).collect();
    for (n, connection) in (0..).zip(&mut connections) {
        assert_eq!(call(connection, ECHO, &[n]).unwrap(), [n]);
    }
    let waiting: Vec<_> = (0..10)
        .map(|_| {
            let mut connection = connections.pop().unwrap();
            std::thread::spawn(move || {
                connection.wait_notify(Deadline::after(Duration::from_secs(30)))
            })
        })
        .collect();
    say("idle", 200);
    wait_for_parent();
    for round in 0..3u8 {
        for (n, connection) in (0..).zip(&mut connections) {
            assert_eq!(call(connection, ECHO, &[n, round]).unwrap(), [n, round]);
        }
    }
    drop(waiting);
    std::process::exit(0);
}
