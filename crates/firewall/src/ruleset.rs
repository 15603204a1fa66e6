//! The rule set of nftables, also as iptables-nft or firewalld writes it: finds the rule that could
//! affect a session's packets.
//!
//! Chains, rules and sets come as the kernel dumps them (`dumps`). Tables that are dormant count as
//! others. Flow tables concern only forwarded packets. Not here: the packets' way through chains
//! (`chains`), single rules (`rule`), the legacy tables of iptables (`tables`).

use crate::attributes::{Message, find, number, text};
use crate::chains::{Body, Chains, DEPTH_MAX, Fate, Name, Rule, RulePosition, Walk, looks};
use crate::family::{BRIDGE, INET, IPV4, IPV6, NETDEV};
use crate::packets::Packets;
use crate::rule::marks;
use crate::session::{Direction, Family, Session};
use crate::sets::{Set, SetUse, uses_in};
use sojourn_wire::Protocol;

/// `NFT_MSG_NEWCHAIN`, `NFT_MSG_NEWRULE`, `NFT_MSG_NEWSET` and `NFT_MSG_NEWSETELEM` with
/// `NFNL_SUBSYS_NFTABLES`.
pub(crate) const CHAIN: u16 = 10 << 8 | 3;
pub(crate) const RULE: u16 = 10 << 8 | 6;
pub(crate) const SET: u16 = 10 << 8 | 9;
pub(crate) const ELEMENTS: u16 = 10 << 8 | 12;
/// Bytes of nfnetlink's header (`struct nfgenmsg`).
const HEADER: usize = 4;

/// `NF_IP_PRI_CONNTRACK`: hooks before it do not know a packet's connection.
const TRACKING: i32 = -200;

/// The properties of a base chain.
#[derive(Clone, Debug)]
struct Hook {
    chain: Name,
    number: u32,
    priority: i32,
    drops: bool,
    translates: bool,
}

/// All chains, rules and sets of a network namespace.
#[derive(Debug, Default)]
pub(crate) struct Ruleset {
    hooks: Vec<Hook>,
    chains: Chains,
    /// The sets that rules look up, and those that packets change.
    looked_up: Vec<Name>,
    changed: Vec<Name>,
    /// True if a rule marks packets for security modules.
    marks: bool,
}

impl Ruleset {
    /// Adds a chain, a rule, a set, or elements of one.
    pub(crate) fn add(&mut self, message: Message<'_>) {
        let Some((header, body)) = message.body.split_at_checked(HEADER) else { return };
        let family = header.first().copied().unwrap_or_default();
        let name = if message.kind == CHAIN { 3 } else { 2 };
        let (Some(table), Some(name)) = (text(body, 1), text(body, name)) else { return };
        let name = Name { family, table, name };
        match message.kind {
            CHAIN => self.add_chain(name, body),
            RULE => self.add_rule(name, body),
            SET => drop(self.chains.sets.insert(name, Set::new(body))),
            ELEMENTS => {
                let elements = find(body, 3).unwrap_or_default();
                if let Some(set) = self.chains.sets.get_mut(&name) {
                    set.add(elements);
                }
            }
            _ => {}
        }
    }

    fn add_chain(&mut self, name: Name, body: &[u8]) {
        let Some(hook) = find(body, 4) else { return };
        let place = number(hook, 1).unwrap_or(u32::MAX);
        let priority = number(hook, 2).map_or(i32::MIN, u32::cast_signed);
        let drops = number(body, 5) == Some(0);
        let translates = text(body, 7).as_deref() == Some("nat");
        self.hooks.push(Hook { chain: name, number: place, priority, drops, translates });
    }

    fn add_rule(&mut self, chain: Name, body: &[u8]) {
        let expressions = find(body, 4).unwrap_or_default();
        for SetUse { name, is_changed } in uses_in(expressions) {
            let set = Name { name, ..chain.clone() };
            let names = if is_changed { &mut self.changed } else { &mut self.looked_up };
            if !names.contains(&set) {
                names.push(set);
            }
        }
        self.marks |= marks(expressions);
        let handle = find(body, 3).and_then(|handle| handle.try_into().ok());
        let rule = Rule {
            number: handle.map_or(0, u64::from_be_bytes),
            body: Body::Expressions(expressions.to_vec()),
        };
        self.chains.rules.entry(chain).or_default().push(rule);
    }

    /// Returns the sets whose elements are to be added next: all that rules look up and packets do
    /// not change.
    pub(crate) fn begin_sets(&mut self) -> Vec<Name> {
        for name in &self.changed {
            if let Some(set) = self.chains.sets.get_mut(name) {
                set.is_changed_by_packets();
            }
        }
        let mut names = core::mem::take(&mut self.looked_up);
        names.retain(|name| self.chains.sets.get_mut(name).is_some_and(Set::begin));
        names
    }

    /// Ends adding the elements of a set; `is_whole` is false if some are missing.
    pub(crate) fn end_set(&mut self, name: &Name, is_whole: bool) {
        if let Some(set) = self.chains.sets.get_mut(name) {
            if is_whole { set.finish() } else { set.forget() }
        }
    }

    /// Returns true if a rule marks packets for security modules.
    pub(crate) const fn marks(&self) -> bool {
        self.marks
    }

    /// Returns true if no chain is at a hook.
    pub(crate) fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Returns the first rule that could affect the session's packets, or the base chain whose
    /// policy could.
    pub(crate) fn concerning(&self, session: &Session) -> Option<String> {
        let left = looks();
        let concerns = |hook: &Hook| {
            let chain = &hook.chain;
            let packets = packets(hook, session)?;
            let walk = Walk { chains: &self.chains, packets, left: &left };
            match walk.fate(chain, DEPTH_MAX) {
                Fate::Accepted => None,
                Fate::Passed => {
                    hook.drops.then(|| RulePosition { chain: chain.clone(), rule: None })
                }
                Fate::Unsure(position) => Some(position),
            }
        };
        self.hooks.iter().find_map(concerns).map(|position| position.to_string())
    }
}

/// Returns the session's packets that reach a hook, if any do.
fn packets<'s>(hook: &Hook, session: &'s Session) -> Option<Packets<'s>> {
    use Direction::{In, Out};
    let family = hook.chain.family;
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

#[cfg(test)]
#[path = "ruleset_tests.rs"]
mod tests;
