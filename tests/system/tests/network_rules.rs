//! Tests of hosts with the rules that common tools make: sessions of services that they let pass
//! move, sessions that a rule stops, logs, counts or redirects stay, and a ban brings one home.
//!
//! Needs nft(8), iptables-nft(8) and iptables-legacy(8), and a kernel with connection tracking;
//! skipped with a message where one is missing. The rules are those of the firewall crate's tests
//! (`crates/firewall/tests/rules`), which hold more cases against them.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use sojourn_lab::net::{End, Host, Link};
use sojourn_system::LIMIT;
use sojourn_system::network::hosts;
use sojourn_system::talk::{PORT, Talk};

/// A tool, and a command of it without an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    Nft,
    IptablesNft,
    IptablesLegacy,
}

impl Tool {
    const fn command(self) -> &'static str {
        match self {
            Self::Nft => "nft",
            Self::IptablesNft => "iptables-nft",
            Self::IptablesLegacy => "iptables-legacy",
        }
    }

    /// Returns false, and prints the reason, where there is no such tool, or it may do nothing.
    fn is_there(self, host: &Host) -> bool {
        let harmless: &[&str] = if self == Self::Nft { &["list", "ruleset"] } else { &["-S"] };
        let done = host.run(self.command(), harmless, LIMIT);
        let is_there = done.as_ref().is_ok_and(|done| done.status == 0);
        if !is_there {
            eprintln!("skipped: {self:?}: {done:?}");
        }
        is_there
    }

    fn load(self, host: &Host, name: &str) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/firewall/tests/rules");
        let file = format!("{folder}/{name}");
        match self {
            Self::Nft => run(host, &["nft", "-f", &file]),
            _ => run(host, &[&format!("{}-restore", self.command()), &file]),
        }
    }
}

fn run(host: &Host, words: &[&str]) {
    let done = host.run(words[0], &words[1..], LIMIT).unwrap();
    assert_eq!(done.status, 0, "{words:?}: {}", done.err);
}

/// The rules that let port 4000 pass, with the tools that load them.
const ALLOWING: [(Tool, &str); 7] = [
    (Tool::Nft, "debian.nft"),
    (Tool::Nft, "firewalld.nft"),
    (Tool::Nft, "fail2ban.nft"),
    (Tool::IptablesNft, "ufw.rules"),
    (Tool::IptablesLegacy, "ufw.rules"),
    (Tool::IptablesNft, "docker.rules"),
    (Tool::IptablesLegacy, "docker.rules"),
];

#[test]
fn sessions_of_allowed_services_move() {
    for (tool, file) in ALLOWING {
        let Some([a, b]) = hosts() else { return };
        let link = Link::direct(&a, &b, 1500).unwrap();
        if !tool.is_there(&a) {
            continue;
        }
        tool.load(&a, file);
        eprintln!("{tool:?} {file}");
        let mut talk = Talk::start(&link, End::A, PORT, false);
        talk.wait_until_away(true);
        talk.finish();
    }
}

/// One rule more than those that let the session pass, before them, and the name that it has then.
const CONCERNING: [(Tool, &str, &str, &str); 7] = [
    (
        Tool::Nft,
        "debian.nft",
        "insert rule inet filter input tcp dport 4000 log",
        "nftables chain inet filter input, rule with handle",
    ),
    (
        Tool::Nft,
        "debian.nft",
        "insert rule inet filter input tcp dport 4000 counter",
        "nftables chain inet filter input, rule with handle",
    ),
    (
        Tool::Nft,
        "debian.nft",
        "insert rule inet filter output tcp sport { 80, 4000 } tcp flags urg drop",
        "nftables chain inet filter output, rule with handle",
    ),
    (
        Tool::Nft,
        "firewalld.nft",
        "insert rule inet firewalld filter_INPUT limit rate 1/day accept",
        "nftables chain inet firewalld filter_INPUT, rule with handle",
    ),
    (
        Tool::IptablesNft,
        "ufw.rules",
        "-I INPUT -p tcp --dport 4000 -j LOG",
        "nftables chain ip filter INPUT, rule with handle",
    ),
    (
        Tool::IptablesLegacy,
        "ufw.rules",
        "-I ufw-before-input -p tcp --dport 4000 -m limit -j LOG",
        "iptables-legacy table filter chain ufw-before-input, rule 1",
    ),
    (
        Tool::IptablesLegacy,
        "docker.rules",
        "-I INPUT -p tcp -m tcp --dport 4000 -m recent --set",
        "iptables-legacy table filter chain INPUT, rule 1",
    ),
];

#[test]
fn sessions_that_a_rule_logs_counts_or_limits_stay() {
    for (tool, file, more, name) in CONCERNING {
        let Some([a, b]) = hosts() else { return };
        let link = Link::direct(&a, &b, 1500).unwrap();
        if !tool.is_there(&a) {
            continue;
        }
        tool.load(&a, file);
        let words: Vec<&str> = [tool.command()].into_iter().chain(more.split(' ')).collect();
        run(&a, &words);
        eprintln!("{tool:?} {file} {more}");
        let mut talk = Talk::start(&link, End::A, PORT, false);
        talk.wait_for_reason("firewall");
        // The session is offered again and again. While the server looks at an offer it has a
        // duplicate of the socket, and still the reason is the same.
        for _ in 0..10 {
            let why = talk.why();
            assert!(why.contains(name), "{why}");
        }
        assert_eq!(talk.moves(), 0);
        talk.finish();
    }
}

/// What a ban adds, and what takes it back; `PEER` stands for the address.
const BANS: [(Tool, &str, [&str; 2]); 3] = [
    (
        Tool::Nft,
        "fail2ban.nft",
        [
            "add element inet f2b-table addr-set-sshd { PEER }",
            "delete element inet f2b-table addr-set-sshd { PEER }",
        ],
    ),
    (Tool::IptablesNft, "ufw.rules", ["-I INPUT -s PEER -j DROP", "-D INPUT -s PEER -j DROP"]),
    (Tool::IptablesLegacy, "ufw.rules", ["-I INPUT -s PEER -j DROP", "-D INPUT -s PEER -j DROP"]),
];

#[test]
fn a_ban_of_the_peer_brings_its_session_home() {
    for (tool, file, [ban, pardon]) in BANS {
        let Some([a, b]) = hosts() else { return };
        let link = Link::direct(&a, &b, 1500).unwrap();
        if !tool.is_there(&a) {
            continue;
        }
        tool.load(&a, file);
        let peer = link.v4(End::B).to_string();
        let change = |text: &str| {
            let text = text.replace("PEER", &peer);
            run(&a, &[tool.command()].into_iter().chain(text.split(' ')).collect::<Vec<_>>());
        };
        eprintln!("{tool:?} {file} {ban}");
        let mut talk = Talk::start(&link, End::A, PORT, false);
        talk.wait_until_away(true);
        change(ban);
        talk.wait_until_away(false);
        // Nothing comes through meanwhile, so the session cannot become hot again.
        change(pardon);
        talk.finish();
    }
}

/// A user's packets may be sent another way than those of others: the carrier asks for the way of
/// addresses and ports alone.
#[test]
fn a_routing_rule_by_user_brings_sessions_home() {
    let Some([a, b]) = hosts() else { return };
    let link = Link::direct(&a, &b, 1500).unwrap();
    let mut talk = Talk::start(&link, End::A, PORT, false);
    talk.wait_until_away(true);
    let rule = ["prio", "70", "uidrange", "5000-5001", "table", "7"];
    let change = |verb| a.ip(&[&["rule", verb], &rule[..]].concat()).unwrap();
    change("add");
    talk.wait_for_reason("firewall");
    let why = talk.why();
    assert!(why.contains("the routing rule with priority 70"), "{why}");
    change("del");
    talk.wait_until_away(true);
    talk.finish();
}
