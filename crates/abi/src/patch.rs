//! The bytes that are written over a site, and the trampoline that they lead to.
//!
//! A trampoline loads the address at which the program continues into `rcx`, which the call
//! clobbers anyway, and jumps to the loader's entry. Two bytes before that address there is a
//! `syscall` instruction. So a call that the program must make itself (vfork(2)) is made by
//! continuing at that instruction, with no frame of the loader on any stack.
//!
//! All trampolines of a text are in one region near it. The region begins with the entry's address.
//! Not here: the choice of the bytes that make room (`sites`).

use crate::sites::{Rewrite, Site, Text};
use core::ops::Range;

/// The bytes of a region before the first trampoline.
const HEAD: usize = 16;
/// Trampolines begin at multiples of this number.
const ALIGNMENT: usize = 16;
/// The most bytes of a trampoline: two moved instructions, and the jumps around them.
const TRAMPOLINE_MAX: usize = 64;

/// Bytes that replace a part of a program's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patch {
    /// The address of the first byte.
    pub at: u64,
    /// The new bytes.
    pub bytes: Vec<u8>,
}

/// A trampoline, for whoever sees a thread in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trampoline {
    /// The address at which the program continues behind the call.
    pub back: u64,
    /// The address of the program's own `syscall`.
    pub site: u64,
    /// The number of bytes before the `syscall` that have moved into the trampoline.
    before: u8,
    /// The number of bytes behind it.
    after: u8,
    /// True if a thread may go on at the `syscall` itself: there is a jump.
    is_entered: bool,
}

impl Trampoline {
    /// The bytes that load the address to go on at, jump to the entry, and call the kernel.
    const CALL: u64 = 15;

    /// Returns the address of the program's own instruction that a thread with the instruction
    /// pointer `at` would be at without the trampoline; `None` if it is elsewhere.
    #[must_use]
    pub fn original(&self, at: u64) -> Option<u64> {
        let (before, after) = (u64::from(self.before), u64::from(self.after));
        let call = self.back - Self::CALL;
        match at {
            _ if at >= self.back => {
                // The jump back is behind what has moved.
                (at <= self.back + after).then(|| self.site + 2 + (at - self.back))
            }
            _ if at >= call => Some(self.site),
            _ => (at + before >= call).then(|| self.site - (call - at)),
        }
    }

    /// Returns the address in the trampoline at which a thread goes on that is at `at` in the
    /// program's text, where its instructions have been overwritten; the inverse of
    /// [`Self::original`]. `None`: it goes on where it is, in the program's text or at a jump.
    #[must_use]
    pub fn moved(&self, at: u64) -> Option<u64> {
        let call = self.back - Self::CALL;
        let behind = self.site + 2;
        match at {
            _ if at == self.site => (!self.is_entered).then_some(call),
            _ if at < self.site => {
                let by = self.site - at;
                (by < u64::from(self.before)).then(|| call - by)
            }
            _ if at >= behind => {
                (at < behind + u64::from(self.after)).then(|| self.back + (at - behind))
            }
            _ => None,
        }
    }

    /// Returns the address at which a call whose thread goes on at `back` begins again.
    #[must_use]
    pub fn again(back: u64) -> u64 {
        back - Self::CALL
    }

    /// Finds the trampoline in a list in ascending order, and returns what [`Self::original`] does.
    #[must_use]
    pub fn original_in(all: &[Self], at: u64) -> Option<u64> {
        let next = all.partition_point(|one| one.back + u64::from(one.after) < at);
        all.get(next)?.original(at)
    }
}

/// The trampolines and patches of a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// The contents of the region.
    pub region: Vec<u8>,
    /// What lies in the region, in ascending order.
    pub trampolines: Vec<Trampoline>,
    /// The patches in ascending order.
    pub patches: Vec<Patch>,
}

/// The region is more than two gigabytes from the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its trampolines are too far from its text")]
pub struct TooFar;

/// Returns the most bytes that a region for these sites needs.
#[must_use]
pub fn region_len(sites: &[Site]) -> usize {
    HEAD + sites.iter().filter(|site| site.rewrite != Rewrite::Unchanged).count() * TRAMPOLINE_MAX
}

/// Rewrites the sites of `text`. The region is at `region`, and the loader's entry at `entry`.
///
/// # Errors
/// If a jump is too short to reach its target.
pub fn rewrite(
    text: Text<'_>,
    sites: &[Site],
    region: u64,
    entry: u64,
) -> Result<Rewritten, TooFar> {
    let mut code = Code { at: region, bytes: Vec::with_capacity(region_len(sites)) };
    code.put(&entry.to_le_bytes());
    code.align();
    let (mut patches, mut trampolines) =
        (Vec::with_capacity(sites.len()), Vec::with_capacity(sites.len()));
    for site in sites {
        let from = |address: u64, len: u8| {
            let start = (address - text.address) as usize;
            &text.bytes[start..start + usize::from(len)]
        };
        let start = code.here();
        let (before, after) = match site.rewrite {
            Rewrite::Unchanged => continue,
            Rewrite::Before(len) => (len, 0),
            Rewrite::Around(before, after) => (before, after),
        };
        code.put(from(site.at - u64::from(before), before));
        // `lea` has 7 bytes, the jump 6 and `syscall` 2.
        let back = code.here() + Trampoline::CALL;
        code.enter(back, region)?;
        // `mov eax, number` may be repeated: in the place of the `syscall` there is a jump back to
        // the jump, for threads that a handler has seen at their call.
        let is_repeated = matches!(site.rewrite, Rewrite::Before(5))
            && from(site.at - u64::from(before), before).starts_with(&[0xb8]);
        let is_entered = is_repeated || before == 0;
        trampolines.push(Trampoline { back, site: site.at, before, after, is_entered });
        code.put(&[0x0f, 0x05]);
        code.put(from(site.at + 2, after));
        code.jump(site.at + 2 + u64::from(after))?;
        code.align();
        let Range { start: at, end } = site.moved();
        let mut patch = Code { at, bytes: Vec::new() };
        patch.jump(start)?;
        // Other `syscall`s stay where they are.
        let end = if matches!(site.rewrite, Rewrite::Before(_)) { site.at } else { end };
        patch.bytes.resize((end - at) as usize, 0x90);
        if is_repeated {
            patch.bytes.extend([0xeb, 0xf9]);
        }
        patches.push(Patch { at, bytes: patch.bytes });
    }
    Ok(Rewritten { region: code.bytes, trampolines, patches })
}

/// Instructions under construction.
struct Code {
    at: u64,
    bytes: Vec<u8>,
}

impl Code {
    fn here(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn align(&mut self) {
        // `int3`, which is never executed.
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0xcc);
    }

    /// Appends the distance to `to`, counted from the end of its own four bytes.
    fn distance(&mut self, to: u64) -> Result<(), TooFar> {
        let by = to.wrapping_sub(self.here() + 4).cast_signed();
        self.put(&i32::try_from(by).map_err(|_| TooFar)?.to_le_bytes());
        Ok(())
    }

    fn jump(&mut self, to: u64) -> Result<(), TooFar> {
        self.put(&[0xe9]);
        self.distance(to)
    }

    /// Appends `lea rcx, [back]`, and a jump to the address that is stored at `slot`.
    fn enter(&mut self, back: u64, slot: u64) -> Result<(), TooFar> {
        self.put(&[0x48, 0x8d, 0x0d]);
        self.distance(back)?;
        self.put(&[0xff, 0x25]);
        self.distance(slot)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::sites::find;
    use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

    const TEXT: u64 = 0x40_0000;
    const REGION: u64 = 0x50_0000;
    const ENTRY: u64 = 0x7000_0000_0000;

    fn rewritten(code: &[u8]) -> (Vec<u8>, Rewritten) {
        let mut bytes = vec![0x90; 512];
        bytes.extend(code);
        bytes.extend([0xcc; 16]);
        let text = Text { address: TEXT, bytes: &bytes };
        let found = find(text);
        let done = rewrite(text, &found.sites, REGION, ENTRY).unwrap();
        assert!(done.region.len() <= region_len(&found.sites));
        for patch in &done.patches {
            let start = (patch.at - TEXT) as usize;
            bytes[start..start + patch.bytes.len()].copy_from_slice(&patch.bytes);
        }
        (bytes, done)
    }

    fn instructions(bytes: &[u8], at: u64) -> Vec<Instruction> {
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn the_number_moves_and_the_call_leads_to_it() {
        let (text, done) = rewritten(b"\xb8\x27\0\0\0\x0f\x05\xc3");
        let at_site = instructions(&text[512..], TEXT + 512);
        assert_eq!(at_site[0].mnemonic(), Mnemonic::Jmp);
        assert_eq!(at_site[0].near_branch_target(), REGION + 16);
        assert_eq!(at_site[1].near_branch_target(), TEXT + 512);
        let there = instructions(&done.region[16..], REGION + 16);
        assert_eq!((there[0].mnemonic(), there[0].immediate32()), (Mnemonic::Mov, 39));
        let back = there[1].ip_rel_memory_address();
        assert_eq!(there[2].ip_rel_memory_address(), REGION);
        assert_eq!((there[3].mnemonic(), there[3].next_ip()), (Mnemonic::Syscall, back));
        assert_eq!(there[4].near_branch_target(), TEXT + 512 + 7);
        assert_eq!(done.region[..8], ENTRY.to_le_bytes());
    }

    #[test]
    fn what_follows_moves_behind_a_call_of_its_own() {
        let (text, done) = rewritten(b"\xeb\x00\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01");
        let at_site = instructions(&text[514..], TEXT + 514);
        assert_eq!(at_site[0].near_branch_target(), REGION + 16);
        assert!(at_site[1..4].iter().all(|one| one.mnemonic() == Mnemonic::Nop));
        assert_eq!(at_site[4].mnemonic(), Mnemonic::Jae);
        let there = instructions(&done.region[16..], REGION + 16);
        let back = there[0].ip_rel_memory_address();
        assert_eq!((there[2].mnemonic(), there[2].next_ip()), (Mnemonic::Syscall, back));
        assert_eq!((there[3].mnemonic(), there[3].ip()), (Mnemonic::Cmp, back));
        assert_eq!(there[4].near_branch_target(), TEXT + 512 + 10);
    }

    #[test]
    fn a_thread_finds_back_from_the_address_that_it_was_shown() {
        // A number, a number that is a register's (the call stays), and what follows the call.
        for code in [
            &b"\xb8\x27\0\0\0\x0f\x05\xc3"[..],
            b"\x4c\x89\x5c\x24\x08\x0f\x05\xc3",
            b"\xeb\x00\x0f\x05\x48\x3d\x01\xf0\xff\xff\x73\x01",
        ] {
            let (text, done) = rewritten(code);
            let [one] = done.trampolines[..] else { panic!("one call") };
            let call = Trampoline::again(one.back);
            let start = call - u64::from(one.before);
            // The address at which a thread goes on: the shown one may have a jump.
            let goes_on = |shown: u64| match one.moved(shown) {
                Some(at) => at,
                None => {
                    let mut all = instructions(&text[(shown - TEXT) as usize..], shown);
                    while all[0].mnemonic() == Mnemonic::Jmp && all[0].len() == 2 {
                        let to = all[0].near_branch_target();
                        all = instructions(&text[(to - TEXT) as usize..], to);
                    }
                    all[0].near_branch_target()
                }
            };
            assert_eq!(goes_on(one.original(start).unwrap()), start);
            let again = goes_on(one.original(call).unwrap());
            assert!(again == call || (again == start && code[0] == 0xb8));
            for behind in 0..u64::from(one.after) {
                assert_eq!(goes_on(one.original(one.back + behind).unwrap()), one.back + behind);
            }
            assert_eq!(one.moved(one.site + 2 + u64::from(one.after)), None);
        }
    }

    #[test]
    fn too_far_is_said() {
        let mut bytes = vec![0x90; 300];
        bytes.extend(b"\xb8\x27\0\0\0\x0f\x05\xc3");
        let text = Text { address: TEXT, bytes: &bytes };
        let sites = find(text).sites;
        assert_eq!(rewrite(text, &sites, TEXT + (3 << 30), ENTRY), Err(TooFar));
    }
}
