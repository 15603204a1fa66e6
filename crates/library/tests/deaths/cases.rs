//! The cases: the process that dies, the place where it dies, and the view that the others must
//! have.

use crate::record::{Numbers, end};
use crate::world::{Pair, World, until};
use sojourn_session::SessionInfoT;
use std::time::{Duration, Instant};

/// How soon a survivor has noticed. (A machine full of other work takes its time.)
const SOON: Duration = Duration::from_secs(30);

/// Which program dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Victim {
    Asks,
    Answers,
}

/// A program dies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) kind: &'static str,
    pub(crate) point: &'static str,
    pub(crate) victim: Victim,
    /// `one`, `poll` or `epoll`: how both wait.
    pub(crate) wait: &'static str,
}

impl Case {
    pub(crate) fn name(&self) -> String {
        let Self { kind, point, victim, wait } = self;
        format!("{kind} {point} {victim:?} {wait}")
    }

    pub(crate) fn run(&self, world: &mut World) {
        let name = self.name();
        let is_asker = self.victim == Victim::Asks;
        let points = if is_asker { [Some(self.point), None] } else { [None, Some(self.point)] };
        let Pair { mut asks, mut answers } = world.start_pair(self.wait, points);
        let (victim, survivor) =
            if is_asker { (&mut asks, &mut answers) } else { (&mut answers, &mut asks) };
        let signal = victim.wait(&format!("{name}: the point is passed"));
        assert_eq!(signal, 9, "{name}: not killed, or by something else");
        let died = Instant::now();
        assert_eq!(survivor.wait(&format!("{name}: the survivor ends")), 0, "{name}");
        assert!(died.elapsed() < SOON, "{name}: {:?}", died.elapsed());
        let [dead, alive] = if is_asker { ["asks", "answers"] } else { ["answers", "asks"] };
        self.check(world.record(dead), world.record(alive));
    }

    /// Checks that the survivor saw the same as with the kernel alone.
    fn check(&self, dead: Numbers, alive: Numbers) {
        let said = format!("{}\ndead: {dead:?}\nalive: {alive:?}", self.name());
        assert!(alive.got >= dead.sent, "bytes that were sent are lost: {said}");
        assert!(alive.got <= dead.begun, "bytes that were never sent: {said}");
        assert_eq!(alive.is_tidy, 1, "{said}");
        assert_ne!(alive.end & (end::OF_FILE | end::RESET), 0, "no end: {said}");
        if alive.begun == dead.got || self.kind == "pipe" {
            assert_eq!(alive.end & end::RESET, 0, "a reset, though nothing was unread: {said}");
        } else if self.point.starts_with("stream.read") && alive.begun == alive.sent {
            // At that point it has something to read. (Elsewhere we may have sent after its death;
            // and a call that has sent a part tells that, not the reset.)
            assert_ne!(alive.end & end::RESET, 0, "no reset, though bytes were unread: {said}");
        }
    }
}

/// The server dies; the programs do not notice, and the next server takes over.
pub(crate) fn server_dies(world: &mut World, point: &str) {
    let name = format!("{} {point}", world.kind);
    world.kill_server();
    world.start_server(Some(point));
    let Pair { mut asks, mut answers } = world.start_pair("one", [None, None]);
    if point.starts_with("sojournd.recall") || !world.delays.is_empty() {
        // It also dies if one of the programs goes home first, and the other is told so.
        let is_delayed = !world.delays.is_empty();
        until(&format!("{name}: away"), || {
            let ends = world.away();
            // A delayed program learns of the join late.
            let sends = |end: &SessionInfoT| !is_delayed || end.sent > 0;
            !ends.is_empty() && ends.iter().all(sends) || world.server_has_died()
        });
        let stream = world.away().first().map(|end| end.stream);
        // It dies over that.
        if let (Some(stream), Some(mut admin)) = (stream, world.try_admin()) {
            let _ = admin.recall_stream(stream);
        }
    }
    world.await_servers_death(&name);
    world.start_server(None);
    let before = world.record("asks").got;
    until(&format!("{name}: the new server knows both sides"), || {
        let ends = world.away();
        [asks.0.id(), answers.0.id()].iter().all(|pid| ends.iter().any(|end| end.pid == *pid))
    });
    until(&format!("{name}: they go on"), || world.record("asks").got > before + 1_000_000);
    world.stop_talking();
    for process in [&mut asks, &mut answers] {
        assert_eq!(process.wait(&name), 0, "{name}");
    }
    let [a, b] = ["asks", "answers"].map(|who| world.record(who));
    assert_eq!((a.sent, b.sent, b.end), (b.got, a.got, end::OF_FILE), "{name}: {a:?} {b:?}");
    assert_eq!((a.is_tidy, b.is_tidy), (1, 1), "{name}");
    world.assert_as_before();
}
