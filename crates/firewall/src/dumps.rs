//! Reads the rule set of nftables: chains, rules, sets, and the elements of sets that rules look
//! up.
//!
//! That takes several questions, between which the rule set may change. So its generation, a number
//! that the kernel raises with each change, is asked for before and after. Not here: the meaning
//! (`ruleset`), and notice of changes (`kernel`).

use crate::attributes::number;
use crate::chains::Name;
use crate::netlink::{Question, ask, dump, dump_at_most};
use crate::ruleset::Ruleset;
use rustix::io::Errno;
use rustix::net::netlink;

/// `NFT_MSG_GETCHAIN`, `NFT_MSG_GETRULE`, `NFT_MSG_GETSET`, `NFT_MSG_GETSETELEM` and
/// `NFT_MSG_GETGEN` with `NFNL_SUBSYS_NFTABLES`.
const GET_CHAIN: u16 = 10 << 8 | 4;
const GET_RULE: u16 = 10 << 8 | 7;
const GET_SET: u16 = 10 << 8 | 10;
const GET_ELEMENTS: u16 = 10 << 8 | 13;
const GET_GENERATION: u16 = 10 << 8 | 16;
/// Bytes of nfnetlink's header (`struct nfgenmsg`).
const HEADER: usize = 4;
/// How often a rule set is read that changes meanwhile.
const TRIES: usize = 4;
/// Elements of all sets that are read (bytes as the kernel tells them). Lists of addresses of whole
/// countries are longer; of sets beyond it nothing is known.
const ELEMENTS_LEN_MAX: usize = 4 << 20;

const fn question(kind: u16, body: &[u8]) -> Question<'_> {
    Question { protocol: Some(netlink::NETFILTER), kind, body }
}

/// Reads the rule set.
///
/// # Errors
/// The kernel's; `INTR` if it has changed in every attempt.
pub(crate) fn ruleset() -> Result<Ruleset, Errno> {
    for _ in 0..TRIES {
        let before = generation()?;
        // Of nfnetlink's header: any family.
        let questions = [GET_CHAIN, GET_RULE, GET_SET].map(|kind| question(kind, &[0; HEADER]));
        let mut rules = dump(&questions, Ruleset::default, |rules: &mut Ruleset, message| {
            rules.add(message);
        })?;
        let is_whole = add_elements(&mut rules)?;
        if is_whole && generation()? == before {
            return Ok(rules);
        }
    }
    Err(Errno::INTR)
}

/// Asks for the generation of the rule set.
fn generation() -> Result<Option<u32>, Errno> {
    let mut generation = None;
    ask(question(GET_GENERATION, &[0; HEADER]), |message| {
        generation = message.body.get(HEADER..).and_then(|body| number(body, 1));
    })?;
    Ok(generation)
}

/// Adds the elements of sets. Returns false if one has changed meanwhile.
fn add_elements(rules: &mut Ruleset) -> Result<bool, Errno> {
    let mut left = ELEMENTS_LEN_MAX;
    for name in rules.begin_sets() {
        let body = request(&name);
        let question = question(GET_ELEMENTS, &body);
        match dump_at_most(question, &mut left, |message| rules.add(message)) {
            Ok(()) => rules.end_set(&name, true),
            Err(Errno::FBIG) => rules.end_set(&name, false),
            Err(Errno::INTR | Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Makes the request for a set's elements.
fn request(set: &Name) -> Vec<u8> {
    let mut body = vec![set.family, 0, 0, 0];
    for (kind, text) in [(1_u16, &set.table), (2, &set.name)] {
        // Names are shorter than 256 bytes, and end with a zero byte.
        let len = 4 + text.len() + 1;
        body.extend(u16::try_from(len).unwrap_or_default().to_ne_bytes());
        body.extend(kind.to_ne_bytes());
        body.extend(text.as_bytes());
        body.push(0);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body
}
