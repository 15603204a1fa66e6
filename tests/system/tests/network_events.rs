//! Tests of networks that change and fail under load: every byte is checked, and sessions move
//! meanwhile.
//!
//! Not here: real programs on a network that does not change (`network_programs.rs`). Needs rights
//! over networks; skipped with a message otherwise.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::Running;
use sojourn_lab::net::{Conditions, End, Host, Link};
use sojourn_system::network::{Accelerated, Stage, filter_ports, hosts};
use sojourn_system::{Admin, LIMIT};
use std::time::{Duration, Instant};

/// Longest wait for any condition.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for which the transfer goes on between two events.
const A_WHILE: Duration = Duration::from_millis(150);

#[track_caller]
fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A transfer in both directions between the ends of a link, which goes on until it is told to end.
struct Transfer {
    stage: Stage,
    peers: Vec<Running>,
    admins: Vec<Admin>,
}

impl Transfer {
    fn start(link: &Link, accelerated: Accelerated, address: Option<&str>) -> Self {
        Self::on(Stage::new(link, accelerated).unwrap(), address)
    }

    fn on(stage: Stage, address: Option<&str>) -> Self {
        let address = format!("{}:{}", address.unwrap_or(&stage.address), stage.port);
        let end = stage.end_file().to_string_lossy().into_owned();
        let start = |end_of: End, role: &str| {
            let mut command = stage.command(end_of, &stage.built(end_of, "lab-peer"));
            command.args([role, "tcp", &address, "--way", "blocking", "--until", &end]);
            Running::start(command).unwrap()
        };
        let peers = vec![start(End::A, "serve"), start(End::B, "call")];
        let admins = stage.admins().unwrap();
        let mut transfer = Self { stage, peers, admins };
        transfer.wait_for_progress("the first bytes");
        transfer
    }

    /// Returns the number of bytes that the sessions which are away have sent and received while
    /// away.
    fn carried(&mut self) -> Option<u64> {
        let mut all = 0;
        for admin in &mut self.admins {
            let away = admin.away().unwrap();
            all += away.first()?.sent + away.first()?.received;
        }
        Some(all)
    }

    /// Waits until every end under Sojourn is away and has transferred bytes there.
    fn wait_for_progress(&mut self, what: &str) {
        let mut before = None;
        wait_for(what, || {
            if let Some(at) = self.peers.iter_mut().position(|peer| !peer.is_running()) {
                let servers = self.stage.worlds.each_mut().map(|world| world.stop_server());
                let output = self.peers.remove(at).finish(LIMIT);
                panic!("{what}: a peer has ended: {output:?} {servers:?}");
            }
            let now = self.carried();
            let got_on = before.is_some_and(|before| now.is_some_and(|now| now > before + 50_000));
            // The counters of a session start anew with each move.
            before = before.filter(|before| now.is_some_and(|now| now >= *before)).or(now);
            got_on
        });
    }

    fn recall(&mut self) {
        for admin in &mut self.admins {
            admin.recall_all().unwrap();
        }
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

fn a_while() {
    std::thread::sleep(A_WHILE);
}

const SIDES: [Accelerated; 2] = [Accelerated::Server, Accelerated::Client];

#[test]
fn a_route_is_pulled_and_put_back() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for accelerated in SIDES {
        let mut transfer = Transfer::start(&link, accelerated, None);
        let end = transfer.stage.ends_under()[0];
        let host = link.host(end);
        let routes = host.ip(&["-4", "route", "show", "dev", link.interface()]).unwrap();
        let network = routes.split_whitespace().next().unwrap().to_owned();
        for _ in 0..3 {
            host.ip(&["route", "delete", &network, "dev", link.interface()]).unwrap();
            a_while();
            let own = link.v4(end).to_string();
            host.ip(&["route", "add", &network, "dev", link.interface(), "src", &own]).unwrap();
            transfer.wait_for_progress("on the way that is back");
        }
        transfer.finish();
    }
}

#[test]
fn the_next_hop_changes_its_link_address() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for (round, accelerated) in SIDES.into_iter().enumerate() {
        let mut transfer = Transfer::start(&link, accelerated, None);
        let end = transfer.stage.ends_under()[0];
        let (here, there) = (link.host(end), link.host(end.other()));
        for number in 0..3 {
            let mac = format!("02:6c:61:77:{round:02x}:{number:02x}");
            there.ip(&["link", "set", "dev", link.interface(), "address", &mac]).unwrap();
            // In place of the peer's own announcement (gratuitous ARP), which would take longer.
            let neighbour = link.v4(end.other()).to_string();
            let words = ["neighbour", "replace", &neighbour, "lladdr", &mac, "nud", "reachable"];
            here.ip(&[&words[..], &["dev", link.interface()]].concat()).unwrap();
            transfer.wait_for_progress("to the new address");
        }
        transfer.finish();
    }
}

/// Returns the number of packets that a host has sent on an interface.
fn sent_by(host: &Host, interface: &str) -> u64 {
    let text =
        host.enter(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(interface)).unwrap();
    line.trim_start_matches(':').split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// Two links between two hosts. Table 100 of each host routes to the first link's addresses over
/// the second link.
fn two_links(a: &Host, b: &Host) -> [Link; 2] {
    let links = [Link::direct(a, b, 1500).unwrap(), Link::direct(a, b, 1500).unwrap()];
    let [link, other] = &links;
    for end in [End::A, End::B] {
        let words = [link.v4(end.other()).to_string(), other.v4(end.other()).to_string()];
        let [to, by] = words.each_ref().map(String::as_str);
        let words = ["route", "add", to, "via", by, "dev", other.interface(), "table", "100"];
        link.host(end).ip(&words).unwrap();
    }
    links
}

/// Adds or deletes the rule that routes the packets of the server's port at `end` by table 100.
fn rule(link: &Link, end: End, action: &str, port: &str) {
    let which = if end == End::A { "sport" } else { "dport" };
    let words = ["rule", action, "ipproto", "tcp", which, port, "lookup", "100"];
    link.host(end).ip(&words).unwrap();
}

/// Tests two links between the hosts, with rules that route one port's packets over the other link
/// than the link of its addresses.
#[test]
fn a_rule_that_goes_by_ports_is_made() {
    let Some([a, b]) = hosts() else { return };
    let links = two_links(&a, &b);
    let link = &links[0];
    for accelerated in SIDES {
        let mut transfer = Transfer::start(link, accelerated, None);
        let port = transfer.stage.port.to_string();
        [End::A, End::B].into_iter().for_each(|end| rule(link, end, "add", &port));
        transfer.wait_for_progress("by the other link");
        let own = link.host(transfer.stage.ends_under()[0]);
        let sent = || links.each_ref().map(|link| sent_by(own, link.interface()));
        let before = sent();
        // The bytes of which progress is made may lie in the ring.
        wait_for("packets by the other link", || sent()[1] > before[1]);
        transfer.wait_for_progress("and again");
        let after = sent();
        assert!(after[0] <= before[0] + 5, "by the wrong link: {before:?} {after:?}");
        transfer.finish();
    }
}

/// Tests that packets which come by an interface without a filter lose nothing: the kernel has
/// acknowledged some of their bytes before the session is home.
#[test]
fn packets_come_by_another_link_and_back() {
    let Some([a, b]) = hosts() else { return };
    let [link, _other] = &two_links(&a, &b);
    for accelerated in SIDES {
        let mut transfer = Transfer::start(link, accelerated, None);
        let port = transfer.stage.port.to_string();
        for ends in [&[End::A, End::B][..], &[End::A], &[End::B]].repeat(2) {
            let change = |action| ends.iter().for_each(|end| rule(link, *end, action, &port));
            change("add");
            match ends {
                [_, _] => transfer.wait_for_progress("by the other link"),
                // One direction by each link: the session does not stay away.
                _ => a_while(),
            }
            change("del");
            transfer.wait_for_progress(&format!("after {ends:?} have gone by the other link"));
        }
        transfer.finish();
    }
}

#[test]
fn the_mtu_is_lowered_and_raised() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
        let mut transfer = Transfer::start(&link, accelerated, None);
        for mtu in [1400, 600, 1500, 1280, 1500] {
            link.set_mtu(mtu).unwrap();
            transfer.wait_for_progress(&format!("with packets of {mtu}"));
        }
        transfer.finish();
    }
}

#[test]
fn the_link_goes_down_and_up() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::through(&a, &b, 1500, 3, Conditions::default()).unwrap();
    for accelerated in SIDES {
        let mut transfer = Transfer::start(&link, accelerated, None);
        for _ in 0..2 {
            link.set_carrier(false).unwrap();
            a_while();
            link.set_carrier(true).unwrap();
            transfer.wait_for_progress("after the carrier was back");
        }
        transfer.finish();
    }
}

/// The conditions of a transfer besides the weather: the end under Sojourn, the family, the packet
/// interface.
#[derive(Clone, Copy, Debug)]
struct TransferSetup {
    accelerated: Accelerated,
    is_v6: bool,
    has_ports: bool,
}

const SERVER: TransferSetup =
    TransferSetup { accelerated: Accelerated::Server, is_v6: false, has_ports: false };
const CLIENT: TransferSetup = TransferSetup { accelerated: Accelerated::Client, ..SERVER };
const BOTH: TransferSetup = TransferSetup { accelerated: Accelerated::Both, ..SERVER };
const BOTH_V6: TransferSetup = TransferSetup { is_v6: true, ..BOTH };
const PORTS: TransferSetup = TransferSetup { has_ports: true, ..BOTH };

/// Changes the conditions of the link under a transfer, and recalls the sessions in between.
fn weather(setup: TransferSetup, all: &[Conditions]) {
    let Some([a, b]) = hosts() else { return };
    let link = Link::through(&a, &b, 1500, 11, Conditions::default()).unwrap();
    let stage = Stage::either(&link, setup.accelerated, setup.has_ports).unwrap();
    let address = setup.is_v6.then(|| format!("[{}]", link.v6(End::A)));
    let mut transfer = Transfer::on(stage, address.as_deref());
    for end in transfer.stage.ends_under() {
        let has_port = || filter_ports(link.host(end)).unwrap() > 0;
        wait_for(&format!("{setup:?}: its way"), || has_port() == setup.has_ports);
    }
    for conditions in all {
        let begun = Instant::now();
        for end in [End::A, End::B] {
            link.set_conditions(end, *conditions).unwrap();
        }
        transfer.wait_for_progress(&format!("{setup:?} with {conditions:?}"));
        transfer.recall();
        transfer.wait_for_progress(&format!("{setup:?} after a return, with {conditions:?}"));
        println!("{setup:?}: {:?}, {conditions:?}", begun.elapsed());
    }
    for end in [End::A, End::B] {
        link.set_conditions(end, Conditions::default()).unwrap();
    }
    let begun = Instant::now();
    transfer.finish();
    println!("{setup:?}: {:?} to the end", begun.elapsed());
}

#[test]
fn packets_are_lost() {
    let loss = |loss| Conditions { loss, delay: Duration::from_millis(1), ..Conditions::default() };
    weather(SERVER, &[loss(0.001), loss(0.01), loss(0.03)]);
    weather(CLIENT, &[loss(0.01), loss(0.1)]);
    weather(BOTH, &[loss(0.03)]);
    weather(BOTH_V6, &[loss(0.01)]);
}

/// Bad conditions, each alone.
const BAD: [Conditions; 5] = {
    let base = Conditions {
        loss: 0.0,
        duplicate: 0.0,
        corrupt: 0.0,
        mark: 0.0,
        reorder: 0.0,
        reorder_by: Duration::from_millis(2),
        delay: Duration::from_millis(1),
        jitter: Duration::ZERO,
        rate: None,
        queue_bytes: 256 << 10,
    };
    [
        Conditions { reorder: 0.05, ..base },
        Conditions { duplicate: 0.05, ..base },
        Conditions { corrupt: 0.05, ..base },
        Conditions { jitter: Duration::from_millis(5), ..base },
        Conditions { rate: Some(20_000_000), queue_bytes: 30_000, ..base },
    ]
};

#[test]
fn packets_come_late_twice_and_damaged() {
    for setup in [SERVER, CLIENT] {
        weather(setup, &BAD);
    }
}

#[test]
fn packets_come_late_twice_and_damaged_at_both_ends() {
    weather(BOTH, &BAD);
    weather(BOTH_V6, &BAD);
}

/// Tests programs without any right.
#[test]
fn weather_through_ports() {
    weather(PORTS, &BAD);
    weather(TransferSetup { accelerated: Accelerated::Client, is_v6: true, ..PORTS }, &BAD[..3]);
}

#[test]
fn ipv6() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let address = format!("[{}]", link.v6(End::A));
    for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
        let mut transfer = Transfer::start(&link, accelerated, Some(&address));
        for mtu in [1280, 1500] {
            link.set_mtu(mtu).unwrap();
            transfer.recall();
            transfer.wait_for_progress(&format!("with packets of {mtu}"));
        }
        transfer.finish();
    }
}

#[test]
fn an_interface_for_a_vlan() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    for (host, address) in [(&a, "10.200.0.1/24"), (&b, "10.200.0.2/24")] {
        let parent = link.interface();
        let words = ["link", "add", "link", parent, "name", "vlan7", "type", "vlan", "id", "7"];
        if let Err(error) = host.ip(&words) {
            assert!(error.to_string().contains("Unknown device type"), "{error}");
            eprintln!("skipped: this kernel has no VLANs");
            return;
        }
        host.ip(&["address", "add", address, "dev", "vlan7"]).unwrap();
        host.ip(&["link", "set", "dev", "vlan7", "up"]).unwrap();
    }
    for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
        let mut transfer = Transfer::start(&link, accelerated, Some("10.200.0.1"));
        for _ in 0..3 {
            transfer.recall();
            transfer.wait_for_progress("over the VLAN");
        }
        transfer.finish();
    }
}

/// Tests that the command moves sessions as the tests' own connection to the server does.
#[test]
fn moved_by_hand() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut transfer = Transfer::start(&link, Accelerated::Server, None);
    for _ in 0..5 {
        let stream = transfer.admins[0].away().unwrap().first().map(|session| session.stream);
        if let Some(stream) = stream {
            let words = ["move", &stream.to_string(), "kernel"];
            // Fails if the session has moved by itself meanwhile.
            let _: Result<String, _> = transfer.stage.worlds[0].sojourn(&words);
        }
        transfer.wait_for_progress("out again");
    }
    transfer.finish();
}

/// Starts both sides of `programs/net/many.py`: `count` connections, each with questions and
/// answers until it is told to end.
fn many(stage: &Stage, link: &Link, way: &str, count: usize) -> [Running; 2] {
    let script = sojourn_system::network::programs().join("net/many.py");
    let script = script.to_string_lossy().into_owned();
    let start = |end: End, role: &str| {
        let mut command = stage.command(end, "bash");
        let text = "ulimit -n 20000; exec python3 \"$@\"";
        command.args(["-c", text, "-", &script, role, way, &count.to_string()]);
        Running::start(command).unwrap()
    };
    let server = start(End::A, "serve");
    stage.await_listener(link, stage.port).unwrap();
    [server, start(End::B, "call")]
}

#[test]
fn a_thousand_sessions_at_once() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let stage = Stage::new(&link, Accelerated::Server).unwrap();
    let running = many(&stage, &link, "ask", 1000);
    let mut admin = stage.admins().unwrap().remove(0);
    // The numbers of returns are not used: an end that is recalled before it has learnt of its join
    // counts as refused.
    let mut are_away = |least| {
        wait_for(&format!("1,000 sessions away, {least} streams"), || {
            admin.moves().unwrap().joins >= least && admin.away().unwrap().len() == 1000
        });
    };
    are_away(1000);
    Admin::new(&stage.worlds[0]).unwrap().recall_all().unwrap();
    are_away(2000);
    std::fs::write(stage.end_file(), "").unwrap();
    for program in running {
        program.finish(LIMIT).unwrap().success("many").unwrap();
    }
    stage.end().unwrap();
}

/// Runs both sides of `programs/net/many.py`, which talk until their sessions are away and then end
/// in one of the ways `way`. Returns their outputs.
fn ending(link: &Link, accelerated: Accelerated, way: &str) -> [String; 2] {
    let stage = Stage::new(link, accelerated).unwrap();
    let running = many(&stage, link, way, 1);
    let mut admins = stage.admins().unwrap();
    wait_for(way, || admins.iter_mut().all(|admin| !admin.away().unwrap().is_empty()));
    std::fs::write(stage.end_file(), "").unwrap();
    let output = running.map(|one| one.finish(LIMIT).unwrap().success(way).unwrap());
    stage.end().unwrap();
    output
}

/// Checks that the outputs are the same under Sojourn, at either end or both, as plainly.
fn ends(ways: &[&str]) {
    let Some([a, b]) = hosts() else { return };
    let link = &Link::direct(&a, &b, 1500).unwrap();
    // In parallel, because most of the time the programs wait.
    std::thread::scope(|scope| {
        for way in ways {
            scope.spawn(move || {
                let plain = ending(link, Accelerated::Neither, way);
                for accelerated in [Accelerated::Server, Accelerated::Client, Accelerated::Both] {
                    let output = ending(link, accelerated, way);
                    if output != plain {
                        // A known defect (docs/use/linux-differences.md) is rare, and never occurs
                        // twice. For programs that are killed there is none.
                        eprintln!("{way} {accelerated:?}: {output:?}");
                        assert_ne!(
                            *way, "killed",
                            "{accelerated:?}: {output:?}, plainly {plain:?}"
                        );
                        assert_eq!(
                            plain,
                            ending(link, accelerated, way),
                            "{way} {accelerated:?}, again"
                        );
                    }
                }
            });
        }
    });
}

#[test]
fn ends_of_connections() {
    ends(&["close", "reset", "half", "late", "window", "idle"]);
}

#[test]
fn a_killed_program() {
    ends(&["killed"; 4]);
}
