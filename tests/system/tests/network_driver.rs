//! Sessions whose packets come and go by `sojourn-driver` (`sojournd --network=driver`): by
//! messages and by memory, in the library and in the protocol server, recalled again and again, and
//! with the driver killed.
//!
//! The peer on the other host is a plain kernel, and both ends check every byte. Needs root and
//! network namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use sojourn_lab::net::{End, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::{hosts, next_port};
use sojourn_system::{Admin, LIMIT, MoveCounts};
use std::time::{Duration, Instant};

/// Longest time for the moves.
const PATIENCE: Duration = Duration::from_secs(20);

/// What disturbs the sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    /// They are recalled.
    Recalls,
    /// The driver is killed once a session is away, again and again.
    Kills,
}

/// Returns the driver of a session server, if it runs.
fn driver(world: &Sandbox) -> Option<Pid> {
    world.server_pids().into_iter().find_map(|server| {
        let tasks = std::fs::read_dir(format!("/proc/{server}/task")).ok()?;
        let lists = tasks.flatten().map(|task| task.path().join("children"));
        let children: String = lists.flat_map(std::fs::read_to_string).collect();
        let pids = children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
        let is_driver = |pid: &i32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == "sojourn-driver"
        };
        let found: Vec<i32> = pids.filter(is_driver).collect();
        // The last one: those before it are dead.
        found.last().and_then(|pid| Pid::from_raw(*pid))
    })
}

fn play(by_memory: bool, is_served: bool, trouble: Trouble) {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut world = Sandbox::with_driver(link.host(End::A), by_memory).unwrap();
    world.set("MOVE_AFTER_CALLS", "4");
    if is_served {
        world.set("HOME", "server");
    }
    let what = format!("by memory: {by_memory}, in the server: {is_served}, {trouble:?}");
    let end = world.folder().join("end").to_string_lossy().into_owned();
    let address = format!("{}:{}", link.v4(End::A), next_port());
    let peer = world.built().path("lab-peer");
    let words = ["tcp", &address, "--way", "poll", "--until", &end];
    let mut near = world.command(Mode::Sojourn, &peer);
    near.arg("serve").args(words);
    let mut far = std::process::Command::new(&peer);
    far.arg("call").args(words);
    link.host(End::B).place(&mut far);
    let mut running = [near, far].map(|command| Running::start(command).unwrap());
    let mut admin = Admin::new(&world).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let (mut now, mut kills, mut last) = (admin.moves().unwrap(), 0, None);
    let enough = |now: MoveCounts, kills: u32| match trouble {
        Trouble::Recalls => now.joins >= 5,
        Trouble::Kills => kills >= 2 && now.joins >= 3,
    };
    while !enough(now, kills) && Instant::now() < deadline {
        if !running.iter_mut().all(|peer| peer.is_running()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
        now = admin.moves().unwrap();
        let found = driver(&world);
        match trouble {
            Trouble::Recalls => drop(admin.recall_all().unwrap()),
            // Of one that is killed before it is handed the session's packet socket another driver
            // takes the place, for the same move.
            Trouble::Kills if found.is_some() && found != last && now.is_any_away() => {
                kill_process(found.unwrap(), Signal::KILL).unwrap();
                (kills, last) = (kills + 1, found);
            }
            Trouble::Kills => {}
        }
    }
    std::fs::write(&end, "").unwrap();
    let ended = running.map(|peer| peer.finish(LIMIT).unwrap());
    assert!(ended.iter().all(|peer| peer.status == 0), "{what}: {ended:#?}");
    assert!(enough(now, kills), "{what}: {now:?}, {kills} kills");
}

#[test]
fn sessions_go_out_and_home_by_messages_and_by_memory() {
    // Each way and each home once.
    for (by_memory, is_served) in [(false, false), (true, true)] {
        play(by_memory, is_served, Trouble::Recalls);
    }
}

#[test]
fn a_killed_driver_sends_its_sessions_home_and_the_next_one_has_them() {
    for is_served in [false, true] {
        play(false, is_served, Trouble::Kills);
    }
}
