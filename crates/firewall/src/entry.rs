//! One rule of a legacy table of iptables (`struct ipt_entry`, `struct ip6t_entry`): its match with
//! the packets of a session.
//!
//! Not here: the table (`tables`), and matches by name (`xtables`).

use crate::packets::{Packets, addresses};
use crate::registers::Holds;
use crate::rule::Saying;
use crate::session::{Direction, Family};
use crate::verdict::Action;
use crate::xtables::{self, interface, inverted_if, masked};

/// Offsets in an entry, and lengths.
struct Layout {
    /// Bytes of an address. Source, destination, and their masks begin the entry.
    address: usize,
    /// Names of the interfaces in and out, and their masks.
    interfaces: usize,
    protocol: usize,
    flags: usize,
    inverted: usize,
    /// Where the target begins, and where the next entry does, as offsets from this one.
    target: usize,
    /// Packets and bytes that the rule has counted.
    counters: usize,
    len: usize,
}

const V4: Layout = Layout {
    address: 4,
    interfaces: 16,
    protocol: 80,
    flags: 82,
    inverted: 83,
    target: 88,
    counters: 96,
    len: 112,
};
const V6: Layout = Layout {
    address: 16,
    interfaces: 64,
    protocol: 128,
    flags: 131,
    inverted: 132,
    target: 140,
    counters: 152,
    len: 168,
};
/// `IPT_INV_*`, which are those of IPv6 as well.
const INV_IN: u8 = 0x01;
const INV_OUT: u8 = 0x02;
const INV_SOURCE: u8 = 0x08;
const INV_TARGET: u8 = 0x10;
const INV_PROTOCOL: u8 = 0x40;
const INV_REST: u8 = !(INV_IN | INV_OUT | INV_SOURCE | INV_TARGET | INV_PROTOCOL);
/// Bytes of `struct xt_entry_match` and `struct xt_entry_target` before their own data, and of the
/// names in them.
pub(crate) const HEAD: usize = 32;
const NAME_END: usize = 31;
/// Verdicts of standard targets: `-NF_ACCEPT - 1`, and `XT_RETURN`.
pub(crate) const ACCEPT: i32 = -2;
const RETURN: i32 = -5;

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RuleEntry {
    family: Family,
    bytes: Vec<u8>,
    target: usize,
    pub(crate) action: Action,
}

/// A rule's target.
pub(crate) struct Target<'e> {
    /// The standard target's name is empty.
    pub(crate) name: String,
    pub(crate) data: &'e [u8],
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

const fn layout(family: Family) -> &'static Layout {
    match family {
        Family::V4 => &V4,
        Family::V6 => &V6,
    }
}

/// Returns the bytes of the entry at the beginning of `entries`, without its counters; `None` if it
/// is malformed.
pub(crate) fn first(family: Family, entries: &[u8]) -> Option<Vec<u8>> {
    let layout = layout(family);
    let len = half(entries, layout.target + 2)?;
    let mut entry = entries.get(..usize::from(len))?.to_vec();
    (entry.len() >= layout.len + HEAD).then_some(())?;
    entry.get_mut(layout.counters..layout.counters + 16)?.fill(0);
    Some(entry)
}

impl RuleEntry {
    /// Makes a rule of an entry's bytes; its action is still unknown.
    pub(crate) fn new(family: Family, bytes: Vec<u8>) -> Option<Self> {
        let layout = layout(family);
        let target = usize::from(half(&bytes, layout.target)?);
        (target >= layout.len && target + HEAD <= bytes.len()).then_some(())?;
        Some(Self { family, bytes, target, action: Action::Other })
    }

    /// Returns the entry's bytes.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the target.
    pub(crate) fn target(&self) -> Target<'_> {
        let target = self.bytes.get(self.target..).unwrap_or_default();
        Target { name: name_in(target), data: target.get(HEAD..).unwrap_or_default() }
    }

    /// Returns the verdict of a standard target: negative, or the offset of the entry that comes
    /// next.
    pub(crate) fn verdict(&self) -> Option<i32> {
        let Target { name, data } = self.target();
        let verdict = data.get(..4).filter(|_| name.is_empty())?;
        Some(i32::from_ne_bytes(verdict.try_into().ok()?))
    }

    /// Finds the action. `chain` returns the name of the chain that begins at an offset; the entry
    /// behind this one is at `next`.
    pub(crate) fn decide(&mut self, next: usize, chain: impl Fn(usize) -> Option<String>) {
        let goes = self.bytes.get(layout(self.family).flags).copied().unwrap_or_default();
        // `IPT_F_GOTO` and `IP6T_F_GOTO`.
        let is_goto = goes & if self.family == Family::V4 { 2 } else { 4 } != 0;
        self.action = match self.verdict() {
            Some(ACCEPT) => Action::Accept,
            Some(RETURN) => Action::Return,
            // A rule without a target is there for its counters.
            Some(at) if usize::try_from(at) == Ok(next) => Action::Other,
            Some(at) => match usize::try_from(at).ok().and_then(chain) {
                Some(chain) if is_goto => Action::Goto(chain),
                Some(chain) => Action::Jump(chain),
                None => Action::Other,
            },
            None => Action::Other,
        };
    }

    /// Returns the effect of the rule on packets; `None` if it has none.
    pub(crate) fn saying(&self, packets: Packets<'_>) -> Option<Saying> {
        let other = Saying { holds: Holds::Maybe, action: Action::Other };
        let Some(mut holds) = self.selects(packets) else { return Some(other) };
        let mut matches = self.bytes.get(layout(self.family).len..self.target).unwrap_or_default();
        while holds != Holds::Never && !matches.is_empty() {
            let len = half(matches, 0).map(usize::from).filter(|len| *len >= HEAD);
            let Some((one, rest)) = len.and_then(|len| matches.split_at_checked(len)) else {
                return Some(other);
            };
            let revision = one.get(NAME_END).copied().unwrap_or_default().into();
            let data = one.get(HEAD..).unwrap_or_default();
            let Some(now) = xtables::holds(&name_in(one), revision, data, packets) else {
                // Unless it certainly does not get that far.
                return Some(other);
            };
            holds = holds.and(now);
            matches = rest;
        }
        (holds != Holds::Never).then(|| Saying { holds, action: self.action.clone() })
    }

    /// Compares addresses, interfaces and the protocol.
    fn selects(&self, packets: Packets<'_>) -> Option<Holds> {
        let Layout { address, interfaces, protocol, flags, inverted, .. } = *layout(self.family);
        let part = |at: usize, len: usize| self.bytes.get(at..at + len);
        let inverted = *self.bytes.get(inverted)?;
        let [source, target] = addresses(packets);
        let mut holds = Holds::Always;
        for (place, known, inverts) in [(0, source, INV_SOURCE), (1, target, INV_TARGET)] {
            let (value, mask) =
                (part(place * address, address)?, part((place + 2) * address, address)?);
            let now = masked(&known, value, mask)?;
            holds = holds.and(inverted_if(now, inverted & inverts != 0));
        }
        let ways = [(0, Direction::In, INV_IN), (1, Direction::Out, INV_OUT)];
        for (place, way, inverts) in ways {
            let name = part(interfaces + 16 * place, 16)?;
            let mask = part(interfaces + 32 + 16 * place, 16)?;
            let now = interface(name, mask, way, packets)?;
            holds = holds.and(inverted_if(now, inverted & inverts != 0));
        }
        let asked = half(&self.bytes, protocol)?;
        if asked != 0 {
            let is_asked = asked == u16::from(packets.session.number());
            holds = holds.and(inverted_if(is_asked.into(), inverted & INV_PROTOCOL != 0));
        }
        // Fragments, or the class of traffic.
        let asks_for_more = match self.family {
            Family::V4 => 1,
            Family::V6 => 2,
        };
        let does = self.bytes.get(flags)? & asks_for_more != 0 || inverted & INV_REST != 0;
        Some(if does { holds.and(Holds::Maybe) } else { holds })
    }
}

/// Returns the name of a match or target.
fn name_in(bytes: &[u8]) -> String {
    let name = bytes.get(2..NAME_END).unwrap_or_default();
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    String::from_utf8_lossy(&name[..end]).into_owned()
}
