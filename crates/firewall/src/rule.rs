//! One rule of nftables: its match with the packets of a session, and its action.
//!
//! Expressions are evaluated as the kernel evaluates them, on registers of which only some bytes
//! are known (`registers`). An unknown expression could do anything. Numbers are those of
//! `linux/netfilter/nf_tables.h`. Not here: chains (`ruleset`), loaded values (`packets`), sets
//! (`sets`), matches of iptables (`xtables`).

use crate::attributes::{attributes, find, number, text};
use crate::packets::{Packets, known, meta, payload, route, tracked};
use crate::registers::{Holds, Known, Registers, equals, order, within};
use crate::sets::{Data, Element, Found, Set};
use crate::verdict::{Action, verdict};
use crate::xtables;

/// The register that holds the verdict (`NFT_REG_VERDICT`).
const VERDICT: u32 = 0;
/// `NFT_LOOKUP_F_INV`.
const INVERTED: u32 = 1;

/// The effect of a rule on a session's packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Saying {
    pub(crate) holds: Holds,
    pub(crate) action: Action,
}

/// The effect of one expression.
enum Effect {
    /// Compares; the rule goes on if the comparison holds.
    Test(Holds),
    /// Does nothing to packets.
    Next,
    /// Counts.
    Counts,
    Ends(Action),
    /// Each of these may be the verdict of some packets.
    MayEnd(Vec<Action>),
}

/// The sets that a rule can name.
pub(crate) trait Sets {
    /// Returns the set of that name. `None` if there is none, or too much has been looked at.
    fn set(&self, name: &str) -> Option<&Set>;
}

/// The state of an evaluation.
struct Evaluation<'r> {
    packets: Packets<'r>,
    sets: &'r dyn Sets,
    registers: Registers,
}

/// Evaluates a rule with these expressions (`NFTA_RULE_EXPRESSIONS`). Where a map may have several
/// verdicts for the packets there is one answer for each; together they mean as much as so many
/// rules in that order.
pub(crate) fn sayings(expressions: &[u8], packets: Packets<'_>, sets: &dyn Sets) -> Vec<Saying> {
    let mut evaluation = Evaluation { packets, sets, registers: Registers::new() };
    let (mut holds, mut counts, mut all) = (Holds::Always, false, Vec::new());
    for expression in attributes(expressions) {
        let name = text(expression.value, 1).unwrap_or_default();
        let data = find(expression.value, 2).unwrap_or_default();
        match evaluation.step(&name, data).unwrap_or(Effect::Ends(Action::Other)) {
            Effect::Test(Holds::Never) => return all,
            Effect::Test(Holds::Maybe) => holds = Holds::Maybe,
            Effect::Test(Holds::Always) | Effect::Next => {}
            Effect::Counts => counts = true,
            Effect::Ends(Action::Continue) => {}
            Effect::Ends(action) => {
                all.push(Saying { holds, action });
                return all;
            }
            Effect::MayEnd(actions) => {
                holds = Holds::Maybe;
                let ends = actions.into_iter().filter(|action| *action != Action::Continue);
                all.extend(ends.map(|action| Saying { holds, action }));
            }
        }
    }
    // A counter beside a verdict is by the way: iptables gives every rule one. A rule that only
    // counts is there for its number.
    let action = if counts { Action::Other } else { Action::Continue };
    all.push(Saying { holds, action });
    all
}

/// Returns true if an expression marks packets for security modules: an object for that
/// (`NFT_OBJECT_SECMARK`), a register's value (`NFT_META_SECMARK`), or a target of iptables.
pub(crate) fn marks(expressions: &[u8]) -> bool {
    attributes(expressions).any(|expression| {
        let name = text(expression.value, 1).unwrap_or_default();
        let data = find(expression.value, 2).unwrap_or_default();
        match name.as_str() {
            // One of a map may be any.
            "objref" => number(data, 1).is_none_or(|kind| kind == 8),
            // With the register that is the source.
            "meta" => number(data, 2) == Some(14) && find(data, 3).is_some(),
            "target" => text(data, 1).is_some_and(|name| xtables::marks(&name)),
            _ => false,
        }
    })
}

impl Evaluation<'_> {
    /// Evaluates one expression. Returns `None` if it is not understood.
    fn step(&mut self, name: &str, data: &[u8]) -> Option<Effect> {
        let packets = self.packets;
        match name {
            "counter" => Some(Effect::Counts),
            // Each of these loads a register; the forms that write to packets have no such
            // attribute, or none at that place.
            "meta" => self.load(number(data, 1)?, &meta(number(data, 2)?, packets)?),
            // Values of one direction (`NFTA_CT_DIRECTION`) are not understood.
            "ct" if find(data, 3).is_none() => {
                self.load(number(data, 1)?, &tracked(number(data, 2)?, packets)?)
            }
            "payload" => self.load(number(data, 1)?, &payload(data, packets)?),
            "fib" => self.load(number(data, 1)?, &route(data)?),
            "bitwise" => bitwise(data, &mut self.registers).map(|()| Effect::Next),
            "byteorder" => byteorder(data, &mut self.registers).map(|()| Effect::Next),
            "cmp" => compare(data, &self.registers).map(Effect::Test),
            "range" => range(data, &self.registers).map(Effect::Test),
            "lookup" => self.look_up(data),
            "match" => {
                let (name, info) = (text(data, 1)?, find(data, 3)?);
                xtables::holds(&name, number(data, 2)?, info, packets).map(Effect::Test)
            }
            "immediate" => self.immediate(data),
            _ => None,
        }
    }

    /// Loads a register. A value that is not known may also be missing, and then the rule ends.
    fn load(&mut self, register: u32, value: &[Option<u8>]) -> Option<Effect> {
        self.registers.store(register, value)?;
        let is_known = value.iter().all(Option::is_some);
        Some(Effect::Test(if is_known { Holds::Always } else { Holds::Maybe }))
    }

    fn immediate(&mut self, data: &[u8]) -> Option<Effect> {
        let register = number(data, 1)?;
        let data = find(data, 2)?;
        if register == VERDICT {
            return verdict(data).map(Effect::Ends);
        }
        self.load(register, &known(find(data, 1)?))
    }

    /// Evaluates `lookup`: of a set, of a map to verdicts, or of one to other values.
    fn look_up(&mut self, data: &[u8]) -> Option<Effect> {
        let target = find(data, 3).map(|_| number(data, 3));
        let is_inverted = number(data, 5).is_some_and(|flags| flags & INVERTED != 0);
        let Some(set) = self.sets.set(&text(data, 1)?) else {
            // Of a set that is not read any packet may be in, but only of a set.
            return target.is_none().then_some(Effect::Test(Holds::Maybe));
        };
        let found = set.look_up(&self.registers.load(number(data, 2)?, set.key_len())?);
        if acts(&found) {
            return None;
        }
        let Some(register) = target else {
            let holds = match found {
                Found::One(_) => Holds::Always,
                Found::Nothing => Holds::Never,
                Found::Some(_) | Found::Unknown => Holds::Maybe,
            };
            return Some(Effect::Test(if is_inverted { holds.not() } else { holds }));
        };
        match (register?, found) {
            (_, Found::Nothing) => Some(Effect::Test(Holds::Never)),
            (_, Found::Unknown) => None,
            (VERDICT, Found::One(element)) => action(element).map(Effect::Ends),
            (VERDICT, Found::Some(elements)) => {
                elements.into_iter().map(action).collect::<Option<_>>().map(Effect::MayEnd)
            }
            (register, Found::One(Element { data: Data::Value(value), .. })) => {
                self.load(register, &known(value))
            }
            (register, _) => {
                let len = set.data_len;
                self.load(register, &vec![None; len])
            }
        }
    }
}

/// Returns true if an element that may be found does something of its own.
fn acts(found: &Found<'_>) -> bool {
    match found {
        Found::One(element) => element.acts,
        Found::Some(elements) => elements.iter().any(|element| element.acts),
        Found::Nothing | Found::Unknown => false,
    }
}

/// Returns the verdict of a map's element.
fn action(element: &Element) -> Option<Action> {
    match &element.data {
        Data::Verdict(action) => Some(action.clone()),
        _ => None,
    }
}

fn bitwise(data: &[u8], registers: &mut Registers) -> Option<()> {
    // Only NFT_BITWISE_BOOL (mask and xor) is understood; shifts are not.
    if number(data, 6).is_some_and(|operation| operation != 0) {
        return None;
    }
    let (mask, xor) = (find(find(data, 4)?, 1)?, find(find(data, 5)?, 1)?);
    let value = registers.load(number(data, 1)?, mask.len())?;
    if xor.len() != mask.len() {
        return None;
    }
    let one = |((byte, mask), xor): ((Option<u8>, &u8), &u8)| match (byte, mask) {
        (_, 0) => Some(*xor),
        (Some(byte), mask) => Some(byte & mask ^ xor),
        (None, _) => None,
    };
    let value: Known = value.into_iter().zip(mask).zip(xor).map(one).collect();
    registers.store(number(data, 2)?, &value)
}

/// Swaps the bytes of numbers; both directions are the same.
fn byteorder(data: &[u8], registers: &mut Registers) -> Option<()> {
    let (len, size) = (number(data, 4)? as usize, number(data, 5)? as usize);
    if !matches!(size, 2 | 4 | 8) || !len.is_multiple_of(size) {
        return None;
    }
    let mut value = registers.load(number(data, 1)?, len)?;
    if cfg!(target_endian = "little") {
        value.chunks_exact_mut(size).for_each(<[_]>::reverse);
    }
    registers.store(number(data, 2)?, &value)
}

fn compare(data: &[u8], registers: &Registers) -> Option<Holds> {
    let value = find(find(data, 3)?, 1)?;
    let known = registers.load(number(data, 1)?, value.len())?;
    let order = order(&known, value);
    Some(match number(data, 2)? {
        0 => equals(&known, value),
        1 => equals(&known, value).not(),
        2 => order.map(core::cmp::Ordering::is_lt).into(),
        3 => order.map(core::cmp::Ordering::is_le).into(),
        4 => order.map(core::cmp::Ordering::is_gt).into(),
        5 => order.map(core::cmp::Ordering::is_ge).into(),
        _ => return None,
    })
}

fn range(data: &[u8], registers: &Registers) -> Option<Holds> {
    let (from, to) = (find(find(data, 3)?, 1)?, find(find(data, 4)?, 1)?);
    let known = registers.load(number(data, 1)?, from.len())?;
    let holds = (from.len() == to.len() && from <= to).then(|| within(&known, from, to))?;
    Some(if number(data, 2)? == 0 { holds } else { holds.not() })
}
