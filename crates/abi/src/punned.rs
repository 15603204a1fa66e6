//! The rewriting of a system call that other threads may be executing: one byte of it changes.
//!
//! # Theory of operation
//! `syscall` is `0f 05`. If `e9` replaces the first byte, the processor finds a jump whose distance
//! is `05` and the three bytes that follow the call. Those stay as they are, so that the call's
//! result is checked by the same instructions as before (instruction punning: Chamith, Svensson,
//! Dalessandro and Newton, PLDI 2017). The bytes choose the place to which the jump leads, the
//! *target*; the trampoline is put there, if there is room.
//!
//! A processor that fetches the instruction finds the old byte or the new one. No instruction
//! begins at another address than before. So a thread that sleeps in the call, or that a signal
//! handler has interrupted next to it, goes on as if nothing had happened, and jumps to the call
//! from elsewhere find the jump.
//!
//! Not here: where calls are (`sites`), and rewriting before a program's first instruction
//! (`patch`), which needs no such luck with the bytes.

/// The byte that replaces the first byte of a call.
pub const JUMP: u8 = 0xe9;
/// The bytes of a call, and of what follows it, that become the jump.
pub const CALL: [u8; 2] = [0x0f, 0x05];
/// The length of the jump in bytes.
pub const JUMP_LEN: usize = 5;
/// The length of a trampoline in bytes.
pub const TRAMPOLINE: usize = 28;
/// The offset in a trampoline at which a program goes on after its call. A `syscall` instruction
/// precedes it.
const BACK: u64 = 15;
/// The offset of the entry's address.
const SLOT: u64 = 20;

/// Returns the address to which the call at `at` would jump, if these bytes begin there. `None` if
/// they are not a call's, or if there is no such address.
#[must_use]
pub fn jump_target(at: u64, bytes: [u8; JUMP_LEN]) -> Option<u64> {
    let [first, second, ..] = bytes;
    if [first, second] != CALL {
        return None;
    }
    let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
    at.checked_add(JUMP_LEN as u64)?.checked_add_signed(distance.into())
}

/// Returns the jump at `from` that leads to `to`. `None` if that is too far.
#[must_use]
pub fn jump(from: u64, to: u64) -> Option<[u8; JUMP_LEN]> {
    let distance = to.wrapping_sub(from + JUMP_LEN as u64).cast_signed();
    let [one, two, three, four] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([JUMP, one, two, three, four])
}

/// Returns the trampoline at `target` for the call at `at`. `None` if the way back is too far.
///
/// It loads the address at which the program goes on into `rcx`, which the call clobbers anyway,
/// and jumps to `entry`. As in `patch`, a `syscall` precedes that address, for calls that the
/// program must make itself.
#[must_use]
pub fn trampoline(at: u64, target: u64, entry: u64) -> Option<[u8; TRAMPOLINE]> {
    let distance = |from: u64, to: u64| {
        i32::try_from(to.wrapping_sub(target + from).cast_signed()).ok().map(i32::to_le_bytes)
    };
    let mut bytes = [0; TRAMPOLINE];
    // lea rcx, [back]
    bytes[..3].copy_from_slice(&[0x48, 0x8d, 0x0d]);
    bytes[3..7].copy_from_slice(&distance(7, target + BACK)?);
    // jmp [slot]
    bytes[7..9].copy_from_slice(&[0xff, 0x25]);
    bytes[9..13].copy_from_slice(&distance(13, target + SLOT)?);
    bytes[13..15].copy_from_slice(&CALL);
    // back: jmp behind the call
    bytes[15] = JUMP;
    bytes[16..20].copy_from_slice(&distance(20, at + CALL.len() as u64)?);
    bytes[20..].copy_from_slice(&entry.to_le_bytes());
    Some(bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic};

    fn decoded(bytes: &[u8], at: u64) -> Vec<Instruction> {
        Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn the_jump_of_a_changed_byte_leads_to_its_target() {
        const AT: u64 = 0x7f00_1234_5678;
        for after in [[0x48, 0x85, 0xc0], [0x48, 0x3d, 0x01], [0xc3, 0xcc, 0xcc]] {
            let mut bytes = [0x0f, 0x05, after[0], after[1], after[2]];
            let to = jump_target(AT, bytes).unwrap();
            bytes[0] = JUMP;
            let jump = decoded(&bytes, AT);
            assert_eq!((jump[0].mnemonic(), jump[0].near_branch_target()), (Mnemonic::Jmp, to));
            let there = decoded(&trampoline(AT, to, 0x1234).unwrap()[..20], to);
            let back = there[0].ip_rel_memory_address();
            assert_eq!(there[1].ip_rel_memory_address(), to + SLOT);
            assert_eq!((there[2].mnemonic(), there[2].next_ip()), (Mnemonic::Syscall, back));
            assert_eq!(there[3].near_branch_target(), AT + 2);
        }
    }

    #[test]
    fn a_jump_leads_where_it_is_to() {
        const FROM: u64 = 0x7f00_1234_5678;
        for to in [FROM + 5, FROM - 0x1000, FROM + 0x7fff_0000] {
            assert_eq!(decoded(&jump(FROM, to).unwrap(), FROM)[0].near_branch_target(), to);
        }
        assert_eq!(jump(FROM, FROM + (1 << 32)), None);
    }

    #[test]
    fn what_has_no_target_is_left() {
        assert_eq!(jump_target(0x40_0000, [0x0f, 0x05, 0x48, 0x85, 0xc0]), None, "below zero");
        assert_eq!(jump_target(0x40_0000, [0x0f, 0x04, 0, 0, 0]), None);
        // From the farthest targets there is a way back.
        let at = 0x7f00_0000_0000;
        for last in [[0xff, 0xff, 0x7f], [0, 0, 0x80]] {
            let to = jump_target(at, [0x0f, 0x05, last[0], last[1], last[2]]).unwrap();
            let there = decoded(&trampoline(at, to, 0).unwrap()[..20], to);
            assert_eq!(there[3].near_branch_target(), at + 2);
        }
    }
}
