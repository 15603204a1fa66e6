//! Tests of hosts with routers between them, and a link beyond the first router with a small MTU,
//! of which the sender learns only by ICMP (path MTU discovery, RFC 1191 and RFC 8201). Every byte
//! is checked, and the session must stay away meanwhile.
//!
//! Not here: the MTU of the sender's own interface, which rtnetlink reports (`network_events.rs`).
//! Needs rights over networks; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::End;
use sojourn_session::SessionInfoT;
use sojourn_system::network::{Accelerated, Stage, hosts};
use sojourn_system::row::Row;
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// Longest wait for any condition: shorter than the time after which a sender without answers gives
/// up.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that have to go each way over the narrow link.
const MUCH: u64 = 4 << 20;
/// MTU of the link in the middle, once it is narrow.
const NARROW: u32 = 1300;

/// A transfer in both directions that goes on until it is told to end.
struct Transfer {
    stage: Stage,
    peers: Vec<Running>,
    admins: Vec<Admin>,
}

impl Transfer {
    fn start(row: &Row, accelerated: Accelerated, is_v4: bool) -> Self {
        let address = row.address(is_v4);
        let hosts = row.ends.each_ref();
        let mut stage = Stage::between(hosts, &address.to_string(), accelerated).unwrap();
        for world in &mut stage.worlds {
            // Without this the session could go home because it is slower away.
            world.set("MEASURE_BULK", "off");
        }
        let address = std::net::SocketAddr::new(address, stage.port).to_string();
        let end = stage.end_file().to_string_lossy().into_owned();
        let peer = stage.worlds[0].built().path("lab-peer").to_string_lossy().into_owned();
        let start = |end_of: End, role: &str| {
            let mut command = stage.command(end_of, &peer);
            command.args([role, "tcp", &address, "--way", "blocking", "--until", &end]);
            Running::start(command).unwrap()
        };
        let peers = vec![start(End::A, "serve"), start(End::B, "call")];
        let admins = stage.admins().unwrap();
        Self { stage, peers, admins }
    }

    /// Returns the sessions that are away, one for each end under Sojourn; `None` unless all are
    /// away.
    fn away(&mut self) -> Option<Vec<SessionInfoT>> {
        let away = |admin: &mut Admin| admin.away().unwrap().pop();
        self.admins.iter_mut().map(away).collect()
    }

    #[track_caller]
    fn wait_for(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            let is_running = self.peers.iter_mut().all(Running::is_running);
            if !is_running || Instant::now() > deadline {
                let numbers: Vec<_> =
                    self.admins.iter_mut().map(|admin| admin.connections().unwrap()).collect();
                let away = self.away();
                panic!("not in time: {what}; peers run: {is_running}; {away:?} {numbers:?}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until every session is away and has transferred bytes there.
    fn wait_until_away(&mut self) -> Vec<SessionInfoT> {
        let has_moved = |one: &SessionInfoT| one.sent > 100_000 && one.received > 100_000;
        self.wait_for("away", |it| it.away().is_some_and(|away| away.iter().all(has_moved)));
        self.away().unwrap()
    }

    /// Waits until `MUCH` bytes have gone each way; no session may move meanwhile.
    fn wait_for_much(&mut self, before: &[SessionInfoT]) {
        self.wait_for("much goes both ways", |it| {
            let now = it.away().unwrap_or_default();
            assert_eq!(now.len(), before.len(), "a session has gone home");
            now.iter().zip(before).all(|(now, before)| {
                assert_eq!(now.stream, before.stream, "a session has moved");
                now.sent >= before.sent + MUCH && now.received >= before.received + MUCH
            })
        });
    }

    /// Waits until full segments fit the narrow link, in the numbers that programs publish.
    fn wait_for_narrow(&mut self, is_v4: bool) {
        let most = NARROW - if is_v4 { 40 } else { 60 };
        self.wait_for("segments are short", |it| {
            let told = it.admins.iter_mut().flat_map(|admin| admin.connections().unwrap());
            told.map(|one| one.mss).all(|mss| mss <= most)
        });
    }

    /// Ends the transfer; all bytes that were sent must have arrived.
    fn finish(self) {
        std::fs::write(self.stage.end_file(), "").unwrap();
        let output: Vec<_> = self
            .peers
            .into_iter()
            .map(|peer| peer.finish(LIMIT).unwrap().success("a peer"))
            .collect();
        let warnings = self.stage.end();
        let is_well = output.iter().all(Result::is_ok) && warnings.is_ok();
        assert!(is_well, "{output:?} {warnings:?}");
    }
}

const SIDES: [Accelerated; 3] = [Accelerated::Server, Accelerated::Client, Accelerated::Both];

fn a_link_becomes_narrow(is_v4: bool) {
    let Some([a, b]) = hosts() else { return };
    let row = Row::new(a, b, 1500).unwrap();
    for accelerated in SIDES {
        row.links[1].set_mtu(1500).unwrap();
        row.forget().unwrap();
        let mut transfer = Transfer::start(&row, accelerated, is_v4);
        transfer.wait_until_away();
        row.links[1].set_mtu(NARROW).unwrap();
        let before = transfer.away().unwrap();
        transfer.wait_for_much(&before);
        transfer.wait_for_narrow(is_v4);
        transfer.finish();
    }
}

#[test]
fn a_link_beyond_a_router_becomes_narrow() {
    a_link_becomes_narrow(true);
}

#[test]
fn a_link_beyond_a_router_becomes_narrow_ipv6() {
    a_link_becomes_narrow(false);
}

#[test]
fn a_link_beyond_a_router_is_narrow() {
    let Some([a, b]) = hosts() else { return };
    let row = Row::new(a, b, NARROW).unwrap();
    for (accelerated, is_v4) in
        SIDES.into_iter().flat_map(|accelerated| [(accelerated, true), (accelerated, false)])
    {
        row.forget().unwrap();
        let mut transfer = Transfer::start(&row, accelerated, is_v4);
        let before = transfer.wait_until_away();
        transfer.wait_for_much(&before);
        transfer.wait_for_narrow(is_v4);
        transfer.finish();
    }
}

/// Tests a link with so small an MTU that packets have to be fragmented on the way, which only the
/// kernel allows. The session goes home and stays there.
#[test]
fn a_link_beyond_a_router_becomes_too_narrow() {
    let Some([a, b]) = hosts() else { return };
    let row = Row::new(a, b, 1500).unwrap();
    let mut transfer = Transfer::start(&row, Accelerated::Client, true);
    let before = transfer.wait_until_away()[0].stream;
    row.links[1].set_mtu(400).unwrap();
    transfer.wait_for("at home", |it| it.away().is_none());
    let target = row.address(true).to_string();
    transfer.wait_for("the kernel has heard", |_| {
        row.ends[1].ip(&["route", "get", &target]).unwrap().contains("lock 552")
    });
    std::thread::sleep(Duration::from_secs(2));
    assert!(transfer.away().is_none(), "not the session {before} again, nor another");
    transfer.finish();
}
