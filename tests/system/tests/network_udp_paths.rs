//! Tests of UDP beyond routers with a link of small MTU between them: a socket that is away gets
//! the same errors as the kernel's own, at the same calls, and longer datagrams arrive in the same
//! way (fragmentation and path MTU discovery, ip(7), `IP_MTU_DISCOVER`).
//!
//! One program runs plainly and under Sojourn; its output must be the same. Not here: TCP on such
//! paths (`network_routers.rs`), the MTU of the host's own interface (`network_udp.rs`). Needs root
//! and network namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::End;
use sojourn_session::{KindT, SessionInfoT};
use sojourn_system::LIMIT;
use sojourn_system::network::{Accelerated, Stage, await_bound, hosts};
use sojourn_system::row::Row;
use std::time::{Duration, Instant};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(30);
/// MTU of the link in the middle.
const NARROW: u32 = 1300;
/// Number of datagrams that a socket has received past the kernel before its case begins.
const USED: u64 = 5;

fn is_used(one: &SessionInfoT) -> bool {
    one.kind == KindT::Udp && one.datagrams_received >= USED
}

/// Prepares each case: the hosts forget path MTUs, and at each end under Sojourn a socket has to be
/// away. Returns the number of cases.
fn prepare(row: &Row, stage: &Stage, calls: &mut Running) -> u32 {
    let mut admins = stage.admins().unwrap();
    // Streams of sockets that were away before. The server uses one socket in all cases, so its
    // stream may be known.
    let mut known: Vec<u64> = Vec::new();
    let mut cases = 0;
    let deadline = Instant::now() + LIMIT;
    let asked = stage.end_file().with_extension("asked");
    while calls.is_running() {
        assert!(Instant::now() < deadline, "case {cases} does not end");
        std::thread::sleep(Duration::from_millis(2));
        let text = std::fs::read_to_string(&asked).unwrap_or_default();
        if text.parse() != Ok(cases + 1) {
            continue;
        }
        let deadline = Instant::now() + PATIENCE;
        for (admin, end) in admins.iter_mut().zip(stage.ends_under()) {
            let is_it = |one: &SessionInfoT| {
                is_used(one) && (end == End::A || !known.contains(&one.stream))
            };
            while !admin.away().unwrap().iter().any(is_it) {
                assert!(Instant::now() < deadline, "no socket is away: {:?}", admin.away());
                std::thread::sleep(Duration::from_millis(2));
            }
            known.extend(admin.away().unwrap().iter().map(|one| one.stream));
        }
        row.forget().unwrap();
        cases += 1;
        std::fs::write(stage.end_file().with_extension(cases.to_string()), "").unwrap();
    }
    cases
}

/// Runs the cases; returns their output, and their number.
fn cases(row: &Row, accelerated: Accelerated, is_v4: bool) -> (String, u32) {
    let hosts = row.ends.each_ref();
    let mut stage = Stage::between(hosts, &row.address(is_v4).to_string(), accelerated).unwrap();
    stage.worlds.iter_mut().for_each(|world| world.set("SPIN", "never"));
    let port = stage.port.to_string();
    let start = |end, role: &str| {
        let mut command = stage.command(end, "python3");
        command.arg(stage.programs().join("net/udp_paths.py")).args([
            role,
            &*stage.address,
            &*port,
        ]);
        Running::start(command).unwrap()
    };
    let serves = start(End::A, "serve");
    await_bound(hosts[0], stage.port).unwrap();
    let mut calls = start(End::B, "call");
    let count = prepare(row, &stage, &mut calls);
    let called = calls.finish(LIMIT).unwrap();
    std::fs::write(stage.end_file(), "").unwrap();
    let served = serves.finish(LIMIT).unwrap();
    assert_eq!((called.status, served.status), (0, 0), "{accelerated:?}: {called:#?} {served:#?}");
    stage.end().unwrap();
    (called.out, count)
}

fn same(is_v4: bool, ways: &[Accelerated]) {
    let Some([a, b]) = hosts() else { return };
    let row = Row::new(a, b, NARROW).unwrap();
    let plain = cases(&row, Accelerated::Neither, is_v4);
    assert!(plain.0.lines().count() >= 15 && plain.1 >= 8, "{plain:?}");
    for accelerated in ways {
        assert_eq!(cases(&row, *accelerated, is_v4), plain, "{accelerated:?}");
    }
}

#[test]
fn as_the_kernel_over_ipv4() {
    same(true, &[Accelerated::Client, Accelerated::Server]);
}

#[test]
fn as_the_kernel_over_ipv6() {
    same(false, &[Accelerated::Both]);
}
