//! Tests that real programs on two hosts do the same as without Sojourn: with one end under it, the
//! other, both, and with sessions recalled all the time.
//!
//! Each script in `programs/net/` has a part for the server and a part for the caller; the caller's
//! output must be the same each time. Not here: changes of the network (`network_events.rs`). Needs
//! rights over networks; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::Link;
use sojourn_system::network::{Accelerated, hosts, run};
use std::path::Path;

/// Programs, and the Debian packages that have them.
const PACKAGES: [(&str, &str); 17] = [
    ("iperf3", "iperf3"),
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("redis-cli", "redis-tools"),
    ("nginx", "nginx"),
    ("curl", "curl"),
    ("sshd", "openssh-server"),
    ("scp", "openssh-client"),
    ("rsync", "rsync"),
    ("telnetd", "inetutils-telnetd"),
    ("telnet", "inetutils-telnet"),
    ("socat", "socat"),
    ("vsftpd", "vsftpd"),
    ("tnftp", "tnftp"),
    ("Xvfb", "xvfb"),
    ("x11perf", "x11-apps"),
    ("dig", "bind9-dnsutils"),
];

#[track_caller]
fn need(wanted: &[&str]) {
    let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    for program in wanted {
        let package = PACKAGES.iter().find(|known| known.0 == *program).unwrap().1;
        let is_there = folders.iter().any(|folder| Path::new(folder).join(program).exists());
        assert!(is_there, "no {program}: install the package {package}");
    }
}

/// Checks that the caller's output is the same in every way. `streams`: the smallest numbers of
/// streams with the server under Sojourn, and with the caller; 0 where sessions have several
/// holders, or are too short to be worth a move. The numbers are smaller than usual ones, because
/// the machine decides how many sessions live long enough for a move.
#[track_caller]
fn same(wanted: &[&str], script: &str, streams: [u64; 2]) {
    same_with_datagrams(wanted, script, streams, 0);
}

/// Checks the same, and that the server receives at least `datagrams` datagrams past the kernel, on
/// a socket that stays open.
#[track_caller]
fn same_with_datagrams(wanted: &[&str], script: &str, streams: [u64; 2], datagrams: u64) {
    let Some([a, b]) = hosts() else { return };
    need(wanted);
    let link = Link::direct(&a, &b, 1500).unwrap();
    let plain = run(&link, script, Accelerated::Neither, false).unwrap().output;
    let ways = [
        (Accelerated::Server, false, streams[0]),
        (Accelerated::Client, false, streams[1]),
        (Accelerated::Both, true, streams[0] + streams[1]),
    ];
    for (accelerated, recalls, least) in ways {
        let ran = run(&link, script, accelerated, recalls).unwrap();
        assert_eq!(plain, ran.output, "{script} {accelerated:?}");
        assert!(ran.moves >= least, "{script} {accelerated:?}: only {} streams", ran.moves);
        if accelerated == Accelerated::Server {
            assert!(ran.datagrams >= datagrams, "{script}: only {} datagrams", ran.datagrams);
        }
    }
}

#[test]
fn iperf3() {
    same(&["iperf3"], "iperf3.sh", [4, 4]);
}

#[test]
fn redis() {
    same(&["redis-server", "redis-cli", "redis-benchmark"], "redis.sh", [4, 4]);
}

#[test]
fn nginx_and_curl() {
    same(&["nginx", "curl"], "nginx.sh", [2, 2]);
}

#[test]
fn ssh_and_scp() {
    same(&["sshd", "scp", "rsync", "socat"], "ssh.sh", [1, 1]);
}

#[test]
fn rsync() {
    same(&["rsync"], "rsync.sh", [1, 1]);
}

#[test]
fn telnet() {
    same(&["telnetd", "telnet", "socat"], "telnet.sh", [0, 0]);
}

#[test]
fn ftp() {
    same(&["vsftpd", "tnftp", "curl"], "ftp.sh", [0, 1]);
}

#[test]
fn x11() {
    same(&["Xvfb", "x11perf"], "x11.sh", [1, 1]);
}

#[test]
fn python() {
    same(&[], "python.sh", [1, 1]);
}

#[test]
fn names() {
    // The kernel answers the first few of forty questions over UDP.
    same_with_datagrams(&["dig"], "dns.sh", [1, 1], 10);
}
