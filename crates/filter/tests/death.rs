//! Tests of the death of the process that holds a filter: nothing may stay behind, except the
//! guarded ports of programs that live.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{attached, filter, two_hosts, wait_for};
use sojourn_filter::{Key, Method, NewOwner, Options, remove_ports};
use sojourn_wire::Protocol;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// Variable with the method of attachment, set in the process that is to be killed.
const ROLE: &str = "SOJOURN_FILTER_HOLDER";

/// Runs in the process that is to be killed: holds a filter with a session of each kind until then.
#[test]
fn holder() {
    let Ok(method) = std::env::var(ROLE) else { return };
    let method = if method == "classic" { Method::Classic } else { Method::Automatic };
    let Some(mut filter) = filter(Options { method, ..Options::default() }) else { return };
    let key = |port| {
        let ends = [([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 9).into()];
        Key::new(Protocol::Tcp, ends[0], Some(ends[1])).unwrap()
    };
    let NewOwner { owner, socket: _socket } = filter.add_owner(|_| Ok(())).unwrap();
    filter.set_xsks(owner, &[]).unwrap();
    filter.add_flow(key(1), owner).unwrap();
    let port = filter.open_port(false).unwrap();
    filter.add_flow(key(2), port.owner).unwrap();
    println!("\nholding");
    // Blocks until this process is killed, or until its parent is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

fn is_killed(method: &'static str) {
    let Some((one, _two)) = two_hosts() else { return };
    one.run(move || {
        if filter(Options::default()).is_none() {
            return;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "holder", "--nocapture"]).env(ROLE, method);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().starts_with("holding")), "the holder failed");
        let kinds = ["Hook sojourn_ingress eth0", "Xdp sojourn_xdp eth0", "Port sojourn"];
        let held = attached();
        for kind in kinds.into_iter().skip(usize::from(method == "classic")) {
            assert!(held.iter().any(|one| one.starts_with(kind)), "{kind}: {held:?}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        wait_for("end of the port", || attached().is_empty().then_some(()));
        if method == "classic" {
            // The filter of the next server removes the dead server's classic filter from the
            // queueing discipline, and leaves nothing behind itself.
            assert!(classic_filters().contains("sojourn_ingress"));
            let mut filter =
                filter(Options { method: Method::Classic, ..Options::default() }).unwrap();
            let NewOwner { owner, socket: _socket } = filter.add_owner(|_| Ok(())).unwrap();
            let local = ([10, 0, 0, 1], 1).into();
            filter.add_flow(Key::new(Protocol::Udp, local, None).unwrap(), owner).unwrap();
            let text = classic_filters();
            let ours = text.lines().filter(|line| line.contains("handle 0x"));
            assert_eq!(ours.count(), 1, "{text}");
        }
        assert!(!classic_filters().contains("sojourn"), "{}", classic_filters());
        assert_eq!(remove_ports(2).unwrap(), 0);
    });
}

fn classic_filters() -> String {
    let output = Command::new("tc").args(["filter", "show", "dev", "eth0", "ingress"]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

#[test]
fn a_killed_holder_leaves_nothing() {
    is_killed("links");
}

#[test]
fn what_a_killed_holder_leaves_without_links_is_cleared_away() {
    is_killed("classic");
}
