//! A notice that a program's library gives to whoever looks at the process from outside: nothing
//! moves in it any more, and why.
//!
//! Not here: putting it up (`sojourn-preload`, `notice`), and what else is seen from outside
//! (`sojourn ss`).
//!
//! # Theory of operation
//! A library that has stood down can tell nobody: it may have neither thread nor descriptor, and
//! system calls may be forbidden to it. What every observer who may look into a process sees are
//! its mappings (`/proc/PID/maps`, proc(5)), with their rights. So the library has a few pages for
//! nothing else, right behind its own data, and takes the right to read from as many as the
//! notice's number says: pages that can be written and not read, `-w-p`, nobody else makes. A
//! `fork` child has the same memory and the same state, `exec` ends both.

use crate::ReasonT;

/// What a notice can say; how many pages, beginning with one.
const SAID: [ReasonT; 3] = [ReasonT::Sandbox, ReasonT::Prohibited, ReasonT::StoodDown];

/// Pages that the library needs for any notice.
pub const PAGES: usize = SAID.len();

/// The rights of the pages that count.
const RIGHTS: &str = "-w-p";

/// How many pages say so; none for what no notice can say.
#[must_use]
pub fn pages(reason: ReasonT) -> usize {
    SAID.iter().position(|said| *said == reason).map_or(0, |at| at + 1)
}

/// The notice among a process's mappings, as `/proc/PID/maps` has them. `is_library`: whether a
/// line's file is the library.
#[must_use]
pub fn find(maps: &str, page: u64, is_library: impl Fn(&str) -> bool) -> Option<ReasonT> {
    // Where the library's mappings and those without a file behind them end so far.
    let mut end = None;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some((from, to)), Some(rights)) =
            (fields.next().and_then(|range| range.split_once('-')), fields.next())
        else {
            continue;
        };
        let (Ok(from), Ok(to)) = (u64::from_str_radix(from, 16), u64::from_str_radix(to, 16))
        else {
            continue;
        };
        let is_behind = end == Some(from);
        if is_behind && rights == RIGHTS {
            let count = usize::try_from((to - from) / page.max(1)).ok()?;
            return SAID.get(count.checked_sub(1)?).copied();
        }
        let has_file = fields.nth(3).is_some();
        let goes_on = is_library(line) || (is_behind && !has_file);
        end = goes_on.then_some(to);
    }
    None
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
