//! Chains of rules, of nftables or of iptables' legacy tables, and the fate of a session's packets
//! in them.
//!
//! A chain that certainly lets the packets pass does not affect them. Not here: where the chains
//! come from (`ruleset`, `tables`), and single rules (`rule`, `entry`).

use crate::entry::RuleEntry;
use crate::packets::Packets;
use crate::registers::Holds;
use crate::rule::{Saying, Sets, sayings};
use crate::sets::Set;
use crate::verdict::Action;
use core::cell::Cell;
use core::fmt;
use std::collections::HashMap;

/// `NFT_JUMP_STACK_SIZE`.
pub(crate) const DEPTH_MAX: usize = 16;
/// Largest number of rules that are evaluated for one session, since jumps can multiply few rules;
/// beyond it the answer is "could affect". An element of a set counts as a sixteenth of a rule.
const LOOKS_MAX: usize = 65_536;
const ELEMENTS_PER_LOOK: usize = 16;

/// The full name of a chain, or of a set.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    pub(crate) family: u8,
    pub(crate) table: String,
    pub(crate) name: String,
}

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    /// The number by which nft(8) calls it, its handle; or iptables(8), its place in the chain.
    pub(crate) number: u64,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Expressions of nftables (`NFTA_RULE_EXPRESSIONS`).
    Expressions(Vec<u8>),
    /// An entry of a legacy table.
    Entry(RuleEntry),
}

/// The fate of packets in a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The packets certainly leave the hook unchanged.
    Accepted,
    /// The packets reach the end of the chain, or leave the hook unchanged before it.
    Passed,
    /// The fate of the packets cannot be known, because of what is there.
    Unsure(RulePosition),
}

/// Where a rule is that could affect packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RulePosition {
    pub(crate) chain: Name,
    /// The rule's number; `None` for the chain's policy.
    pub(crate) rule: Option<u64>,
}

/// Chains and sets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chains {
    pub(crate) rules: HashMap<Name, Vec<Rule>>,
    pub(crate) sets: HashMap<Name, Set>,
}

/// A walk of a session's packets through chains.
pub(crate) struct Walk<'r> {
    pub(crate) chains: &'r Chains,
    pub(crate) packets: Packets<'r>,
    /// Rules that may be looked at yet.
    pub(crate) left: &'r Cell<usize>,
}

/// Makes the number of rules that a session's packets may be held against.
pub(crate) const fn looks() -> Cell<usize> {
    Cell::new(LOOKS_MAX)
}

/// The sets of a table, as its rules name them.
struct OfTable<'r> {
    walk: &'r Walk<'r>,
    chain: &'r Name,
}

impl Sets for OfTable<'_> {
    fn set(&self, name: &str) -> Option<&Set> {
        let name = Name { name: name.into(), ..self.chain.clone() };
        let set = self.walk.chains.sets.get(&name)?;
        self.walk.looks(set.len() / ELEMENTS_PER_LOOK)?;
        Some(set)
    }
}

impl Walk<'_> {
    /// Takes so many rules off those that may be looked at; `None` if there are not so many left.
    fn looks(&self, count: usize) -> Option<()> {
        self.left.set(self.left.get().checked_sub(count)?);
        Some(())
    }

    /// Returns what a rule of `chain` does.
    fn sayings(&self, chain: &Name, rule: &Rule) -> Vec<Saying> {
        match &rule.body {
            Body::Expressions(all) => sayings(all, self.packets, &OfTable { walk: self, chain }),
            Body::Entry(entry) => entry.saying(self.packets).into_iter().collect(),
        }
    }

    /// Returns the fate of the packets in a chain.
    pub(crate) fn fate(&self, chain: &Name, depth: usize) -> Fate {
        let mut may_have_left = false;
        for rule in self.chains.rules.get(chain).into_iter().flatten() {
            let here = || RulePosition { chain: chain.clone(), rule: Some(rule.number) };
            if self.looks(1).is_none() {
                return Fate::Unsure(here());
            }
            for Saying { holds, action } in self.sayings(chain, rule) {
                let is_sure = holds == Holds::Always;
                let fate = match &action {
                    _ if holds == Holds::Never => continue,
                    Action::Continue => continue,
                    Action::Accept => Fate::Accepted,
                    Action::Return => Fate::Passed,
                    Action::Other => return Fate::Unsure(here()),
                    Action::Jump(target) | Action::Goto(target) => {
                        let Some(depth) = depth.checked_sub(1) else { return Fate::Unsure(here()) };
                        self.fate(&Name { name: target.clone(), ..chain.clone() }, depth)
                    }
                };
                match fate {
                    Fate::Unsure(position) => return Fate::Unsure(position),
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
        }
        Fate::Passed
    }
}

/// Writes the chain's name and the rule's number as nft(8) shows them.
impl fmt::Display for RulePosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Name { family, table, name } = &self.chain;
        let family = crate::family::name(*family);
        write!(out, "nftables chain {family} {table} {name}")?;
        match self.rule {
            Some(handle) => write!(out, ", rule with handle {handle}"),
            None => write!(out, ", policy"),
        }
    }
}
