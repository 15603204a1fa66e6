//! The rule set of nftables, also where iptables or firewalld has written it: which hook could say
//! something about a session's packets.
//!
//! Chains and rules come as the kernel dumps them. A chain that surely lets the packets pass says
//! nothing. Not here: single rules (`rule`), the older tables of iptables (`tables`).

use crate::attributes::{Message, find, number, text};
use crate::registers::Holds;
use crate::rule::{Action, Packets, Saying, saying};
use crate::session::{Direction, Family, Session};
use sojourn_wire::Protocol;
use std::collections::HashMap;

/// `NFT_MSG_NEWCHAIN` and `NFT_MSG_NEWRULE` with `NFNL_SUBSYS_NFTABLES`.
const CHAIN: u16 = 10 << 8 | 3;
const RULE: u16 = 10 << 8 | 6;
/// Of nfnetlink's header.
const HEADER: usize = 4;
/// `NFT_JUMP_STACK_SIZE`.
const DEPTH_MAX: usize = 16;
/// Rules that are looked at for one session; more could say anything. Jumps can make many of few.
const LOOKS_MAX: usize = 65_536;

/// `NF_IP_PRI_CONNTRACK`: hooks before it do not know a packet's connection.
const TRACKING: i32 = -200;

/// `NFPROTO_*`.
const INET: u8 = 1;
const IPV4: u8 = 2;
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;
const IPV6: u8 = 10;

/// A chain's place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ChainName {
    family: u8,
    table: String,
    chain: String,
}

/// What makes a chain a base chain.
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
    /// Each rule's expressions, in order.
    rules: HashMap<ChainName, Vec<Vec<u8>>>,
}

/// What becomes of packets in a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// They surely leave the hook well.
    Accepted,
    /// They come to the chain's end, or leave well before.
    Passed,
    /// Nobody knows.
    Unsure,
}

impl Ruleset {
    /// Takes in a chain or a rule.
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

    /// Whether no chain is at a hook.
    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// The first base chain that could say something about the session's packets.
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
                // The others come to the next rule.
                Fate::Accepted => {}
                Fate::Passed if matches!(action, Action::Jump(_)) => {}
                // Behind a return or a goto the chain is over for those that it matches.
                Fate::Passed if is_sure => return Fate::Passed,
                Fate::Passed => may_have_left = true,
            }
        }
        Fate::Passed
    }
}

/// The packets of the session that come to that hook, if any do.
fn packets<'s>(family: u8, hook: &Hook, session: &'s Session) -> Option<Packets<'s>> {
    use Direction::{In, Out};
    let is_its = match family {
        IPV4 => session.family() == Family::V4,
        IPV6 => session.family() == Family::V6,
        // ARP carries no session's packets.
        family => matches!(family, INET | NETDEV | BRIDGE),
    };
    // Only the first packet of a connection comes to be translated.
    let is_past = hook.translates && session.protocol == Protocol::Tcp;
    let direction = match (family, hook.number) {
        (NETDEV, 0) | (INET, 5) => In,
        (NETDEV, 1) => Out,
        (NETDEV, _) => return None,
        (_, 0 | 1) => In,
        // What is forwarded is no session of this host's.
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
