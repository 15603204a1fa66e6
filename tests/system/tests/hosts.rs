//! Tests of sandboxes on hosts of their own: the server and the programs have the host's network,
//! and nothing of another's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_lab::net::{End, Host, Link, is_possible};
use sojourn_lab::{Mode, Running, Sandbox};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

#[test]
fn programs_and_servers_are_on_their_sandbox_s_host() {
    if !is_possible() {
        return;
    }
    let (a, b) = (Host::new().unwrap(), Host::new().unwrap());
    let link = Link::direct(&a, &b, 1500).unwrap();
    for (host, end) in [(&a, End::A), (&b, End::B)] {
        let sandbox = Sandbox::on(host).unwrap();
        for mode in [Mode::Plain, Mode::Sojourn] {
            let mut command = sandbox.command(mode, "ip");
            command.args(["-o", "address"]);
            let output = Running::start(command).unwrap().finish(LIMIT).unwrap();
            let output = output.success("ip address").unwrap();
            assert!(output.contains(&link.v4(end).to_string()), "{mode:?}: {output}");
            assert!(!output.contains(&link.v4(end.other()).to_string()), "{mode:?}: {output}");
        }
        let network = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap();
        let server = sandbox.server_pid().unwrap().to_string();
        assert_ne!(network(&server), network("self"));
    }
}
