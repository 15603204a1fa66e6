//! Tests of remote sessions while they move out and home: one end is under Sojourn, or both; the
//! other is a plain kernel.
//!
//! The peers check every byte. A test also fails if nothing moved, because then it has shown
//! nothing. Needs root and network namespaces; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{Conditions, End, Host, Link};
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::network::hosts;
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// The ends that are under Sojourn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accelerated {
    Server,
    Client,
    Both,
}

/// The parameters of a test.
#[derive(Clone, Copy, Debug)]
struct Plan<'p> {
    is_v6: bool,
    accelerated: Accelerated,
    way: &'p str,
    options: &'p [&'p str],
    /// Number of streams before the transfer may end.
    moves: u64,
    /// True if sessions are recalled again and again.
    recalls: bool,
    /// True if packet sockets have mapped rings.
    has_rings: bool,
}

/// Longest time for the moves.
const PATIENCE: Duration = Duration::from_secs(20);
const PORT: u16 = 4000;

fn play(link: &Link, plan: Plan<'_>) {
    let [a, b] = [End::A, End::B].map(|end| link.host(end));
    let open = if plan.has_rings { Sandbox::on } else { Sandbox::with_messages };
    let mut worlds = [a, b].map(|host| open(host).unwrap());
    for world in &mut worlds {
        world.set("MOVE_AFTER_CALLS", "4");
    }
    let end = worlds[0].folder().join("end").to_string_lossy().into_owned();
    let address = if plan.is_v6 {
        format!("[{}]:{PORT}", link.v6(End::A))
    } else {
        format!("{}:{PORT}", link.v4(End::A))
    };
    let start = |world: &Sandbox, role: &str, is_under: bool| {
        let mode = if is_under { Mode::Sojourn } else { Mode::Plain };
        let peer = world.built().path("lab-peer");
        let mut command = world.command(mode, peer);
        command.args([role, "tcp", &address, "--way", plan.way]).args(plan.options);
        command.args(["--until", &end]);
        Running::start(command).unwrap()
    };
    let mut running = [
        start(&worlds[0], "serve", plan.accelerated != Accelerated::Client),
        start(&worlds[1], "call", plan.accelerated != Accelerated::Server),
    ];
    let watched = usize::from(plan.accelerated == Accelerated::Client);
    let mut admin = Admin::new(&worlds[watched]).unwrap();
    let begun = Instant::now();
    let deadline = begun + PATIENCE;
    let mut moves = 0;
    while moves < plan.moves && Instant::now() < deadline {
        let alive = running.iter_mut().all(|peer| peer.is_running());
        if !alive {
            break;
        }
        if plan.recalls {
            admin.recall_all().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
        moves = admin.moves().unwrap().joins;
    }
    std::fs::write(&end, "").unwrap();
    // Both ends are collected before either is judged, because the failure of one may be caused by
    // the other's.
    let ended = running.map(|peer| peer.finish(LIMIT).unwrap());
    let is_well = ended.iter().all(|peer| peer.status == 0);
    assert!(is_well, "{plan:?}: {ended:#?}");
    println!("{plan:?}: {moves} moves, {:?}", begun.elapsed());
    assert!(moves >= plan.moves, "{plan:?}: only {moves} moves");
}

const PLAIN: Plan<'_> = Plan {
    is_v6: false,
    accelerated: Accelerated::Server,
    way: "blocking",
    options: &[],
    moves: 20,
    recalls: true,
    has_rings: true,
};

#[test]
fn streams_in_both_directions() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for is_v6 in [false, true] {
        for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
            for way in ["blocking", "poll", "epoll", "epollet"] {
                play(&link, Plan { is_v6, accelerated, way, ..PLAIN });
            }
        }
    }
}

/// Tests merged segments that are longer than the program's reads, and shorter.
#[test]
fn long_messages() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
        for way in ["blocking", "epoll"] {
            let options = &["--size", "300000"];
            play(&link, Plan { accelerated, way, options, ..PLAIN });
        }
    }
}

#[test]
fn questions_and_answers() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
        for way in ["blocking", "epoll"] {
            let options = &["--rounds", "1", "--size", "3000"];
            play(&link, Plan { accelerated, way, options, ..PLAIN });
        }
    }
}

#[test]
fn without_mapped_rings() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for way in ["blocking", "epoll"] {
        play(&link, Plan { accelerated: Accelerated::Both, way, has_rings: false, ..PLAIN });
    }
}

/// Time for which the remains of one program are kept for the next, with a margin.
const LINGER: Duration = Duration::from_millis(1500);

/// Longest time to the end of a conversation. Where frames do not arrive it takes half a minute.
const PROMPT: Duration = Duration::from_secs(10);

/// Counts the packet sockets on a host. With any session that is away there are at least two: the
/// filter's and a program's.
fn packet_sockets(host: &Host) -> usize {
    let read = || std::fs::read_to_string("/proc/thread-self/net/packet").unwrap();
    host.enter(read).unwrap().lines().skip(1).count()
}

#[test]
fn programs_that_follow_another() {
    if std::env::var_os("LAB_PORTS").is_some() {
        // With ports, the programs' packet sockets are on no interface of the host.
        return;
    }
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    // Without IPv6 there is no news of the interface (addresses, routes) that makes the server
    // check the filter again.
    for host in [&a, &b] {
        host.set("ipv6/conf/all/disable_ipv6", "1").unwrap();
    }
    let mut worlds = [&a, &b].map(|host| Sandbox::on(host).unwrap());
    for world in &mut worlds {
        world.set("MOVE_AFTER_CALLS", "4");
    }
    let mut admins = worlds.each_ref().map(|world| Admin::new(world).unwrap());
    // The second pair talks while the remains of the first pair are released.
    for (pair, length) in [(1, Duration::ZERO), (2, LINGER)] {
        let address = format!("{}:{}", link.v4(End::A), PORT + pair);
        let end = worlds[0].folder().join(format!("end{pair}")).to_string_lossy().into_owned();
        let start = |(world, role): (&Sandbox, &str)| {
            let mut command = world.command(Mode::Sojourn, world.built().path("lab-peer"));
            command.args([role, "tcp", &address, "--rounds", "1", "--size", "1000"]);
            command.args(["--until", &end]);
            Running::start(command).unwrap()
        };
        let running = [(&worlds[0], "serve"), (&worlds[1], "call")].map(start);
        let deadline = Instant::now() + PATIENCE;
        while admins.iter_mut().any(|admin| admin.moves().unwrap().joins < u64::from(pair))
            || [&a, &b].into_iter().any(|host| packet_sockets(host) < 2)
        {
            assert!(Instant::now() < deadline, "pair {pair} has not moved");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(length);
        std::fs::write(&end, "").unwrap();
        let ended = running.map(|peer| peer.finish(PROMPT).unwrap());
        assert!(ended.iter().all(|peer| peer.status == 0), "pair {pair}: {ended:#?}");
    }
}

#[test]
fn over_links_that_are_not_good() {
    let Some([a, b]) = hosts() else { return };
    let bad = Conditions {
        loss: 0.01,
        duplicate: 0.01,
        corrupt: 0.005,
        reorder: 0.02,
        delay: Duration::from_millis(2),
        ..Conditions::default()
    };
    let link = Link::through(&a, &b, 1500, 7, bad).unwrap();
    for accelerated in [Accelerated::Server, Accelerated::Client] {
        play(&link, Plan { accelerated, moves: 5, ..PLAIN });
    }
}

/// Runs a program on a host, without Sojourn; returns its output.
fn plainly(host: &Host, program: &str, words: &[&str]) -> String {
    host.run(program, words, LIMIT).unwrap().success(program).unwrap()
}

fn await_port(host: &Host, address: &str) {
    let deadline = Instant::now() + PATIENCE;
    let connect = || std::net::TcpStream::connect(address);
    while host.enter(connect).unwrap().is_err() {
        assert!(Instant::now() < deadline, "{address}: nobody listens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn servers_that_know_nothing_of_it() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let world = Sandbox::on(&a).unwrap();
    let mut admin = Admin::new(&world).unwrap();
    let address = link.v4(End::A).to_string();

    let mut redis = world.command(Mode::Sojourn, "redis-server");
    redis.args(["--port", "7001", "--save", "", "--protected-mode", "no"]);
    let redis = Running::start(redis).unwrap();
    await_port(&b, &format!("{address}:7001"));
    for clients in ["1", "20"] {
        let words =
            ["-h", &address, "-p", "7001", "-c", clients, "-n", "60000", "-t", "set,get", "--csv"];
        let output = plainly(&b, "redis-benchmark", &words);
        assert_eq!(output.lines().filter(|line| line.contains("ET\"")).count(), 2, "{output}");
    }
    let after_redis = admin.moves().unwrap().joins;
    assert!(after_redis >= 2, "only {after_redis} sessions moved");
    drop(redis);

    let file: Vec<u8> = (0..20_000_000u32).map(|i| (i / 3) as u8 ^ (i >> 11) as u8).collect();
    std::fs::write(world.folder().join("file"), &file).unwrap();
    let mut server = world.command(Mode::Sojourn, "python3");
    server.args(["-m", "http.server", "7003", "--bind", &address]);
    let server = Running::start(server).unwrap();
    await_port(&b, &format!("{address}:7003"));
    let got = world.folder().join("got").to_string_lossy().into_owned();
    let url = format!("http://{address}:7003/file");
    plainly(&b, "curl", &["-sS", "-o", &got, &url]);
    assert!(std::fs::read(&got).unwrap() == file, "the file came otherwise than it went");
    drop(server);
}
