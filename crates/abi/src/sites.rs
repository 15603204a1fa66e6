//! The sites of a text: its system calls, and the decision how each is rewritten.
//!
//! # Theory of operation
//! The two bytes of `syscall` also occur within other instructions and in data, and the bytes alone
//! do not tell where instructions begin. But decoders that begin at different bytes fall into step
//! within a few instructions (`look`). If all decoders that fell into step agree that an
//! instruction begins at a byte, then it does. If they disagree, the site is left alone
//! (`Rewrite::Unchanged`), and the trap for system calls (syscall user dispatch) catches the call
//! when it is executed.
//!
//! Not here: the bytes that are written (`patch`).

mod branches;
mod look;
mod rewrite;
mod text;

use branches::Targets;
use iced_x86::{Code, Instruction};
use look::{Sight, look};
pub use rewrite::{Rewrite, Site};
pub use text::Text;
use text::pairs;

/// The result of a search in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The system calls in ascending order.
    pub sites: Vec<Site>,
    /// The address of an instruction that sets the base of the GS register, if there is one.
    pub sets_gs: Option<u64>,
    /// The program's file has a test of its own code's integrity ([`tests_integrity`]).
    pub tests_integrity: bool,
}

/// A system call, without a decision how it is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The address of the `syscall` instruction.
    pub at: u64,
    /// The call's number, if an instruction before the call loads it into `eax`. A jump may lead
    /// past that instruction, with another number.
    pub number: Option<u32>,
    /// False if decoders disagree, or if the instruction has a meaningless prefix.
    pub is_certain: bool,
}

/// Finds every system call, and what may be one.
pub fn calls(text: Text<'_>) -> impl Iterator<Item = Call> + '_ {
    pairs(text.bytes, &[0x0f, 0x05]).filter_map(move |place| {
        let at = text.address + place as u64;
        match look(text, place, |one| one.code() == Code::Syscall) {
            Sight::Nothing => None,
            Sight::Unsure => Some(Call { at, number: None, is_certain: false }),
            Sight::Seen(view) => {
                let is_certain = view.site.ip() == at && view.site.len() == 2;
                Some(Call { at, number: rewrite::number(&view), is_certain })
            }
        }
    })
}

/// Finds every system call, and decides how each is rewritten. Whether the program tests its
/// integrity the text does not tell.
#[must_use]
pub fn find(text: Text<'_>) -> Found {
    let mut found = Found::default();
    let mut views = Vec::new();
    for at in pairs(text.bytes, &[0x0f, 0x05]) {
        match look(text, at, |one| one.code() == Code::Syscall) {
            Sight::Nothing => {}
            Sight::Unsure => {
                let at = text.address + at as u64;
                found.sites.push(Site { at, number: None, rewrite: Rewrite::Unchanged });
            }
            Sight::Seen(view) => views.push(view),
        }
    }
    let asked = views.iter().flat_map(|view| rewrite::inside(view, text));
    let targets = Targets::find(text, asked);
    found.sites.extend(views.iter().map(|view| rewrite::site(view, text, &targets)));
    found.sites.sort_by_key(|site| site.at);
    part(&mut found.sites);
    found.sets_gs = sets_gs(text);
    found
}

/// A part of the message of BoringSSL's and AWS-LC's integrity test (FIPS 140), which compares
/// the code in memory with a checksum and ends the program if it has been changed.
const INTEGRITY: &[u8] = b"FIPS integrity test";

/// Returns true if a program, by the bytes of its file, tests the integrity of its code: then its
/// code must stay as it is.
#[must_use]
pub fn tests_integrity(file: &[u8]) -> bool {
    memchr::memmem::find(file, INTEGRITY).is_some()
}

/// Leaves each site alone that would move the same bytes as an earlier one.
fn part(sites: &mut [Site]) {
    let mut taken = 0;
    for site in sites {
        if site.rewrite != Rewrite::Unchanged && site.moved().start < taken {
            site.rewrite = Rewrite::Unchanged;
        }
        taken = taken.max(site.moved().end);
    }
}

/// Returns the address of a `wrgsbase`: `f3`, an optional REX prefix, `0f ae /3` with a register.
fn sets_gs(text: Text<'_>) -> Option<u64> {
    let is_it = |one: &Instruction| matches!(one.code(), Code::Wrgsbase_r32 | Code::Wrgsbase_r64);
    let mut all = pairs(text.bytes, &[0x0f, 0xae]);
    let at = all.find(|at| {
        let third = text.bytes.get(at + 2).copied().unwrap_or(0);
        let has_prefix = text.bytes[at.saturating_sub(2)..*at].contains(&0xf3);
        // The ModR/M byte has mod 3 and reg 3.
        has_prefix && third & 0xf8 == 0xd8 && !matches!(look(text, *at, is_it), Sight::Nothing)
    })?;
    Some(text.address + at as u64)
}

#[cfg(test)]
#[path = "sites/tests.rs"]
mod tests;
