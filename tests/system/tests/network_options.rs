//! Tests that options of remote sessions are answered and obeyed as by the kernel: before a move,
//! while away, and at home again.
//!
//! One program runs plainly and under Sojourn; its output must be the same. Not here: bytes and
//! readiness (`network.rs`), sessions of one host (`conform.rs`). Needs rights over networks;
//! skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{Conditions, End, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::{Accelerated, Stage, hosts, programs};
use sojourn_system::{Admin, LIMIT, MoveCounts, free_port};
use std::time::{Duration, Instant};

/// Longest time for a move.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `is_so` returns true.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn role(stage: &Stage, end: End, role: &str) -> Running {
    let mut command = stage.command(end, "python3");
    command.arg(programs().join("net/asks.py")).arg(role);
    Running::start(command).unwrap()
}

/// Goes through the steps of `asks.py`, telling it when each is done; returns the caller's output.
fn asks(link: &Link, accelerated: Accelerated) -> String {
    let mut stage = Stage::new(link, accelerated).unwrap();
    // So many that the questions at home do not make the session move again.
    stage.worlds[1].set("MOVE_AFTER_CALLS", "100");
    let tell = |name: &str| std::fs::write(stage.work().join(name), "").unwrap();
    let server = role(&stage, End::A, "serve");
    stage.await_listener(link, stage.port).unwrap();
    let caller = role(&stage, End::B, "call");
    let mut admin =
        (accelerated != Accelerated::Neither).then(|| Admin::new(&stage.worlds[1]).unwrap());
    let away = |admin: &mut Option<Admin>| {
        if let Some(admin) = admin {
            until("away", || !admin.connections().unwrap().is_empty());
        }
    };
    away(&mut admin);
    tell("away");
    let is_told = |name: &str| stage.work().join(name).exists();
    until("asked away", || is_told("asked-away"));
    if let Some(admin) = &mut admin {
        admin.recall_all().unwrap();
        until("home", || admin.connections().unwrap().is_empty());
    }
    tell("home");
    until("asked at home", || is_told("asked-home"));
    away(&mut admin);
    tell("again");
    let output = caller.finish(LIMIT).unwrap();
    assert_eq!(output.status, 0, "{output:?}");
    drop(server);
    if let Some(admin) = &mut admin {
        assert!(admin.moves().unwrap().joins >= 2, "it did not move twice");
    }
    stage.end().unwrap();
    output.out
}

#[test]
fn the_same_answers_away_as_at_home() {
    let Some([a, b]) = hosts() else { return };
    let slow = Conditions { delay: Duration::from_micros(1_500), ..Conditions::default() };
    let link = Link::through(&a, &b, 1500, 7, slow).unwrap();
    let plain = asks(&link, Accelerated::Neither);
    let carried = asks(&link, Accelerated::Client);
    let differ: Vec<_> =
        plain.lines().zip(carried.lines()).filter(|(plain, carried)| plain != carried).collect();
    assert!(differ.is_empty(), "(plain, carried): {differ:#?}");
    assert_eq!(plain.lines().count(), carried.lines().count(), "{carried}");
    assert!(!plain.contains("False") && !plain.contains("sound [F"), "{plain}");
}

/// Starts a caller that sends data there and back, under Sojourn with these settings.
fn bulk(link: &Link, settings: &[(&str, &str)]) -> (Stage, [Running; 2], Admin) {
    let mut stage = Stage::new(link, Accelerated::Client).unwrap();
    for (name, value) in settings {
        stage.worlds[1].set(name, value);
    }
    let server = role(&stage, End::A, "serve");
    stage.await_listener(link, stage.port).unwrap();
    let caller = role(&stage, End::B, "bulk");
    let admin = Admin::new(&stage.worlds[1]).unwrap();
    (stage, [server, caller], admin)
}

#[test]
fn figures_of_a_session_under_loss() {
    let Some([a, b]) = hosts() else { return };
    let delay = Duration::from_micros(1_500);
    let bad = Conditions { delay, loss: 0.02, ..Conditions::default() };
    let link = Link::through(&a, &b, 1500, 7, bad).unwrap();
    let (stage, [server, caller], mut admin) = bulk(&link, &[]);
    until("losses are told", || {
        let all = admin.connections().unwrap();
        all.iter().any(|one| one.retransmissions > 0 && one.loss_events > 0)
    });
    let told = admin.connections().unwrap().remove(0);
    assert!(told.state == 1 && told.mss == 1448 && told.cwnd >= 1, "{told:?}");
    assert!((2_000..400_000).contains(&told.srtt_us) && told.rttvar_us > 0, "{told:?}");
    assert!(told.snd_wnd > 1448 && told.rcv_wnd > 1448 && told.ssthresh < 100_000, "{told:?}");
    let sessions = stage.worlds[1].sessions().unwrap();
    let row = sessions["sessions"].as_array().unwrap().iter().find(|row| row["stream"].is_string());
    let row = row.unwrap();
    assert_eq!(row["connection"]["state"], "established", "{row}");
    assert!(row["connection"]["loss_events"].as_u64().unwrap() >= u64::from(told.loss_events));
    assert!(row["sent"].as_u64().unwrap() > 0 && row["received"].as_u64().unwrap() > 0, "{row}");
    let text = stage.worlds[1].sojourn(&["ss", "--details"]).unwrap();
    assert!(text.contains("established  windows "), "{text}");
    std::fs::write(stage.work().join("end"), "").unwrap();
    let output = caller.finish(LIMIT).unwrap().success("the caller").unwrap();
    assert_eq!(output, "retransmitted True, round-trip time True\n");
    drop(server);
    stage.end().unwrap();
}

/// Returns the name of the caller's only TCP session in the kernel.
fn name_in_kernel(world: &Sandbox, to: &str) -> Option<String> {
    let sessions = world.sessions().unwrap();
    let rows = sessions["sessions"].as_array().unwrap().iter();
    let mut found = rows.filter(|row| row["to"] == to && row["home"] == "kernel");
    found.find_map(|row| Some(format!("@{}", row["inode"].as_str()?)))
}

#[test]
fn sessions_are_moved_by_hand_under_load() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut stage = Stage::new(&link, Accelerated::Client).unwrap();
    stage.worlds[1].set("MOVE_AFTER_CALLS", "20000");
    stage.worlds[1].set("MOVE_AFTER_BYTES", "8G");
    let tell = |stage: &Stage, name| std::fs::write(stage.work().join(name), "").unwrap();
    let server = role(&stage, End::A, "serve");
    stage.await_listener(&link, stage.port).unwrap();
    let caller = role(&stage, End::B, "hand");
    let mut admin = Admin::new(&stage.worlds[1]).unwrap();
    until("its program is known", || admin.offers().unwrap() > 0);
    tell(&stage, "known");
    until("the second connection", || stage.work().join("second").exists());
    until("the first is gone", || admin.connections().unwrap().is_empty());
    for round in 0..4 {
        let to = format!("{}:{}", stage.address, stage.port);
        let name =
            name_in_kernel(&stage.worlds[1], &to).expect("the second connection is in the kernel");
        let output = stage.worlds[1].sojourn(&["move", &name, "library"]).unwrap();
        assert!(output.contains("is away from the kernel, as "), "{round}: {output}");
        until("it is carried", || !admin.connections().unwrap().is_empty());
        let stream = admin.connections().unwrap()[0].stream.to_string();
        let output = stage.worlds[1].sojourn(&["move", &stream, "kernel"]).unwrap();
        assert!(output.contains("on its way"), "{round}: {output}");
        until("it is home", || admin.connections().unwrap().is_empty());
    }
    assert!(stage.worlds[1].sojourn(&["move", "@1", "library"]).is_err(), "there is none");
    tell(&stage, "end");
    caller.finish(LIMIT).unwrap().success("the caller").unwrap();
    drop(server);
    stage.end().unwrap();
}

#[test]
fn a_connection_of_one_host_is_moved_by_hand() {
    let mut world = Sandbox::new().unwrap();
    world.set("MOVE_AFTER_CALLS", "20000");
    world.set("MOVE_AFTER_BYTES", "8G");
    let port = free_port("127.0.0.1").unwrap();
    let to = format!("127.0.0.1:{port}");
    let start = |role: &str| {
        let mut command = world.command(Mode::Sojourn, "python3");
        command.arg(programs().join("net/asks.py")).arg(role).current_dir(world.folder());
        command.env("ADDRESS", "127.0.0.1").env("PORT", port.to_string());
        Running::start(command).unwrap()
    };
    let tell = |name| std::fs::write(world.folder().join(name), "").unwrap();
    let _server = start("serve");
    until("somebody listens", || std::net::TcpStream::connect(&to).is_ok());
    let caller = start("hand");
    let mut admin = Admin::new(&world).unwrap();
    until("both are known", || admin.moves().unwrap().joins > 0);
    tell("known");
    until("the second connection", || world.folder().join("second").exists());
    until("the first is gone", || admin.away().unwrap().is_empty());
    for round in 0..3 {
        let name = name_in_kernel(&world, &to).expect("the second connection is in the kernel");
        let output = world.sojourn(&["move", &name, "library"]).unwrap();
        assert!(output.contains("is away from the kernel, as "), "{round}: {output}");
        let stream = admin.away().unwrap()[0].stream.to_string();
        world.sojourn(&["move", &stream, "kernel"]).unwrap();
        until("it is home", || admin.away().unwrap().is_empty());
    }
    tell("end");
    caller.finish(LIMIT).unwrap().success("the caller").unwrap();
}

/// Ends a [`bulk`] transfer, which must have found every byte right.
fn end(stage: Stage, [server, caller]: [Running; 2]) {
    std::fs::write(stage.work().join("end"), "").unwrap();
    caller.finish(LIMIT).unwrap().success("the caller").unwrap();
    drop(server);
    stage.end().unwrap();
}

#[test]
fn a_long_transfer_is_measured_in_the_kernel_once() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let (stage, running, mut admin) = bulk(&link, &[]);
    let returns = |reason: &str| {
        stage.worlds[1].stats().unwrap()["returns_by_reason"][reason].as_u64().unwrap_or(0)
    };
    until("there is a trial", || returns("trial") > 0);
    // Afterwards the session is away for longer than a trial takes to begin, or the trial showed
    // that it was slower away.
    until("the trial has shown something", || {
        admin.away().unwrap().iter().any(|one| one.age_ms > 7_000) || returns("slower") > 0
    });
    assert_eq!(returns("trial"), 1);
    assert!(admin.moves().unwrap().joins >= 2);
    end(stage, running);
}

#[test]
fn nothing_is_measured_if_that_is_switched_off() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let (stage, running, mut admin) = bulk(&link, &[("MEASURE_BULK", "off")]);
    until("it has been away for longer than a trial takes to begin", || {
        admin.away().unwrap().iter().any(|one| one.age_ms > 8_000)
    });
    assert_eq!(
        admin.moves().unwrap(),
        MoveCounts { joins: 1, returns: 0 },
        "it was home meanwhile"
    );
    end(stage, running);
}
