//! A table of the legacy iptables (`linux/netfilter_ipv4/ip_tables.h` and its IPv6 counterpart):
//! finds the chains that could affect a session's packets.
//!
//! A chain without rules whose policy is to accept affects nothing. Rules are not read: any rule
//! could affect packets. Not here: tables that nftables keeps (`ruleset`).

use crate::session::{Family, Session};
use sojourn_wire::Protocol;

/// Lengths of `struct ipt_getinfo`, and of `struct ipt_get_entries` before its entries.
pub(crate) const INFO_LEN: usize = 84;
pub(crate) const ENTRIES: usize = 40;
/// Offsets in `struct ipt_getinfo`: of the mask of hooks, of the beginning of each chain, of the
/// position of its policy, and of the length of the entries.
const HOOKS: usize = 32;
const BEGINNINGS: usize = 36;
const POLICIES: usize = 56;
const SIZE: usize = 80;
/// Bytes of `struct xt_entry_target` before the target's own data.
const TARGET_LEN: usize = 32;
/// The verdict of a standard target that accepts: `-NF_ACCEPT - 1`.
const ACCEPT: i32 = -2;
/// The hooks that a session's packets reach, by number. FORWARD is missing: forwarded packets
/// belong to no session of this host.
const CONCERNING: [(usize, &str); 4] =
    [(0, "PREROUTING"), (1, "INPUT"), (3, "OUTPUT"), (4, "POSTROUTING")];

/// One table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) family: Family,
    pub(crate) name: String,
    /// The chains that could affect packets; `?` if the table cannot be read.
    pub(crate) chains: Vec<&'static str>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Reads the length of the entries from `struct ipt_getinfo`.
pub(crate) fn entries_len(info: &[u8]) -> Option<usize> {
    word(info, SIZE).map(|len| len as usize)
}

/// Returns the chains that could affect packets; `None` if the table is malformed.
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

/// Returns the verdict of the entry at an offset.
fn policy_of(family: Family, entries: &[u8], at: usize) -> Option<i32> {
    let offset = at + if family == Family::V4 { 88 } else { 140 };
    let target = u16::from_ne_bytes(entries.get(offset..offset + 2)?.try_into().ok()?);
    word(entries, at + usize::from(target) + TARGET_LEN).map(u32::cast_signed)
}

impl Table {
    /// Returns the name of the first chain that could affect the session's packets.
    pub(crate) fn concerning(&self, session: &Session) -> Option<String> {
        // NAT chains see only the first packet of a connection, and a TCP session moves later.
        let is_past = self.name == "nat" && session.protocol == Protocol::Tcp;
        let chain = self.chains.first().filter(|_| !is_past && self.family == session.family())?;
        let command = if self.family == Family::V4 { "iptables" } else { "ip6tables" };
        Some(format!("{command}-legacy table {} chain {chain}", self.name))
    }
}
