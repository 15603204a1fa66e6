//! Sets and maps of nftables: whether a key of which only some bytes are known is in one.
//!
//! An element that expires, or a set that packets change, may be another by the next packet, and
//! nobody tells of that: a match there is never certain. All other changes come with a notice
//! (`kernel`). Not here: the `lookup` expression (`rule`), and reading sets (`dumps`).

use crate::attributes::{attributes, find, number, text};
use crate::registers::{Holds, within};
use crate::verdict::{Action, verdict};

/// `NFT_SET_INTERVAL`, `NFT_SET_MAP`, `NFT_SET_EVAL` (packets change the set) and `NFT_SET_OBJECT`.
const INTERVAL: u32 = 0x4;
const EVAL: u32 = 0x20;
const OBJECT: u32 = 0x40;
/// `NFT_SET_ELEM_INTERVAL_END` and `NFT_SET_ELEM_CATCHALL`.
const INTERVAL_END: u32 = 1;
const CATCHALL: u32 = 2;
/// `NFTA_SET_*`.
const SET_FLAGS: u16 = 3;
const KEY_LEN: u16 = 5;
const DATA_LEN: u16 = 7;
const DESCRIPTION: u16 = 9;
const SET_EXPRESSION: u16 = 17;
const SET_EXPRESSIONS: u16 = 18;
/// `NFTA_SET_ELEM_*`.
const KEY: u16 = 1;
const DATA: u16 = 2;
const FLAGS: u16 = 3;
const TIMEOUT: u16 = 4;
const EXPIRATION: u16 = 5;
const EXPRESSION: u16 = 7;
const OBJECT_NAME: u16 = 9;
const KEY_END: u16 = 10;
const EXPRESSIONS: u16 = 11;
/// Sets with more elements count as unreadable.
pub(crate) const ELEMENTS_MAX: usize = 16_384;
/// Longer keys do not fit into the registers.
const KEY_MAX: usize = 64;

/// What a map has for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Data {
    None,
    Value(Vec<u8>),
    Verdict(Action),
    /// Not understood.
    Other,
}

/// An element: the range of keys that it stands for, both ends included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    from: Vec<u8>,
    to: Vec<u8>,
    /// True for the second of the two elements that an interval is told as.
    is_end: bool,
    /// True for the element of all keys that have no other.
    is_catchall: bool,
    /// True if the element does not expire.
    is_lasting: bool,
    /// True if a match does something of its own: counts, limits.
    pub(crate) acts: bool,
    pub(crate) data: Data,
}

/// The result of a lookup.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found<'s> {
    /// That element, for all packets.
    One(&'s Element),
    /// No element, for all packets.
    Nothing,
    /// One of these, or none.
    Some(Vec<&'s Element>),
    /// Nothing is known of the elements.
    Unknown,
}

/// A set or map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Set {
    flags: u32,
    key_len: usize,
    pub(crate) data_len: usize,
    /// The lengths of a concatenation's fields, each rounded up to four bytes; otherwise the key's.
    fields: Vec<usize>,
    /// `None`: they are not read, or there are too many.
    elements: Option<Vec<Element>>,
    /// True if the set has expressions for each of its elements.
    acts: bool,
}

impl Set {
    /// Reads a set's attributes (`NFTA_SET_*`), without elements.
    pub(crate) fn new(body: &[u8]) -> Self {
        let len = |kind| number(body, kind).unwrap_or_default() as usize;
        let key_len = len(KEY_LEN);
        let concatenation = find(body, DESCRIPTION).and_then(|description| find(description, 2));
        let field = |one: crate::attributes::Attribute<'_>| number(one.value, 1);
        let of_field = |len: u32| (len as usize).next_multiple_of(4);
        let mut fields: Vec<usize> =
            attributes(concatenation.unwrap_or_default()).filter_map(field).map(of_field).collect();
        if fields.iter().sum::<usize>() != key_len {
            fields = vec![key_len];
        }
        let acts = [SET_EXPRESSION, SET_EXPRESSIONS].iter().any(|kind| find(body, *kind).is_some());
        let flags = number(body, SET_FLAGS).unwrap_or_default();
        Self { flags, key_len, data_len: len(DATA_LEN), fields, elements: None, acts }
    }

    /// Adds elements (`NFTA_SET_ELEM_LIST_ELEMENTS`). Too many, or one that is malformed, make the
    /// set unreadable for good.
    pub(crate) fn add(&mut self, elements: &[u8]) {
        let is_readable = (1..=KEY_MAX).contains(&self.key_len);
        let Some(all) = self.elements.as_mut().filter(|_| is_readable) else { return };
        for one in attributes(elements) {
            let element = Element::new(one.value, self.key_len, self.acts);
            match element.filter(|_| all.len() < ELEMENTS_MAX) {
                Some(mut element) => {
                    // Kernels tell such an interval as two elements; whether the end belongs to one
                    // that is told as this is not known.
                    element.is_lasting &= self.fields.len() > 1 || element.from == element.to;
                    all.push(element);
                }
                None => return self.elements = None,
            }
        }
    }

    /// Begins to read the elements: those that are added from now on are all. Returns false if the
    /// set is one whose elements say nothing.
    pub(crate) fn begin(&mut self) -> bool {
        let may_be_read = self.flags & (EVAL | OBJECT) == 0;
        self.elements = may_be_read.then(Vec::new);
        may_be_read
    }

    /// Gives up reading the elements.
    pub(crate) fn forget(&mut self) {
        self.elements = None;
    }

    /// Notes that rules add elements when packets come.
    pub(crate) fn is_changed_by_packets(&mut self) {
        self.flags |= EVAL;
        self.elements = None;
    }

    /// Ends reading the elements: two that are told for an interval become one.
    pub(crate) fn finish(&mut self) {
        let Some(all) = self.elements.take() else { return };
        let is_in_pairs = self.flags & INTERVAL != 0 && all.iter().any(|one| one.is_end);
        let is_simple = self.flags & INTERVAL != 0 && self.fields.len() == 1;
        self.elements = Some(if is_in_pairs || is_simple { paired(all) } else { all });
    }

    /// The number of elements that a lookup compares.
    pub(crate) fn len(&self) -> usize {
        self.elements.as_ref().map_or(0, Vec::len)
    }

    pub(crate) const fn key_len(&self) -> usize {
        self.key_len
    }

    /// Looks a key up.
    pub(crate) fn look_up(&self, key: &[Option<u8>]) -> Found<'_> {
        let Some(elements) = &self.elements else { return Found::Unknown };
        let mut possible = Vec::new();
        let mut catchall = None;
        for element in elements {
            if element.is_catchall {
                catchall = Some(element);
                continue;
            }
            match element.has(key, &self.fields) {
                Holds::Never => {}
                Holds::Always if element.is_lasting => return Found::One(element),
                Holds::Always | Holds::Maybe => possible.push(element),
            }
        }
        match catchall {
            Some(element) if possible.is_empty() && element.is_lasting => Found::One(element),
            None if possible.is_empty() => Found::Nothing,
            catchall => {
                possible.extend(catchall);
                Found::Some(possible)
            }
        }
    }
}

impl Element {
    /// Reads an element (`NFTA_SET_ELEM_*`); `None` if it is malformed.
    fn new(body: &[u8], key_len: usize, acts: bool) -> Option<Self> {
        let flags = number(body, FLAGS).unwrap_or_default();
        let is_catchall = flags & CATCHALL != 0;
        let key = |kind| {
            find(body, kind)
                .and_then(|key| find(key, 1))
                .filter(|key| key.len() == key_len)
                .map(<[u8]>::to_vec)
        };
        let from = if is_catchall { Vec::new() } else { key(KEY)? };
        let to = match find(body, KEY_END) {
            Some(_) => key(KEY_END)?,
            None => from.clone(),
        };
        let has = |kinds: &[u16]| kinds.iter().any(|kind| find(body, *kind).is_some());
        let data = match find(body, DATA) {
            None if has(&[OBJECT_NAME]) => Data::Other,
            None => Data::None,
            Some(data) => match (find(data, 1), verdict(data)) {
                (Some(value), _) => Data::Value(value.to_vec()),
                (None, Some(action)) => Data::Verdict(action),
                (None, None) => Data::Other,
            },
        };
        let is_lasting = !has(&[TIMEOUT, EXPIRATION]);
        let acts = acts || has(&[EXPRESSION, EXPRESSIONS]);
        let is_end = flags & INTERVAL_END != 0;
        Some(Self { from, to, is_end, is_catchall, is_lasting, acts, data })
    }

    /// Tells whether a key is in the element's range: in each of its fields.
    fn has(&self, key: &[Option<u8>], fields: &[usize]) -> Holds {
        let mut holds = Holds::Always;
        let mut at = 0;
        for len in fields {
            let place = at..at + len;
            at += len;
            let parts = (key.get(place.clone()), self.from.get(place.clone()), self.to.get(place));
            let (Some(key), Some(from), Some(to)) = parts else { return Holds::Maybe };
            holds = holds.and(within(key, from, to));
        }
        holds
    }
}

/// Makes intervals of their beginnings and ends. An interval goes to the next element of either
/// kind; the end itself does not belong to it.
fn paired(all: Vec<Element>) -> Vec<Element> {
    let (mut intervals, mut single): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|one| !one.is_catchall && one.from == one.to);
    intervals.sort_by(|one, other| one.from.cmp(&other.from).then(other.is_end.cmp(&one.is_end)));
    let mut open: Option<Element> = None;
    for element in intervals {
        if let Some(mut before) = open.take()
            && before.from < element.from
        {
            before.to = one_less(&element.from);
            single.push(before);
        }
        open = Some(element).filter(|element| !element.is_end);
    }
    if let Some(mut last) = open {
        last.to = vec![0xff; last.from.len()];
        single.push(last);
    }
    single
}

/// Returns the number before that one, which is not zero, in network byte order.
fn one_less(number: &[u8]) -> Vec<u8> {
    let mut less = number.to_vec();
    for byte in less.iter_mut().rev() {
        let (now, borrows) = byte.overflowing_sub(1);
        *byte = now;
        if !borrows {
            break;
        }
    }
    less
}

/// A set that an expression uses.
pub(crate) struct SetUse {
    pub(crate) name: String,
    /// True if it changes with what packets contain; false if it is looked up.
    pub(crate) is_changed: bool,
}

/// Returns the sets that expressions use.
pub(crate) fn uses_in(expressions: &[u8]) -> impl Iterator<Item = SetUse> {
    attributes(expressions).filter_map(|expression| {
        let data = find(expression.value, 2)?;
        match text(expression.value, 1)?.as_str() {
            "lookup" => Some(SetUse { name: text(data, 1)?, is_changed: false }),
            "dynset" => Some(SetUse { name: text(data, 1)?, is_changed: true }),
            _ => None,
        }
    })
}

#[cfg(test)]
#[path = "sets_tests.rs"]
mod tests;
