//! The program: its clients, its rights, and the death of either side. Needs root.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Driver, World, eventually, frame, receive, receive_by};
use rustix::process::{Pid, Signal, kill_process};
use sojourn_netif::{Interface, LinkError, Outgoing, SendError};

#[test]
fn several_clients_have_every_frame_and_small_budgets_lose_none() {
    let Some(mut world) = World::new() else { return };
    for words in [&[][..], &["--by-memory"]] {
        let driver = Driver::start(&world, words);
        let mut clients = [driver.client(), driver.client()];
        for mark in 0..40 {
            world.send(mark);
            if mark % 4 == 3 {
                clients.iter_mut().for_each(|client| receive_by(client, mark, 1));
            }
        }
        for client in &mut clients {
            world.sees(client, 50);
            let counts = client.statistics();
            assert!(counts.received >= 40 && counts.sent == 1 && counts.damaged == 0, "{counts:?}");
        }
        world.send(41);
        receive(&mut clients[0], 41);
    }
}

#[test]
fn the_process_has_one_capability_and_can_open_nothing() {
    let Some(world) = World::new() else { return };
    let driver = Driver::start(&world, &[]);
    let status = format!("/proc/{}/status", driver.process.id());
    let status = std::fs::read_to_string(status).unwrap();
    let line = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_default().trim().to_owned()
    };
    // CAP_NET_RAW is number 13.
    assert_eq!((line("CapEff:"), line("CapBnd:")), ("0000000000002000".into(), "0".repeat(16)));
    assert_eq!((line("NoNewPrivs:"), line("Seccomp:")), ("1".into(), "2".into()));
}

#[test]
fn a_killed_driver_is_noticed_by_waiting_and_by_sending() {
    let Some(world) = World::new() else { return };
    let mut driver = Driver::start(&world, &[]);
    let mut clients = [driver.client(), driver.client()];
    driver.process.kill().unwrap();
    driver.process.wait().unwrap();
    let [one, other] = &mut clients;
    eventually("the bell has hung up", || {
        common::wait(one, std::time::Instant::now() + common::LIMIT);
        one.receive(8, &mut |_| ()) == Err(LinkError::Gone)
    });
    let refused = Err(SendError::Link(LinkError::Gone));
    assert_eq!(other.send(&Outgoing::plain(&frame(1))), refused);
    assert_eq!(other.receive(8, &mut |_| ()), Err(LinkError::Gone));
    assert_eq!(other.refresh(), Err(LinkError::Gone));
}

#[test]
fn a_driver_that_does_not_answer_is_given_up() {
    let Some(world) = World::new() else { return };
    let driver = Driver::start(&world, &[]);
    let mut client = driver.client();
    let pid = Pid::from_raw(driver.process.id().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", driver.process.id());
    eventually("every thread has stopped", || {
        std::fs::read_dir(&tasks).unwrap().all(|one| {
            let stat = std::fs::read_to_string(one.unwrap().path().join("stat")).unwrap();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        })
    });
    let refused = Err(SendError::Link(LinkError::Gone));
    assert_eq!(client.send(&Outgoing::plain(&frame(1))), refused);
    kill_process(pid, Signal::CONT).unwrap();
    // It may be used anew, by another connection.
    assert!(driver.client().refresh().is_ok());
}

#[test]
fn a_client_that_has_gone_leaves_no_thread_behind() {
    let Some(mut world) = World::new() else { return };
    let driver = Driver::start(&world, &[]);
    let threads = || {
        let tasks = format!("/proc/{}/task", driver.process.id());
        std::fs::read_dir(tasks).unwrap().count()
    };
    let before = threads();
    let mut stays = driver.client();
    for _ in 0..20 {
        drop(driver.client());
    }
    // One that never greets has gone as well.
    let path = driver.address();
    let sojourn_driver::Address::Path(path) = path else { panic!("no path") };
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::SEQPACKET);
    let silent = rustix::net::socket_with(family, kind, flags, None).unwrap();
    rustix::net::connect(&silent, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    drop(silent);
    world.sees(&mut stays, 3);
    eventually("only the threads of one client are left", || threads() <= before + 3);
    world.sees(&mut stays, 4);
}
