//! Two ends, a link each way, and a clock that jumps to the next event.

use sojourn_proto::record::{TcpRecord, TcpState};
use sojourn_proto::tcp::Limits;
use sojourn_proto::time::{Duration, Instant};

use crate::host::{Host, Program};
use crate::link::{Conditions, Link};

/// The time at which every simulation begins.
pub(crate) const BEGIN: Instant = Instant::from_millis(1_000_000);
/// The number of events at one point in time that counts as an endless loop.
const EVENTS_AT_ONCE: u32 = 100_000;

/// Two ends and the links between them.
#[derive(Debug)]
pub(crate) struct World {
    /// The current time.
    pub(crate) now: Instant,
    /// The ends.
    pub(crate) hosts: [Host; 2],
    /// The link from each end to the other.
    pub(crate) links: [Link; 2],
    /// The moves of sessions in order of time: time and end.
    pub(crate) moves: Vec<(Instant, usize)>,
    /// The changes of the path: time and MTU.
    pub(crate) narrowings: Vec<(Instant, u64)>,
    /// The messages of routers to the ends: time, end, and MTU.
    told: Vec<(Instant, usize, u64)>,
    events: u32,
}

/// The beginning of a simulation.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// The records; `matched` makes their sequence numbers agree.
    pub(crate) tcp: [TcpRecord; 2],
    /// The programs.
    pub(crate) programs: [Program; 2],
    /// Memory and offload.
    pub(crate) limits: Limits,
    /// Links from end 0 and from end 1.
    pub(crate) conditions: [Conditions; 2],
    /// The seed of all random choices.
    pub(crate) seed: u64,
}

impl World {
    /// Creates a simulation from its setup.
    pub(crate) fn new(setup: Setup) -> World {
        let Setup { tcp: [first, second], programs, limits, conditions, seed } = setup;
        let [first, second] = matched(first, second);
        World {
            now: BEGIN,
            hosts: [
                Host::new(0, first, programs[0], limits, BEGIN),
                Host::new(1, second, programs[1], limits, BEGIN),
            ],
            links: [Link::new(conditions[0], seed), Link::new(conditions[1], !seed)],
            moves: Vec::new(),
            narrowings: Vec::new(),
            told: Vec::new(),
            events: 0,
        }
    }

    /// Runs until `done` returns true or until the time is `limit`. Returns true if `done` did.
    pub(crate) fn run(&mut self, limit: Instant, mut done: impl FnMut(&World) -> bool) -> bool {
        loop {
            self.output();
            if done(self) {
                return true;
            }
            let Some(next) = self.next_event() else { return false };
            if next > limit {
                self.now = limit;
                return false;
            }
            self.events = if next > self.now { 0 } else { self.events + 1 };
            assert!(self.events < EVENTS_AT_ONCE, "it goes on for ever at one point in time");
            self.now = self.now.max(next);
            self.step();
        }
    }

    fn next_event(&self) -> Option<Instant> {
        let hosts = self.hosts.iter().filter_map(Host::next_event);
        let links = self.links.iter().filter_map(Link::next_arrival);
        let moves = self.moves.first().map(|event| event.0);
        let narrowings = self.narrowings.first().map(|event| event.0);
        let told = self.told.iter().map(|event| event.0).min();
        hosts.chain(links).chain(moves).chain(narrowings).chain(told).min()
    }

    fn step(&mut self) {
        let now = self.now;
        while self.moves.first().is_some_and(|event| event.0 <= now) {
            let (_, end) = self.moves.remove(0);
            self.hosts[end].move_session(now);
        }
        while self.narrowings.first().is_some_and(|event| event.0 <= now) {
            let (_, mtu) = self.narrowings.remove(0);
            self.links.iter_mut().for_each(|link| link.conditions.mtu = mtu);
        }
        while let Some(at) = self.told.iter().position(|event| event.0 <= now) {
            let (_, end, mtu) = self.told.remove(at);
            self.hosts[end].connection.set_path_mtu(now, mtu as u32, true);
        }
        for end in 0..2 {
            if let Some(frame) = self.links[1 - end].arrived(now) {
                self.hosts[end].receive(now, &frame);
            }
            self.hosts[end].act(now);
        }
    }

    /// Puts all segments that may be sent on the links.
    fn output(&mut self) {
        let mut frames = Vec::new();
        for end in 0..2 {
            self.hosts[end].transmit(self.now, &mut frames);
            check(&self.hosts[end]);
            for frame in frames.drain(..) {
                if let Some(mtu) = self.links[end].send(self.now, frame) {
                    let at = self.now + self.links[end].conditions.delay;
                    self.told.push((at, end, mtu));
                }
            }
        }
    }

    /// Returns true if each program has read all bytes of the other, and the end of the stream.
    pub(crate) fn is_complete(&self) -> bool {
        let [first, second] = &self.hosts;
        first.read == second.program.to_write
            && second.read == first.program.to_write
            && first.finished
            && second.finished
    }

    /// Returns true if both connections are also closed in order.
    pub(crate) fn is_over(&self) -> bool {
        let over =
            |host: &Host| matches!(host.connection.state(), TcpState::Closed | TcpState::TimeWait);
        self.is_complete() && self.hosts.iter().all(over)
    }

    /// Returns the time since the beginning.
    pub(crate) fn elapsed(&self) -> Duration {
        self.now.since(BEGIN)
    }
}

/// Checks the invariants of a connection after every output.
fn check(host: &Host) {
    let recovery = host.connection.recovery();
    let board = recovery.scoreboard();
    let marked = board.sacked() + board.lost();
    assert!(marked <= board.outstanding(), "more is marked than is outstanding");
    assert!(recovery.in_flight() <= board.outstanding());
    let over = host.connection.state() == TcpState::Closed;
    if board.outstanding() > 0 && !over {
        assert!(host.connection.next_timeout().is_some(), "outstanding, and nothing wakes it up");
    }
}

/// Makes two records agree on sequence numbers, windows and options.
fn matched(mut first: TcpRecord, mut second: TcpRecord) -> [TcpRecord; 2] {
    let before = first.clone();
    match_one(&mut first, &second);
    match_one(&mut second, &before);
    [first, second]
}

fn match_one(one: &mut TcpRecord, other: &TcpRecord) {
    one.snd_nxt = one.snd_una;
    one.snd_wl2 = one.snd_una;
    (one.rcv_nxt, one.rcv_wup, one.snd_wl1) = (other.snd_una, other.snd_una, other.snd_una);
    one.snd_wnd = other.rcv_wnd;
    one.max_window = other.rcv_wnd;
    one.snd_wscale = other.rcv_wscale;
    one.window_scaling = true;
    if let (Some(stamps), Some(theirs)) = (&mut one.timestamps, other.timestamps) {
        stamps.recent = theirs.value;
    }
}
