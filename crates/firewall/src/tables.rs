//! A table of the older iptables (`linux/netfilter_ipv4/ip_tables.h` and its IPv6 sister): which of
//! its chains could say something about a session's packets.
//!
//! A chain says nothing if it is empty and its policy is to accept. Rules are not read: any could
//! say something. Not here: tables that nftables keeps (`ruleset`).

use crate::session::{Family, Session};
use sojourn_wire::Protocol;

/// The length of `struct ipt_getinfo`, and of `struct ipt_get_entries` before its entries.
pub(crate) const INFO_LEN: usize = 84;
pub(crate) const ENTRIES: usize = 40;
/// In the first: which hooks there are, where the chain of each begins, and where its policy is;
/// how long the entries are.
const HOOKS: usize = 32;
const BEGINNINGS: usize = 36;
const POLICIES: usize = 56;
const SIZE: usize = 80;
/// Of `struct xt_entry_target` before what is its own.
const TARGET_LEN: usize = 32;
/// `-NF_ACCEPT - 1`, as a standard target has it.
const ACCEPT: i32 = -2;
/// Those that a session's packets come to, by number. What is forwarded is none of this host's.
const CONCERNING: [(usize, &str); 4] =
    [(0, "PREROUTING"), (1, "INPUT"), (3, "OUTPUT"), (4, "POSTROUTING")];

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) name: String,
    /// Its chains that could say something; `?` if it cannot be read.
    pub(crate) chains: Vec<&'static str>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// How long the entries are, from `struct ipt_getinfo`.
pub(crate) fn entries_len(info: &[u8]) -> Option<usize> {
    word(info, SIZE).map(|len| len as usize)
}

/// The chains that could say something. `None`: the table is not understood.
pub(crate) fn chains(family: Family, info: &[u8], entries: &[u8]) -> Option<Vec<&'static str>> {
    let hooks = word(info, HOOKS)?;
    let mut found = Vec::new();
    for (number, name) in CONCERNING.into_iter().filter(|(number, _)| hooks >> number & 1 == 1) {
        let beginning = word(info, BEGINNINGS + 4 * number)?;
        let policy = word(info, POLICIES + 4 * number)?;
        if beginning != policy || policy_of(family, entries, policy as usize)? != ACCEPT {
            found.push(name);
        }
    }
    Some(found)
}

/// The verdict of the entry there.
fn policy_of(family: Family, entries: &[u8], at: usize) -> Option<i32> {
    let offset = at + if family == Family::V4 { 88 } else { 140 };
    let target = u16::from_ne_bytes(entries.get(offset..offset + 2)?.try_into().ok()?);
    word(entries, at + usize::from(target) + TARGET_LEN).map(u32::cast_signed)
}

impl Table {
    /// The chain that could say something about the session's packets.
    pub(crate) fn concerning(&self, session: &Session) -> Option<String> {
        // Only the first packet of a connection comes to be translated.
        let is_past = self.name == "nat" && session.protocol == Protocol::Tcp;
        let chain = self.chains.first().filter(|_| !is_past && self.family == session.family())?;
        let command = if self.family == Family::V4 { "iptables" } else { "ip6tables" };
        Some(format!("{command}-legacy table {} chain {chain}", self.name))
    }
}
