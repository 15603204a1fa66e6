//! Tests of deaths and ends of the session server while remote sessions are away: the sessions go
//! on, and the next server takes them over.
//!
//! The peers check every byte. Not here: events that end or hurt a session while its server lives
//! (`network_events`). Needs rights over networks; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{End, Link};
use sojourn_lab::{Finished, Running, unit};
use sojourn_system::leftovers::{Leftovers, keeper, keeper_path};
use sojourn_system::network::{Accelerated, Stage, hosts};
use sojourn_system::transfer::{Form, PROGRESS, Transfer, wait_for};
use sojourn_system::{Admin, LIMIT};
use std::time::Duration;

/// Kills the server twice under load. The session goes on; the next server has it and can send it
/// home.
fn outlives(mut transfer: Transfer<'_>) {
    let stream = transfer.await_away();
    transfer.await_progress("the first bytes");
    for death in 1..=2 {
        transfer.kill_server();
        transfer.await_progress("bytes without a server");
        transfer.start_server();
        // The stream is the same, so this is no new move.
        assert_eq!(transfer.await_away(), stream, "{death}");
        transfer.await_progress("bytes with the next server");
        assert_eq!(transfer.await_away(), stream, "{death}");
    }
    let shown = transfer.world().sessions().unwrap();
    let number = serde_json::Value::from(stream.to_string());
    let is_it = |session: &&serde_json::Value| session["stream"] == number;
    let session = shown["sessions"].as_array().unwrap().iter().find(is_it).expect("ss shows it");
    assert_eq!(session["home"], "library", "{session}");
    assert!(session["sent"].as_u64() > Some(PROGRESS), "{session}");
    transfer.world().sojourn(&["move", &stream.to_string(), "kernel"]).unwrap();
    let mut admin = Admin::new(transfer.world()).unwrap();
    transfer.await_that("the way home", |_| {
        let away = admin.away().unwrap();
        away.iter().all(|session| session.stream != stream).then_some(())
    });
    transfer.await_progress("bytes after the way home");
    transfer.finish();
}

#[test]
fn transfers_outlive_servers() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for is_v6 in [false, true] {
        for end in [End::A, End::B] {
            for way in ["blocking", "epoll"] {
                outlives(Transfer::start(&link, end, is_v6, way));
            }
        }
    }
}

#[test]
fn transfers_outlive_servers_that_their_unit_starts() {
    let Some([a, b]) = hosts() else { return };
    if !unit::become_unit(&mut std::process::Command::new("true")) {
        return eprintln!("skipped: not root, or no systemd-analyze that knows system calls");
    }
    let link = Link::direct(&a, &b, 1500).unwrap();
    for (end, accelerated) in [(End::A, Accelerated::Server), (End::B, Accelerated::Client)] {
        let stage = Stage::as_unit(&link, accelerated).unwrap();
        let mut transfer = Transfer::on(stage, &link, end, Form { is_v6: false, way: "blocking" });
        let stream = transfer.await_away();
        transfer.await_progress("the first bytes");
        transfer.kill_server();
        transfer.await_progress("bytes without a server");
        transfer.start_server();
        assert_eq!(transfer.await_away(), stream);
        transfer.await_progress("bytes with the next server");
        assert_eq!(Admin::new(transfer.world()).unwrap().recall_all().unwrap(), 1);
        transfer.await_progress("bytes on the way home and after it");
        transfer.finish();
    }
}

/// One of the server's processes is killed under load: the session goes on, and the processes that
/// take the place of all of them have it and can send it home.
fn outlives_part(link: &Link, end: End, part: &str) {
    let mut transfer = Transfer::start(link, end, false, "epoll");
    let stream = transfer.await_away();
    transfer.await_progress("the first bytes");
    for death in 1..=2 {
        let server = transfer.world().server_pid();
        let before = transfer.world().server_part(part).expect("the process");
        let pid = rustix::process::Pid::from_raw(before.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        wait_for("another process", || {
            transfer.world().server_part(part).filter(|now| *now != before)
        });
        assert_eq!(transfer.world().server_pid(), server, "the parent has stayed");
        // The same session, and no new one.
        assert_eq!(transfer.await_away(), stream, "{part} killed: {death}");
        transfer.await_progress("bytes with the next processes");
        assert_eq!(transfer.await_away(), stream, "{part} killed: {death}");
    }
    transfer.world().sojourn(&["move", &stream.to_string(), "kernel"]).unwrap();
    let mut admin = Admin::new(transfer.world()).unwrap();
    transfer.await_that("the way home", |_| {
        let away = admin.away().unwrap();
        away.iter().all(|session| session.stream != stream).then_some(())
    });
    transfer.await_progress("bytes after the way home");
    let started = "the server's processes are started anew";
    transfer
        .finish_with(|output| output.matches(": error: ").count() == 2 && output.contains(started));
}

#[test]
fn transfers_outlive_each_of_the_servers_processes() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for part in ["front", "prober", "carrier"] {
        for end in [End::A, End::B] {
            outlives_part(&link, end, part);
        }
    }
}

#[test]
fn what_ends_without_a_server_is_ended_by_the_next() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for end in [End::A, End::B] {
        let mut transfer = Transfer::start(&link, end, false, "blocking");
        transfer.await_away();
        transfer.await_progress("the first bytes");
        transfer.kill_server();
        transfer.await_progress("bytes without a server");
        // Both programs shut down; the one under Sojourn waits for a server in that call.
        std::fs::write(transfer.stage.end_file(), "").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert!(transfer.peers[end as usize].is_running(), "it has not waited");
        transfer.start_server();
        transfer.finish();
    }
}

/// Returns the output of the plain program of a transfer whose other program was killed.
fn survivor(transfer: Transfer<'_>) -> Finished {
    let [at_a, at_b] = transfer.peers;
    let mut survivor = if transfer.end == End::A { at_b } else { at_a };
    wait_for("the survivor's end", || (!survivor.is_running()).then_some(()));
    let left =
        Leftovers::of(transfer.link, transfer.end, &transfer.stage.worlds[transfer.end as usize]);
    left.assert_none();
    let output = survivor.finish(LIMIT).unwrap();
    assert!(!output.err.contains("nothing happened"), "nobody has told it: {output:?}");
    output
}

/// Kills the server at several moments of a move: before, during, and after. Only a session that
/// the server is exporting from its socket at that moment, which takes some 100 µs, is lost with
/// the server.
#[test]
fn a_death_in_the_middle_of_a_move() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for round in 0..20 {
        let end = if round % 2 == 0 { End::A } else { End::B };
        let mut transfer = Transfer::start(&link, end, false, "blocking");
        let mut admin = Admin::new(transfer.world()).unwrap();
        transfer.await_that("an offer", |_| (admin.offers().unwrap() > 0).then_some(()));
        std::thread::sleep(Duration::from_micros(350 * round));
        transfer.kill_server();
        transfer.start_server();
        let before = Transfer::counters(&link, end);
        let goes_on = wait_for("bytes, or an end", || {
            let now = Transfer::counters(&link, end);
            let is_over = !transfer.peers.iter_mut().all(Running::is_running);
            let is_enough = now.iter().zip(&before).all(|(now, before)| now - before > PROGRESS);
            (is_over || is_enough).then_some(!is_over)
        });
        assert!(goes_on, "round {round}: the session has not outlived its server");
        transfer.finish();
    }
}

#[test]
fn a_program_that_dies_without_a_server_is_buried_by_the_next() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut transfer = Transfer::start(&link, End::A, false, "blocking");
    transfer.await_away();
    transfer.await_progress("the first bytes");
    transfer.kill_server();
    transfer.await_progress("bytes without a server");
    transfer.peers[0].signal(rustix::process::Signal::KILL);
    wait_for("its end", || (!transfer.peers[0].is_running()).then_some(()));
    transfer.start_server();
    let output = transfer.world().stop_server().unwrap();
    assert!(output.err.contains("its program has ended while there was no server"), "{output:?}");
    assert_eq!(output.status, 0, "{output:?}");
    let output = survivor(transfer);
    assert_ne!(output.status, 0, "the end of a program that was killed: {output:?}");
}

#[test]
fn the_keeper_ends_with_the_last_program() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut transfer = Transfer::start(&link, End::B, true, "epoll");
    transfer.await_away();
    transfer.kill_server();
    transfer.await_progress("bytes without a server");
    let keeper = keeper(&keeper_path(transfer.world())).expect("a keeper");
    transfer.peers[1].signal(rustix::process::Signal::KILL);
    wait_for("the keeper's end", || {
        let is_there = std::path::Path::new(&format!("/proc/{keeper}/exe")).exists();
        (!is_there).then_some(())
    });
    // The kernel now answers the peer's data, and has no such connection, so it resets it.
    let output = survivor(transfer);
    assert_ne!(output.status, 0, "the end of a program that was killed: {output:?}");
}

/// Kills the keeper, and then the server that has started another one.
#[test]
fn a_keeper_that_dies_is_replaced() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut transfer = Transfer::start(&link, End::A, false, "epoll");
    let stream = transfer.await_away();
    let path = keeper_path(transfer.world());
    let first = keeper(&path).expect("a keeper");
    let pid = rustix::process::Pid::from_raw(first.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    transfer.await_that("another keeper", |_| keeper(&path).filter(|pid| *pid != first));
    transfer.await_progress("bytes without the first keeper");
    transfer.kill_server();
    transfer.await_progress("bytes without a server");
    transfer.start_server();
    assert_eq!(transfer.await_away(), stream);
    std::fs::write(transfer.stage.end_file(), "").unwrap();
    let output = transfer.peers.map(|peer| peer.finish(LIMIT).unwrap().success("a peer"));
    assert!(output.iter().all(Result::is_ok), "{output:?}");
}

#[test]
fn an_orderly_end_sends_everything_home() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for end in [End::A, End::B] {
        let mut transfer = Transfer::start(&link, end, end == End::B, "epoll");
        for _ in 0..3 {
            transfer.await_away();
            transfer.await_progress("bytes with a server");
            let output = transfer.world().stop_server().unwrap();
            assert_eq!((output.status, output.err.contains(": warn: ")), (0, false), "{output:?}");
            Leftovers::of(&link, end, transfer.world()).assert_none();
            transfer.await_progress("bytes in the kernel");
            transfer.start_server();
        }
        transfer.finish();
    }
}

/// Tests a server that cannot serve, as on a full disk: it leaves the keeper's contents to the next
/// one.
#[test]
fn a_server_that_cannot_listen_takes_nothing_along() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut transfer = Transfer::start(&link, End::A, false, "epoll");
    transfer.await_away();
    transfer.await_progress("the first bytes");
    for _ in 0..5 {
        transfer.kill_server();
        let address = transfer.world().address();
        let _ = std::fs::remove_file(&address);
        std::fs::create_dir(&address).unwrap();
        assert!(transfer.world().start_server().is_err(), "it listens at a folder");
        transfer.await_progress("bytes after a server that could not listen");
        std::fs::remove_dir(&address).unwrap();
        transfer.start_server();
        // The stream is the same or, if the session was home meanwhile, a new one.
        transfer.await_away();
    }
    transfer.finish();
}

/// Tests that a server for its own user alone carries remote sessions too.
#[test]
fn a_server_for_one_user_carries() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut transfer = Transfer::start(&link, End::B, false, "epoll");
    transfer.await_away();
    transfer.world().stop_server().unwrap();
    transfer.world().serve_own_user();
    transfer.start_server();
    transfer.await_away();
    transfer.await_progress("bytes with a server for one user");
    transfer.finish();
}
