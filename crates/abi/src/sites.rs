//! Finding system calls in a program's text, and deciding how each is rewritten.
//!
//! # Theory of operation
//! The two bytes of `syscall` also occur within other instructions and in data. Where instructions
//! begin cannot be read off the bytes, but decoders that begin at different bytes fall into step
//! within a few instructions. So for each such pair of bytes decoding begins at every one of
//! [`STARTS`] neighbouring bytes, some way before. Where all that fell into step agree that an
//! instruction begins here, it is one; where they disagree, it is left alone (`Way::Left`), and
//! whoever traps calls (syscall user dispatch) finds out the truth when it is executed.
//!
//! Not here: what is written where (`patch`).

mod branches;
mod way;

use branches::Targets;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction};
pub use way::Way;

/// Executable bytes of a program.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The address of the first.
    pub address: u64,
    /// All of them.
    pub bytes: &'a [u8],
}

/// A system call in a program's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address of the `syscall` instruction.
    pub at: u64,
    /// The call's number, where it is moved into `eax` right before.
    pub number: Option<u32>,
    /// How it is rewritten.
    pub way: Way,
}

impl Site {
    /// The addresses of the bytes that are written over, or of the call itself: the first, and that
    /// behind the last.
    #[must_use]
    pub fn moved(&self) -> (u64, u64) {
        let end = self.at + SYSCALL.len() as u64;
        match self.way {
            Way::Before(len) => (self.at - u64::from(len), end),
            Way::Around(before, after) => (self.at - u64::from(before), end + u64::from(after)),
            Way::Left => (self.at, end),
        }
    }
}

/// What was found in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// In ascending order.
    pub sites: Vec<Site>,
    /// The address of an instruction that gives the GS register a base, if there is one.
    pub sets_gs: Option<u64>,
}

/// How many neighbouring bytes decoding begins at: as many as the longest instruction has.
const STARTS: usize = 15;
/// How far before a pair of bytes decoding begins (bytes).
const BEFORE: usize = 240;
/// Instructions kept of what precedes a site.
const KEPT: usize = 8;
const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Finds every system call, and decides what is done about each.
#[must_use]
pub fn find(text: Text<'_>) -> Found {
    let mut found = Found::default();
    let mut views = Vec::new();
    for at in pairs(text.bytes, SYSCALL) {
        match look(text, at, |code| code == Code::Syscall) {
            Sight::Nothing => {}
            Sight::Unsure => {
                let at = text.address + at as u64;
                found.sites.push(Site { at, number: None, way: Way::Left });
            }
            Sight::Seen(view) => views.push(view),
        }
    }
    let asked = views.iter().flat_map(|view| way::inside(view, text));
    let targets = Targets::find(text, asked);
    found.sites.extend(views.iter().map(|view| way::site(view, text, &targets)));
    found.sites.sort_by_key(|site| site.at);
    part(&mut found.sites);
    found.sets_gs = sets_gs(text);
    found
}

/// No two sites move the same bytes: the later one is left.
fn part(sites: &mut [Site]) {
    let mut taken = 0;
    for site in sites {
        let (first, _) = site.moved();
        if site.way != Way::Left && first < taken {
            site.way = Way::Left;
        }
        taken = taken.max(site.moved().1);
    }
}

/// `wrgsbase` (f3 [rex] 0f ae /3 with a register).
fn sets_gs(text: Text<'_>) -> Option<u64> {
    let is_it = |code| matches!(code, Code::Wrgsbase_r32 | Code::Wrgsbase_r64);
    let mut all = pairs(text.bytes, [0x0f, 0xae]);
    let at = all.find(|at| {
        let third = text.bytes.get(at + 2).copied().unwrap_or(0);
        let has_prefix = text.bytes[at.saturating_sub(2)..*at].contains(&0xf3);
        // mod 3, reg 3.
        has_prefix && third & 0xf8 == 0xd8 && !matches!(look(text, *at, is_it), Sight::Nothing)
    })?;
    Some(text.address + at as u64)
}

/// Where two bytes follow one another. Texts are long, and the first of them is rare.
fn pairs(bytes: &[u8], [first, second]: [u8; 2]) -> impl Iterator<Item = usize> + '_ {
    memchr::memchr_iter(first, bytes).filter(move |at| bytes.get(at + 1) == Some(&second))
}

/// A site with its neighbourhood.
pub(crate) struct View {
    /// The instruction itself.
    pub(crate) site: Instruction,
    /// What precedes it, the nearest last.
    pub(crate) before: Vec<Instruction>,
}

enum Sight {
    Nothing,
    Unsure,
    Seen(View),
}

/// What decoders see at a pair of bytes.
fn look(text: Text<'_>, at: usize, is_it: impl Fn(Code) -> bool) -> Sight {
    let first = at.saturating_sub(BEFORE);
    let (mut yes, mut no) = (0, 0);
    let mut view = None;
    for start in first..(first + STARTS).min(at + 1) {
        match decode(text, start, at) {
            Some(seen) if is_it(seen.site.code()) => {
                yes += 1;
                view = Some(match view.take() {
                    Some(other) => common(other, seen),
                    None => seen,
                });
            }
            Some(_) => no += 1,
            // Came upon what is no instruction: out of step, or data.
            None => {}
        }
        // From the text's first byte on it is known where instructions begin.
        if first == 0 {
            break;
        }
    }
    match (yes, no, view) {
        (0, ..) => Sight::Nothing,
        (_, 0, Some(view)) => Sight::Seen(view),
        _ => Sight::Unsure,
    }
}

/// Of two views of a site what both saw before it.
fn common(mut one: View, other: View) -> View {
    let pairs = one.before.iter().rev().zip(other.before.iter().rev());
    let same = pairs.take_while(|(one, other)| one.ip() == other.ip()).count();
    one.before.drain(..one.before.len() - same);
    one
}

/// Decodes from `start` to the instruction that holds the byte `at`. After what is no instruction
/// it goes on with the next byte, as disassemblers do; `None` if that is the one in question, or
/// right before it.
fn decode(text: Text<'_>, start: usize, at: usize) -> Option<View> {
    let bytes = &text.bytes[start..];
    let mut decoder =
        Decoder::with_ip(64, bytes, text.address + start as u64, DecoderOptions::NONE);
    let mut before: Vec<Instruction> = Vec::with_capacity(KEPT + 1);
    loop {
        let place = start + decoder.position();
        if place > at {
            return None;
        }
        let one = decoder.decode();
        if one.is_invalid() {
            before.clear();
            let next = place + 1 - start;
            if next > bytes.len() || decoder.set_position(next).is_err() {
                return None;
            }
            decoder.set_ip(text.address + (place + 1) as u64);
            continue;
        }
        if place + one.len() > at {
            return Some(View { site: one, before });
        }
        if before.len() == KEPT {
            before.remove(0);
        }
        before.push(one);
    }
}

#[cfg(test)]
#[path = "sites/tests.rs"]
mod tests;
