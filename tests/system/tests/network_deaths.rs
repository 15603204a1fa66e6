//! The carrier is killed at some of its system calls while a session with another host goes home
//! and out again. The session goes on, and not a byte of it is lost.
//!
//! `strace` kills it: at the first call of a kind, at a later one, and so on until there are fewer.
//! The server's parent starts the next carrier. Not here: deaths between moves
//! (`network_server`), who only waits (`network_survivors`), and a connection that is put back by
//! itself (`crates/carrier/tests/deaths.rs`). Needs rights over networks; skipped with a message
//! otherwise. `DEATHS_ONLY=WORD` runs the kinds of calls with the word, `DEATHS_FROM=NUMBER`
//! begins with that call, and `DEATHS_STEP=1` tries every one.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Sandbox;
use sojourn_lab::net::{End, Link};
use sojourn_system::Admin;
use sojourn_system::network::{Accelerated, Stage, hosts};
use sojourn_system::transfer::{Form, Transfer, wait_for};
use std::process::{Child, Command, Stdio};

/// The calls by which the carrier changes something outside itself, by kinds that are counted one
/// by one.
const KINDS: [&str; 4] = ["setsockopt", "bpf", "sendmsg", "connect,bind"];
/// Deaths after which the server is another one: a parent gives up whose children end again and
/// again.
const FEW: u32 = 3;
/// One call of so many is tried.
const STEP: u32 = 4;
/// More calls of a kind than a return and a move out take.
const CALLS_MAX: u32 = 200;

/// A carrier that is about to be killed.
struct Doomed {
    pid: u32,
    strace: Child,
}

impl Doomed {
    /// Kills the carrier of a sandbox at the call of that number in one of its threads.
    fn new(world: &Sandbox, kind: &str, number: u32) -> Self {
        let pid = wait_for("a carrier", || world.server_part("carrier"));
        let rule = format!("inject={kind}:signal=KILL:when={number}");
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", &rule, "-p", &pid.to_string()]);
        let strace = command.stdin(Stdio::null()).spawn().unwrap();
        let is_traced = |task: std::fs::DirEntry| {
            let status = std::fs::read_to_string(task.path().join("status")).unwrap_or_default();
            !status.contains("TracerPid:\t0\n")
        };
        wait_for("strace", || {
            let mut tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
            tasks.all(|task| is_traced(task.unwrap())).then_some(())
        });
        Self { pid, strace }
    }

    fn has_died(&self, world: &Sandbox) -> bool {
        world.server_part("carrier") != Some(self.pid)
    }
}

impl Drop for Doomed {
    fn drop(&mut self) {
        // An strace that ends lets go of whom it traces.
        let strace = rustix::process::Pid::from_child(&self.strace);
        let _ = rustix::process::kill_process(strace, rustix::process::Signal::TERM);
        let _ = self.strace.wait();
    }
}

/// Sends the session home and waits until it is away again, with the carrier killed at one call.
/// Returns true if there were so many calls.
fn dies_at(transfer: &mut Transfer<'_>, kind: &str, number: u32) -> bool {
    let stream = transfer.await_away();
    let doomed = Doomed::new(transfer.world(), kind, number);
    // The server's processes may be others by the time of its answer.
    let _ = Admin::new(transfer.world()).unwrap().recall_all();
    transfer.await_that(&format!("a way home, {kind} {number}"), |world| {
        let away = Admin::new(world).and_then(|mut admin| admin.away()).ok()?;
        away.iter().all(|session| session.stream != stream).then_some(())
    });
    transfer.await_progress(&format!("bytes on the way home and after it, {kind} {number}"));
    transfer.await_away();
    doomed.has_died(transfer.world())
}

/// Kills carriers at some calls of a kind, from the first on.
fn die_at_each(link: &Link, end: End, kind: &str) {
    let accelerated = if end == End::A { Accelerated::Server } else { Accelerated::Client };
    let way = if end == End::A { "blocking" } else { "epoll" };
    let mut stage = Stage::new(link, accelerated).unwrap();
    stage.worlds[end as usize].set("MOVE_AFTER_CALLS", "0");
    let mut transfer = Transfer::on(stage, link, end, Form { is_v6: false, way });
    let mut deaths = 0;
    let chosen = |name: &str, usual| std::env::var(name).map_or(usual, |it| it.parse().unwrap());
    let step = chosen("DEATHS_STEP", STEP);
    for number in (chosen("DEATHS_FROM", 1)..CALLS_MAX).step_by(step as usize) {
        if !dies_at(&mut transfer, kind, number) {
            break;
        }
        deaths += 1;
        if deaths % FEW == 0 {
            transfer.kill_server();
            transfer.start_server();
        }
    }
    println!("{end:?} {kind}: {deaths} deaths");
    transfer.finish_with(|output| output.contains("started anew"));
}

#[test]
fn a_session_outlives_the_carrier_whenever_that_dies() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for (at, kind) in KINDS.into_iter().enumerate() {
        if std::env::var("DEATHS_ONLY").is_ok_and(|word| !kind.contains(&word)) {
            continue;
        }
        // The one end accepts connections and the other makes them: both kinds of sockets die.
        die_at_each(&link, if at % 2 == 0 { End::A } else { End::B }, kind);
    }
}
