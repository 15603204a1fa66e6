//! A table of the legacy iptables (`linux/netfilter_ipv4/ip_tables.h` and its IPv6 counterpart):
//! finds the rule that could affect a session's packets.
//!
//! A table is a row of entries. Where chains begin tell the table's hooks, and entries with the
//! target `ERROR`, which precede the chains that users make. Not here: single rules (`entry`),
//! tables that nftables keeps (`ruleset`), reading tables (`kernel`).

use crate::chains::{Body, Chains, DEPTH_MAX, Fate, Name, Rule, RulePosition, Walk, looks};
use crate::entry::{ACCEPT, RuleEntry, Target, first};
use crate::packets::Packets;
use crate::session::{Direction, Family, Session};
use crate::xtables;
use sojourn_wire::Protocol;
use std::collections::HashMap;

/// Lengths of `struct ipt_getinfo`, and of `struct ipt_get_entries` before its entries.
pub(crate) const INFO_LEN: usize = 84;
pub(crate) const ENTRIES: usize = 40;
/// Offsets in `struct ipt_getinfo`: of the mask of hooks, of the beginning of each chain, of the
/// position of its policy, and of the length of the entries.
const HOOKS: usize = 32;
const BEGINNINGS: usize = 36;
const POLICIES: usize = 56;
const SIZE: usize = 80;
/// The hooks by number. Packets that are forwarded belong to no session of this host.
const CHAINS: [(&str, Option<Direction>); 5] = [
    ("PREROUTING", Some(Direction::In)),
    ("INPUT", Some(Direction::In)),
    ("FORWARD", None),
    ("OUTPUT", Some(Direction::Out)),
    ("POSTROUTING", Some(Direction::Out)),
];

/// One table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    family: Family,
    name: String,
    /// `None`: the table cannot be read.
    content: Option<Content>,
}

#[derive(Clone, Debug)]
struct Content {
    chains: Chains,
    hooks: Vec<Hook>,
    /// The entries without their counters.
    entries: Vec<Vec<u8>>,
    /// True if a rule marks packets for security modules.
    marks: bool,
}

/// A hook's chain.
#[derive(Clone, Debug)]
struct Hook {
    chain: Name,
    /// The direction of its packets.
    direction: Direction,
    /// True if its policy is to drop.
    drops: bool,
}

/// An entry with its offset.
struct Placed {
    at: usize,
    entry: RuleEntry,
}

/// A table as the kernel describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listing<'a> {
    /// `struct ipt_getinfo`.
    pub(crate) info: &'a [u8],
    /// The entries.
    pub(crate) entries: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Reads the length of the entries from `struct ipt_getinfo`.
pub(crate) fn entries_len(info: &[u8]) -> Option<usize> {
    word(info, SIZE).map(|len| len as usize)
}

impl Table {
    /// Makes a table; `None` for one that cannot be read.
    pub(crate) fn new(family: Family, name: &str, listing: Option<Listing<'_>>) -> Self {
        let content = listing.and_then(|listing| content(family, name, listing));
        Self { family, name: name.into(), content }
    }

    /// Returns true if the table is the same, whatever it has counted.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let entries = self.content.as_ref().map(|content| &content.entries);
        let others = other.content.as_ref().map(|content| &content.entries);
        (self.family, &self.name) == (other.family, &other.name) && entries == others
    }

    /// Returns true if no packet meets a rule, and every policy is to accept.
    pub(crate) fn is_empty(&self) -> bool {
        let Some(Content { chains, hooks, .. }) = &self.content else { return false };
        // The policy is the only rule.
        let has_rules = |chain: &Name| chains.rules.get(chain).is_none_or(|all| all.len() > 1);
        hooks.iter().all(|hook| !hook.drops && !has_rules(&hook.chain))
    }

    /// Returns true if a rule marks packets for security modules.
    pub(crate) fn marks(&self) -> bool {
        self.content.as_ref().is_some_and(|content| content.marks)
    }

    /// Returns the rule that could affect the session's packets.
    pub(crate) fn concerning(&self, session: &Session) -> Option<String> {
        // NAT chains see only the first packet of a connection, and a TCP session moves later.
        let is_past = self.name == "nat" && session.protocol == Protocol::Tcp;
        if is_past || self.family != session.family() {
            return None;
        }
        let command = if self.family == Family::V4 { "iptables" } else { "ip6tables" };
        let table = format!("{command}-legacy table {}", self.name);
        let Some(content) = &self.content else {
            return Some(format!("{table}, which cannot be read"));
        };
        let left = looks();
        let RulePosition { chain, rule } =
            content.hooks.iter().find_map(|Hook { chain, direction, drops }| {
                // Only the table `raw` comes before connection tracking.
                let is_tracked = self.name != "raw";
                let packets =
                    Packets { session, direction: *direction, is_at_interface: true, is_tracked };
                let walk = Walk { chains: &content.chains, packets, left: &left };
                match walk.fate(chain, DEPTH_MAX) {
                    Fate::Accepted => None,
                    Fate::Passed => {
                        drops.then(|| RulePosition { chain: chain.clone(), rule: None })
                    }
                    Fate::Unsure(position) => Some(position),
                }
            })?;
        Some(match rule.filter(|number| *number > 0) {
            Some(number) => format!("{table} chain {}, rule {number}", chain.name),
            None => format!("{table} chain {}, policy", chain.name),
        })
    }
}

/// Reads a table; `None` if it is malformed.
fn content(family: Family, table: &str, listing: Listing<'_>) -> Option<Content> {
    let Listing { info, entries: bytes } = listing;
    let name = |name: String| Name { family: 0, table: table.into(), name };
    let entries = split(family, bytes)?;
    let hooks = word(info, HOOKS)?;
    let mut starts = HashMap::new();
    let (mut policies, mut at_hooks) = (Vec::new(), Vec::new());
    for (number, (chain, direction)) in CHAINS.into_iter().enumerate() {
        if hooks >> number & 1 == 0 {
            continue;
        }
        let start = word(info, BEGINNINGS + 4 * number)? as usize;
        let policy = word(info, POLICIES + 4 * number)? as usize;
        let placed = entries.iter().find(|placed| placed.at == policy)?;
        let drops = placed.entry.verdict() != Some(ACCEPT);
        starts.insert(start, chain.to_owned()).is_none().then_some(())?;
        policies.push(policy);
        let hook = |direction| Hook { chain: name(chain.into()), direction, drops };
        at_hooks.extend(direction.map(hook));
    }
    for window in entries.windows(2) {
        if let [header, start] = window
            && let Some(chain) = chain_named_by(&header.entry)
        {
            starts.insert(start.at, chain).is_none().then_some(())?;
        }
    }
    let mut names: Vec<&String> = starts.values().collect();
    names.sort_unstable();
    // Two chains of one name would be taken for one.
    names.windows(2).all(|two| two[0] != two[1]).then_some(())?;
    let chains = in_chains(&entries, bytes.len(), &starts, &policies, name);
    let marks = entries.iter().any(|placed| xtables::marks(&placed.entry.target().name));
    let entries = entries.into_iter().map(|placed| placed.entry.into_bytes()).collect();
    Some(Content { chains, hooks: at_hooks, entries, marks })
}

/// Returns the entries; `None` if one is malformed.
fn split(family: Family, bytes: &[u8]) -> Option<Vec<Placed>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let entry = first(family, bytes.get(at..)?)?;
        let len = entry.len();
        all.push(Placed { at, entry: RuleEntry::new(family, entry)? });
        at += len;
    }
    Some(all)
}

/// Returns the name of the user's chain that begins behind an entry.
fn chain_named_by(entry: &RuleEntry) -> Option<String> {
    let Target { name, data } = entry.target();
    (name == "ERROR").then_some(())?;
    let end = data.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&data[..end]).into_owned())
}

/// Sorts entries into chains. A policy's number is 0.
fn in_chains(
    entries: &[Placed],
    len: usize,
    starts: &HashMap<usize, String>,
    policies: &[usize],
    name: impl Fn(String) -> Name,
) -> Chains {
    let mut chains = Chains::default();
    let mut current = None;
    for (index, Placed { at, entry }) in entries.iter().enumerate() {
        if let Some(start) = starts.get(at) {
            current = Some(name(start.clone()));
        }
        if chain_named_by(entry).is_some() {
            current = None;
        }
        let Some(chain) = current.clone() else { continue };
        let next = entries.get(index + 1).map_or(len, |next| next.at);
        let mut entry = entry.clone();
        entry.decide(next, |at| starts.get(&at).cloned());
        let rules = chains.rules.entry(chain).or_default();
        let number = if policies.contains(at) { 0 } else { rules.len() as u64 + 1 };
        rules.push(Rule { number, body: Body::Entry(entry) });
    }
    chains
}

#[cfg(test)]
#[path = "tables_tests.rs"]
mod tests;
