//! `kill -9` of either program and of the server at every labelled step of a move and of a stream's
//! life (`sojourn_shm::fault`), for TCP, Unix sockets and pipes.
//!
//! Two processes with the library talk, a real server beside them, sessions go out and home all the
//! time, and one of the three dies at a label. The survivor must see what the kernel would have
//! shown: all that was sent, then the end, or a reset where bytes were left unread. Nothing may be
//! left behind. A new server takes over what lives.
//!
//! The processes are this very test program, run again with a role (`program`). The labels are in
//! debug builds only. Not here: deaths within the IPC (`crates/ipc/tests/death.rs`).
//! `DEATHS_ONLY=WORD` runs the cases whose name has the word.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]
#![allow(unsafe_code, reason = "plain numbers of descriptors")]

mod cases;
mod program;
mod record;
#[path = "../shell/mod.rs"]
mod shell;
mod world;

use cases::{Case, Victim, server_dies};
use world::World;

/// Where a program dies: the label, and after a colon how often it passes before.
const POINTS: [&str; 22] = [
    "library.offer",
    "library.offered",
    "library.join",
    "library.joined",
    "library.joined:2",
    "library.left",
    "stream.consented",
    "stream.started",
    "stream.copied",
    "stream.copied:20",
    "stream.published",
    "stream.published:31",
    "stream.taken",
    "stream.read",
    "stream.read:25",
    "stream.consumed",
    "stream.sleeps",
    "stream.full",
    "stream.freezing",
    "stream.frozen",
    "stream.flushing",
    "stream.flushed",
];

/// As [`POINTS`], where both sides wait for many: only then are inboxes rung.
const POINTS_OF_MANY: [&str; 13] = [
    "library.join",
    "library.joined",
    "stream.consented",
    "stream.started",
    "stream.published",
    "stream.taken",
    "stream.posted",
    "stream.ringing",
    "stream.ringing:3",
    "stream.attention",
    "stream.freezing",
    "stream.frozen",
    "stream.flushed",
];

const SERVER_POINTS: [&str; 9] = [
    "sojournd.offer",
    "sojournd.offered",
    "sojournd.offered:1",
    "sojournd.region",
    "sojournd.join",
    "sojournd.join:1",
    "sojournd.left",
    "sojournd.left:1",
    "sojournd.recall",
];

/// All cases of one kind of session, one after the other.
fn run_kind(kind: &'static str) -> usize {
    let only = std::env::var("DEATHS_ONLY").unwrap_or_default();
    let mut world = World::new(kind);
    let mut count = 0;
    let many = &POINTS_OF_MANY[..];
    for (points, wait) in [(&POINTS[..], "one"), (many, "poll"), (many, "epoll")] {
        for (point, victim) in
            points.iter().flat_map(|point| [(point, Victim::Asks), (point, Victim::Answers)])
        {
            let case = Case { kind, point, victim, wait };
            if case.name().contains(&only) {
                case.run(&mut world);
                count += 1;
            }
        }
    }
    world.assert_as_before();
    for point in SERVER_POINTS {
        if format!("{kind} {point}").contains(&only) {
            server_dies(&mut world, point);
            count += 1;
        }
    }
    if format!("{kind} delayed").contains(&only) {
        // One program tells the server that its session has come home, and the server dies over
        // that. The other program's session has come home, too, and become hot again before that
        // program's thread looks. The next server must not hear of the old stream from it.
        world.delays = "library.sleep,library.job";
        server_dies(&mut world, "sojournd.left");
        count += 1;
    }
    world.end();
    count
}

fn main() {
    if let Ok(role) = std::env::var(program::ROLE) {
        return program::play(&role);
    }
    if !cfg!(debug_assertions) {
        println!("skipped: fault points are in debug builds only");
        return;
    }
    // A session (setsid(2)) with a process that may not be inspected is not trusted with inherited
    // descriptors, so the test runs in one of its own. An error means that it leads one already.
    let _ = rustix::process::setsid();
    let threads = ["tcp", "unix", "pipe"].map(|kind| std::thread::spawn(move || run_kind(kind)));
    let results = threads.map(std::thread::JoinHandle::join);
    let passed: usize = results.iter().flatten().sum();
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert_eq!(failed, 0, "{failed} kinds failed, {passed} cases passed");
    println!("test result: ok. {passed} passed; 0 failed");
}
