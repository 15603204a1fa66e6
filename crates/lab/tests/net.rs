//! Tests of hosts and links, with the plain kernel at both ends, and of their complete removal.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rustix::process::{Pid, Signal, kill_process};
use sojourn_lab::net::{Conditions, End, Host, Link, is_possible, leftovers, sweep};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);
/// Variable that makes this program the test that is killed.
const VICTIM: &str = "LAB_NET_VICTIM";

fn pair() -> (Host, Host) {
    (Host::new().unwrap(), Host::new().unwrap())
}

fn udp(host: &Host, address: impl Into<IpAddr>) -> UdpSocket {
    let address = SocketAddr::new(address.into(), 0);
    let socket = host.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    socket
}

/// Repeats a call that was interrupted; returns its result. A call with a time limit may fail with
/// EINTR whenever the machine is paused (signal(7)).
fn whole<T>(mut call: impl FnMut() -> std::io::Result<T>) -> T {
    loop {
        match call() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result.unwrap(),
        }
    }
}

/// Sends one datagram there and back; returns the time that it took.
fn ping(from: &UdpSocket, to: &UdpSocket, text: &[u8]) -> Duration {
    let start = Instant::now();
    let mut seen = [0; 2048];
    from.send_to(text, to.local_addr().unwrap()).unwrap();
    let (len, asker) = whole(|| to.recv_from(&mut seen));
    assert_eq!(&seen[..len], text);
    to.send_to(&seen[..len], asker).unwrap();
    assert_eq!(whole(|| from.recv(&mut seen)), text.len());
    start.elapsed()
}

/// Returns byte number `at` of a transfer. Neighbouring places look different, so that a transfer
/// that exchanges them is seen.
fn byte(at: usize) -> u8 {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends `len` bytes over TCP from `a` to `address` on `b`, which checks every byte and answers.
fn transfer(a: &Host, b: &Host, address: impl Into<IpAddr>, len: usize) {
    let address = address.into();
    let listener = b.enter(|| TcpListener::bind((address, 0))).unwrap().unwrap();
    let target = listener.local_addr().unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len(), len);
        assert!(bytes.iter().enumerate().all(|(at, found)| *found == byte(at)));
        stream.write_all(b"whole").unwrap();
    });
    let mut stream = a.enter(|| TcpStream::connect_timeout(&target, LIMIT)).unwrap().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    let bytes: Vec<u8> = (0..len).map(byte).collect();
    stream.write_all(&bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    receiver.join().unwrap();
    assert_eq!(answer, "whole");
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(MS);
    }
}

#[test]
fn a_direct_link_carries_both_versions() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let link = Link::direct(&a, &b, 1500).unwrap();
    ping(&udp(&a, link.v4(End::A)), &udp(&b, link.v4(End::B)), b"four");
    ping(&udp(&a, link.v6(End::A)), &udp(&b, link.v6(End::B)), b"six");
    transfer(&a, &b, link.v6(End::B), 4 << 20);
    assert!(link.set_carrier(false).is_err(), "nothing in the middle");
    assert!(link.counts(End::A).is_err());
}

#[test]
fn delay_is_there_in_each_direction() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let conditions = Conditions { delay: MS * 20, ..Conditions::default() };
    let link = Link::through(&a, &b, 1500, 1, conditions).unwrap();
    let (from, to) = (udp(&a, link.v4(End::A)), udp(&b, link.v4(End::B)));
    ping(&from, &to, b"resolves the address");
    assert!(ping(&from, &to, b"there and back") >= MS * 40);
    link.set_conditions(End::A, Conditions::default()).unwrap();
    let one_way = ping(&from, &to, b"back only");
    assert!(one_way >= MS * 20, "{one_way:?}");
    let six = ping(&udp(&a, link.v6(End::A)), &udp(&b, link.v6(End::B)), b"six");
    assert!(six >= MS * 20);
}

#[test]
fn loss_and_duplication_are_what_was_set() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let link = Link::through(&a, &b, 1500, 1, Conditions::default()).unwrap();
    let (from, to) = (udp(&a, link.v4(End::A)), udp(&b, link.v4(End::B)));
    ping(&from, &to, b"resolves the address");
    let before = link.counts(End::A).unwrap();
    let twice = Conditions { duplicate: 1.0, ..Conditions::default() };
    link.set_conditions(End::A, twice).unwrap();
    from.send_to(b"twice", to.local_addr().unwrap()).unwrap();
    for _ in 0..2 {
        assert_eq!(to.recv(&mut [0; 10]).unwrap(), 5);
    }
    let never = Conditions { loss: 1.0, ..Conditions::default() };
    link.set_conditions(End::A, never).unwrap();
    from.send_to(b"never", to.local_addr().unwrap()).unwrap();
    wait_for("the lost datagram is counted", || link.counts(End::A).unwrap().lost > before.lost);
    to.set_nonblocking(true).unwrap();
    assert_eq!(to.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::WouldBlock);
    // At least: the kernel may have sent a frame of its own meanwhile.
    assert!(link.counts(End::A).unwrap().duplicated > before.duplicated);
}

#[test]
fn transfers_survive_what_links_do_to_frames() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let conditions = Conditions {
        loss: 0.02,
        duplicate: 0.01,
        corrupt: 0.01,
        reorder: 0.02,
        delay: MS * 2,
        jitter: MS,
        ..Conditions::default()
    };
    let link = Link::through(&a, &b, 1500, 42, conditions).unwrap();
    transfer(&a, &b, link.v4(End::B), 2 << 20);
    transfer(&b, &a, link.v6(End::A), 1 << 20);
    for end in [End::A, End::B] {
        let counts = link.counts(end).unwrap();
        let seen = [counts.lost, counts.duplicated, counts.corrupted, counts.reordered];
        assert!(seen.iter().all(|count| *count > 0), "{counts:?}");
        assert!(counts.offered >= 500, "whole packets only, no merged ones: {counts:?}");
    }
}

#[test]
fn congestion_is_told_to_senders_that_take_part() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    for host in [&a, &b] {
        host.set("ipv4/tcp_ecn", "1").unwrap();
        // A namespace may be forbidden other algorithms (`tcp_allowed_congestion_control`).
        host.set("ipv4/tcp_congestion_control", "reno").unwrap();
    }
    let conditions = Conditions { mark: 0.02, delay: MS, ..Conditions::default() };
    let link = Link::through(&a, &b, 1500, 11, conditions).unwrap();
    transfer(&a, &b, link.v4(End::B), 2 << 20);
    assert!(link.counts(End::A).unwrap().marked > 0);
    let seen =
        b.enter(|| std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap()).unwrap();
    assert!(counter(&seen, "InCEPkts") > 0);
}

/// Returns a counter of `/proc/PID/net/netstat`, where names and numbers are in separate lines.
fn counter(netstat: &str, name: &str) -> u64 {
    let lines: Vec<Vec<&str>> =
        netstat.lines().map(|line| line.split_whitespace().collect()).collect();
    let found = lines.chunks(2).find_map(|pair| {
        let at = pair[0].iter().position(|word| *word == name)?;
        pair[1][at].parse().ok()
    });
    found.unwrap()
}

#[test]
fn a_rate_is_kept() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let conditions = Conditions { rate: Some(20_000_000), ..Conditions::default() };
    let link = Link::through(&a, &b, 1500, 3, conditions).unwrap();
    let start = Instant::now();
    transfer(&a, &b, link.v4(End::B), 1 << 20);
    // 8.4 Mbit of payload at 20 Mbit/s.
    assert!(start.elapsed() >= MS * 419, "{:?}", start.elapsed());
}

#[test]
fn routers_join_links_and_tell_what_is_too_long() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let routers = [Host::router().unwrap(), Host::router().unwrap()];
    let near = Link::direct(&a, &routers[0], 1500).unwrap();
    let narrow = Conditions::default();
    let narrow = Link::through(&routers[0], &routers[1], 1300, 5, narrow).unwrap();
    let far = Link::direct(&routers[1], &b, 1500).unwrap();
    for (host, link, end) in [
        (&a, &near, End::B),
        (&routers[0], &narrow, End::B),
        (&routers[1], &narrow, End::A),
        (&b, &far, End::A),
    ] {
        host.default_route(link.v4(end).into()).unwrap();
        host.default_route(link.v6(end).into()).unwrap();
    }
    transfer(&a, &b, far.v4(End::B), 1 << 20);
    transfer(&a, &b, far.v6(End::B), 1 << 20);
    for address in [IpAddr::V4(far.v4(End::B)), far.v6(End::B).into()] {
        let route = a.ip(&["route", "get", &address.to_string()]).unwrap();
        assert!(route.contains("mtu 1300"), "{route}");
    }
    narrow.set_mtu(1400).unwrap();
    let shown = routers[1].ip(&["link", "show", narrow.interface()]).unwrap();
    assert!(shown.contains("mtu 1400"), "{shown}");
}

#[test]
fn a_pulled_cable_is_seen_and_survived() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let link = Link::through(&a, &b, 1500, 1, Conditions::default()).unwrap();
    let (from, to) = (udp(&a, link.v6(End::A)), udp(&b, link.v6(End::B)));
    ping(&from, &to, b"before");
    link.set_carrier(false).unwrap();
    let shown = a.ip(&["link", "show", link.interface()]).unwrap();
    assert!(shown.contains("NO-CARRIER"), "{shown}");
    link.set_carrier(true).unwrap();
    wait_for("the carrier comes back", || {
        !a.ip(&["link", "show", link.interface()]).unwrap().contains("NO-CARRIER")
    });
    // Neighbours may have to be resolved again, so the first datagrams may be lost.
    to.set_read_timeout(Some(MS * 50)).unwrap();
    let target = to.local_addr().unwrap();
    wait_for("datagrams arrive again", || {
        let _ = from.send_to(b"after", target);
        to.recv(&mut [0; 10]).is_ok()
    });
}

#[test]
fn programs_run_on_their_host() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let link = Link::direct(&a, &b, 1500).unwrap();
    let output = a.run("ip", &["-o", "address"], LIMIT).unwrap().success("ip address").unwrap();
    assert!(output.contains(&link.v4(End::A).to_string()), "{output}");
    assert!(!output.contains(&link.v4(End::B).to_string()), "{output}");
    assert!(output.contains(link.interface()));
    // The loopback interface is up.
    let (from, to) = (udp(&a, [127, 0, 0, 1]), udp(&a, [127, 0, 0, 1]));
    ping(&from, &to, b"to itself");
}

#[test]
fn everything_is_gone_after_the_last_drop() {
    if !is_possible() {
        return;
    }
    let (a, b) = pair();
    let names = [a.name().to_owned(), b.name().to_owned()];
    let link = Link::through(&a, &b, 1500, 1, Conditions::default()).unwrap();
    let interface = link.interface().to_owned();
    let mut sleeper = Command::new("sleep");
    sleeper.arg("600").stdin(Stdio::null());
    b.place(&mut sleeper);
    let mut child = sleeper.spawn().unwrap();
    drop(sleeper);
    let there = leftovers(std::process::id());
    assert!(names.iter().all(|name| there.contains(name)), "{there:?}");
    drop(link);
    assert!(!a.ip(&["-o", "link"]).unwrap().contains(&interface));
    drop((a, b));
    let there = leftovers(std::process::id());
    assert!(!names.iter().any(|name| there.contains(name)), "{there:?}");
    // The program on the host was killed.
    assert!(!child.wait().unwrap().success());
}

#[test]
fn what_a_killed_test_left_is_removed_by_the_next() {
    if !is_possible() {
        return;
    }
    if std::env::var_os(VICTIM).is_some() {
        return be_killed();
    }
    let mut victim = Command::new(std::env::current_exe().unwrap());
    victim.args(["--exact", "what_a_killed_test_left_is_removed_by_the_next", "--nocapture"]);
    let mut victim = victim.env(VICTIM, "1").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let sleeper: i32 = lines
        .find_map(|line| line.unwrap().strip_prefix("ready ").map(|pid| pid.parse().unwrap()))
        .unwrap();
    sweep();
    assert_eq!(leftovers(victim.id()).len(), 3, "the living keep theirs");
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert_eq!(leftovers(victim.id()).len(), 3);
    // Making the first host of a process sweeps in the same way.
    sweep();
    assert_eq!(leftovers(victim.id()), Vec::<String>::new());
    let sleeper = Pid::from_raw(sleeper).unwrap();
    wait_for("the program that ran there is gone", || {
        // Its new parent may not have collected it yet: a zombie is gone too.
        let status = std::fs::read_to_string(format!("/proc/{}/stat", sleeper.as_raw_pid()));
        status.map_or(true, |status| status.contains(") Z"))
    });
}

/// The test that is killed: makes two hosts, a link and a program, prints that it is ready, and
/// waits to be killed.
fn be_killed() {
    let (a, b) = pair();
    let _link = Link::through(&a, &b, 1500, 1, Conditions::default()).unwrap();
    let mut sleeper = Command::new("sleep");
    sleeper.arg("600").stdin(Stdio::null()).stdout(Stdio::null());
    a.place(&mut sleeper);
    println!("\nready {}", sleeper.spawn().unwrap().id());
    std::thread::sleep(LIMIT);
    kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
}
