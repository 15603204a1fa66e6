//! Notice that the library in a program gives to observers of the process: no session of this
//! process moves any more, and why.
//!
//! Not here: putting up the notice (`sojourn-preload`, `notice`), and the other observations from
//! outside (`sojourn ss`).
//!
//! # Theory of operation
//! A library that has stood down cannot report its state: it may have neither a thread nor a
//! descriptor, and system calls may be forbidden to it. But every observer with the right to
//! inspect a process sees its mappings and their access rights in `/proc/PID/maps` (proc(5)). So
//! the library reserves a few pages right behind its data for this purpose alone, and removes the
//! right to read from as many of them as the number of the notice. The resulting rights `-w-p`
//! (writable, not readable) are used by nothing else. A `fork` child has the same memory and the
//! same state, so it shows the same notice; `exec` ends both.

use crate::ReasonT;
use core::ops::Range;

/// Reasons that a notice can give. The number of a reason's pages is its place here, counted from
/// one.
const SAID: [ReasonT; 3] = [ReasonT::Sandbox, ReasonT::Prohibited, ReasonT::StoodDown];

/// Number of pages that the library must reserve for any notice.
pub const PAGES: usize = SAID.len();

/// Access rights by which the pages of a notice are recognized.
const RIGHTS: &str = "-w-p";

/// Returns the number of pages that show `reason`, or 0 if no notice can give that reason.
#[must_use]
pub fn pages(reason: ReasonT) -> usize {
    SAID.iter().position(|said| *said == reason).map_or(0, |at| at + 1)
}

/// Returns the notice among a process's mappings, given as the text of `/proc/PID/maps`.
///
/// `page` is the size of a page (bytes). `is_library` returns true for a line whose file is the
/// library.
#[must_use]
pub fn find(maps: &str, page: u64, is_library: impl Fn(&str) -> bool) -> Option<ReasonT> {
    // End of the library's mappings so far, with the mappings without a file right behind them (the
    // library's `.bss` is one).
    let mut end = None;
    for line in maps.lines() {
        let Some(MappingLine { range, rights }) = MappingLine::parse(line) else { continue };
        let is_behind = end == Some(range.start);
        if is_behind && rights == RIGHTS {
            let count = usize::try_from(range.end.checked_sub(range.start)? / page.max(1)).ok()?;
            return SAID.get(count.checked_sub(1)?).copied();
        }
        let has_file = line.split_ascii_whitespace().nth(5).is_some();
        let goes_on = is_library(line) || (is_behind && !has_file);
        end = goes_on.then_some(range.end);
    }
    None
}

/// A line of `/proc/PID/maps` (proc(5)).
#[derive(Clone, Debug)]
pub struct MappingLine<'a> {
    /// The addresses.
    pub range: Range<u64>,
    /// The access rights, as in `r-xp`.
    pub rights: &'a str,
}

impl<'a> MappingLine<'a> {
    /// Reads a line.
    #[must_use]
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut fields = line.split_ascii_whitespace();
        let (from, to) = fields.next()?.split_once('-')?;
        let address = |digits| u64::from_str_radix(digits, 16).ok();
        Some(Self { range: address(from)?..address(to)?, rights: fields.next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_library(line: &str) -> bool {
        line.ends_with("/libsojourn_preload.so")
    }

    fn of(lines: &[&str]) -> Option<ReasonT> {
        find(&lines.join("\n"), 4096, is_library)
    }

    const CODE: &str = "7f10000000-7f10100000 r-xp 00001000 08:01 77 /lib/libsojourn_preload.so";
    const DATA: &str = "7f10100000-7f10102000 rw-p 00101000 08:01 77 /lib/libsojourn_preload.so";
    const BSS: &str = "7f10102000-7f10103000 rw-p 00000000 00:00 0";

    #[test]
    fn every_notice_is_found_again() {
        for reason in SAID {
            let to = 0x7f_1010_3000_u64 + pages(reason) as u64 * 4096;
            let notice = format!("7f10103000-{to:x} -w-p 00000000 00:00 0");
            let rest = format!("{to:x}-7f10200000 rw-p 00000000 00:00 0");
            assert_eq!(of(&[CODE, DATA, BSS, &notice, &rest]), Some(reason));
            let to = 0x7f_1010_2000_u64 + pages(reason) as u64 * 4096;
            let at_once = format!("7f10102000-{to:x} -w-p 00000000 00:00 0");
            assert_eq!(of(&[CODE, DATA, &at_once]), Some(reason), "nothing between");
        }
        assert_eq!(pages(ReasonT::Fork), 0);
    }

    #[test]
    fn a_line_of_mappings_is_read() {
        let line = "7f0ea6a22000-7f0ea6a23000 r--p 00001000 08:01 77    /lib/libc.so.6";
        let mapping = MappingLine::parse(line).unwrap();
        assert_eq!(mapping.range, 0x7f0e_a6a2_2000..0x7f0e_a6a2_3000);
        assert_eq!(mapping.rights, "r--p");
        assert!(MappingLine::parse("nothing").is_none());
    }

    #[test]
    fn what_is_elsewhere_or_too_long_is_none() {
        assert_eq!(of(&[CODE, DATA, BSS]), None);
        let apart = "7f10104000-7f10105000 -w-p 00000000 00:00 0";
        assert_eq!(of(&[CODE, DATA, BSS, apart]), None, "not right behind");
        let other = "7f10103000-7f10104000 rw-p 00000000 08:01 78 /lib/other.so";
        assert_eq!(of(&[CODE, DATA, BSS, other, apart]), None, "behind another library");
        let long = "7f10103000-7f10203000 -w-p 00000000 00:00 0";
        assert_eq!(of(&[CODE, DATA, BSS, long]), None);
        assert_eq!(of(&["", "x", "1-2", "zz-1 -w-p", "1000-0 -w-p 0 0 0"]), None);
    }
}
