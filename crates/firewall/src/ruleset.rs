//! The rule set of nftables, also as iptables-nft or firewalld writes it: finds the hook that could
//! affect a session's packets.
//!
//! Chains and rules come as the kernel dumps them. A chain that certainly lets the packets pass
//! does not affect them. Not here: single rules (`rule`), the legacy tables of iptables (`tables`).

use crate::attributes::{Message, find, number, text};
use crate::registers::Holds;
use crate::rule::{Action, Packets, Saying, saying};
use crate::session::{Direction, Family, Session};
use sojourn_wire::Protocol;
use std::collections::HashMap;

/// `NFT_MSG_NEWCHAIN` and `NFT_MSG_NEWRULE` with `NFNL_SUBSYS_NFTABLES`.
const CHAIN: u16 = 10 << 8 | 3;
const RULE: u16 = 10 << 8 | 6;
/// Bytes of nfnetlink's header (`struct nfgenmsg`).
const HEADER: usize = 4;
/// `NFT_JUMP_STACK_SIZE`.
const DEPTH_MAX: usize = 16;
/// Largest number of rules that are evaluated for one session, since jumps can multiply few rules;
/// beyond it the answer is "could affect".
const LOOKS_MAX: usize = 65_536;

/// `NF_IP_PRI_CONNTRACK`: hooks before it do not know a packet's connection.
const TRACKING: i32 = -200;

/// `NFPROTO_*`.
const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;
const IPV6: u8 = 10;

/// The full name of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ChainName {
    family: u8,
    table: String,
    chain: String,
}

/// The properties of a base chain.
#[derive(Clone, Debug)]
struct Hook {
    number: u32,
    priority: i32,
    drops: bool,
    translates: bool,
}

/// All chains and rules of a network namespace.
#[derive(Debug, Default)]
pub(crate) struct Ruleset {
    hooks: Vec<(ChainName, Hook)>,
    /// The expressions of each rule, in order.
    rules: HashMap<ChainName, Vec<Vec<u8>>>,
}

/// The fate of packets in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// The packets certainly leave the hook unchanged.
    Accepted,
    /// The packets reach the end of the chain, or leave the hook unchanged before it.
    Passed,
    /// The fate of the packets cannot be known.
    Unsure,
}

impl Ruleset {
    /// Adds a chain or a rule.
    pub(crate) fn add(&mut self, message: Message<'_>) {
        let Some((header, body)) = message.body.split_at_checked(HEADER) else { return };
        let family = header.first().copied().unwrap_or_default();
        let name = if message.kind == CHAIN { 3 } else { 2 };
        let (Some(table), Some(chain)) = (text(body, 1), text(body, name)) else { return };
        let place = ChainName { family, table, chain };
        match message.kind {
            CHAIN => {
                if let Some(hook) = find(body, 4) {
                    let number = number(hook, 1).unwrap_or(u32::MAX);
                    let priority =
                        crate::attributes::number(hook, 2).map_or(i32::MIN, u32::cast_signed);
                    let drops = crate::attributes::number(body, 5) == Some(0);
                    let translates = text(body, 7).as_deref() == Some("nat");
                    self.hooks.push((place, Hook { number, priority, drops, translates }));
                }
            }
            RULE => {
                let expressions = find(body, 4).unwrap_or_default().to_vec();
                self.rules.entry(place).or_default().push(expressions);
            }
            _ => {}
        }
    }

    /// Returns true if no chain is at a hook.
    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Returns the name of the first base chain that could affect the session's packets.
    pub(crate) fn concerning(&self, session: &Session) -> Option<String> {
        let mut looks = LOOKS_MAX;
        let concerns = |(place, hook): &&(ChainName, Hook)| {
            let Some(packets) = packets(place.family, hook, session) else { return false };
            match self.fate(place, packets, DEPTH_MAX, &mut looks) {
                Fate::Accepted => false,
                Fate::Passed => hook.drops,
                Fate::Unsure => true,
            }
        };
        let (place, _) = self.hooks.iter().find(concerns)?;
        let family = family_name(place.family);
        Some(format!("nftables chain {family} {} {}", place.table, place.chain))
    }

    fn fate(
        &self,
        place: &ChainName,
        packets: Packets<'_>,
        depth: usize,
        looks: &mut usize,
    ) -> Fate {
        let mut may_have_left = false;
        for expressions in self.rules.get(place).into_iter().flatten() {
            let Some(left) = looks.checked_sub(1) else { return Fate::Unsure };
            *looks = left;
            let Saying { holds, action } = saying(expressions, packets);
            let is_sure = holds == Holds::Always;
            let fate = match &action {
                _ if holds == Holds::Never => continue,
                Action::Continue => continue,
                Action::Accept => Fate::Accepted,
                Action::Return => Fate::Passed,
                Action::Other => return Fate::Unsure,
                Action::Jump(chain) | Action::Goto(chain) => {
                    let Some(depth) = depth.checked_sub(1) else { return Fate::Unsure };
                    let place = ChainName { chain: chain.clone(), ..place.clone() };
                    self.fate(&place, packets, depth, looks)
                }
            };
            match fate {
                Fate::Unsure => return Fate::Unsure,
                Fate::Accepted if is_sure && !may_have_left => return Fate::Accepted,
                Fate::Accepted if is_sure => return Fate::Passed,
                // The packets that do not match go on to the next rule.
                Fate::Accepted => {}
                Fate::Passed if matches!(action, Action::Jump(_)) => {}
                // A return or a goto ends the chain for the packets that it matches.
                Fate::Passed if is_sure => return Fate::Passed,
                Fate::Passed => may_have_left = true,
            }
        }
        Fate::Passed
    }
}

/// Returns the session's packets that reach a hook, if any do.
fn packets<'s>(family: u8, hook: &Hook, session: &'s Session) -> Option<Packets<'s>> {
    use Direction::{In, Out};
    let is_its = match family {
        IPV4 => session.family() == Family::V4,
        IPV6 => session.family() == Family::V6,
        // The family of ARP has no packets of sessions.
        family => matches!(family, INET | NETDEV | BRIDGE),
    };
    // NAT chains see only the first packet of a connection, and a TCP session moves later.
    let is_past = hook.translates && session.protocol == Protocol::Tcp;
    let direction = match (family, hook.number) {
        (NETDEV, 0) | (INET, 5) => In,
        (NETDEV, 1) => Out,
        (NETDEV, _) => return None,
        (_, 0 | 1) => In,
        // Forwarded packets belong to no session of this host.
        (_, 2) => return None,
        _ => Out,
    };
    let is_at_interface = !matches!(family, NETDEV | BRIDGE);
    let is_tracked = is_at_interface && hook.number != 5 && hook.priority > TRACKING;
    (is_its && !is_past).then_some(Packets { session, direction, is_at_interface, is_tracked })
}

fn family_name(family: u8) -> &'static str {
    match family {
        INET => "inet",
        IPV4 => "ip",
        NETDEV => "netdev",
        BRIDGE => "bridge",
        IPV6 => "ip6",
        _ => "other",
    }
}

#[cfg(test)]
#[path = "ruleset_tests.rs"]
mod tests;
