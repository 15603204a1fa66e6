//! How a system call is rewritten: which instructions make room for a jump.
//!
//! A jump has five bytes, `syscall` two. What precedes it can make room (mostly `mov eax, number`),
//! or what follows. Instructions that are moved must mean the same elsewhere: no jump, nothing that
//! names its own place, and nobody jumps between them.

use super::branches::Targets;
use super::look::View;
use super::text::Text;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Bytes of a jump to anywhere near.
const JUMP: usize = 5;
/// Bytes of `syscall`.
const SYSCALL: usize = 2;

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
        let end = self.at + SYSCALL as u64;
        match self.way {
            Way::Before(len) => (self.at - u64::from(len), end),
            Way::Around(before, after) => (self.at - u64::from(before), end + u64::from(after)),
            Way::Left => (self.at, end),
        }
    }
}

/// How a system call is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The instructions of so many bytes before it make room; the `syscall` itself stays. Whoever
    /// is past them, and a call that the kernel restarts, find it.
    Before(u8),
    /// Instructions of so many bytes before it, it, and instructions of so many bytes after it make
    /// room together.
    Around(u8, u8),
    /// Not at all.
    Left,
}

/// rt_sigreturn(2), whose address the kernel and unwinders know, and which needs the stack as it
/// is.
const SIGRETURN: u32 = 15;

/// Addresses of instructions that may be moved: nobody may jump to those that are.
pub(super) fn inside<'v>(view: &'v View, text: Text<'v>) -> Vec<u64> {
    let before = before(view);
    let first = before.last().map_or(view.site.ip(), |one| one.ip() + 1);
    let after = after(view, text).into_iter().map(|one| one.ip());
    let before = before.iter().map(|one| one.ip()).filter(|at| *at >= first);
    before.chain([view.site.ip()]).chain(after).collect()
}

/// The site with the way that is possible.
pub(super) fn site(view: &View, text: Text<'_>, targets: &Targets) -> Site {
    let number = number(view);
    let at = view.site.ip();
    let way = match number {
        Some(SIGRETURN) => Way::Left,
        // An instruction with a prefix that means nothing: none of these was ever seen.
        _ if view.site.len() != SYSCALL => Way::Left,
        _ => way(view, text, targets),
    };
    Site { at, number, way }
}

/// Prefers that the `syscall` stays, then that what follows makes room.
fn way(view: &View, text: Text<'_>, targets: &Targets) -> Way {
    let is_target = targets.has(view.site.ip());
    // What is before it may go as far back as to an instruction that somebody jumps to.
    let mut reach = Vec::new();
    let mut len = 0;
    for one in before(view).iter().take_while(|_| !is_target) {
        len += one.len();
        reach.push(len);
        if targets.has(one.ip()) {
            break;
        }
    }
    if let Some(len) = reach.iter().find(|len| **len >= JUMP) {
        return Way::Before(*len as u8);
    }
    let mut behind = vec![0];
    for one in after(view, text).iter().take_while(|one| !targets.has(one.ip())) {
        behind.push(behind[behind.len() - 1] + one.len());
    }
    for before in [0].iter().chain(&reach) {
        if let Some(after) = behind.iter().find(|after| before + SYSCALL + **after >= JUMP) {
            return Way::Around(*before as u8, *after as u8);
        }
    }
    Way::Left
}

/// The instructions before it that can be moved, the nearest first: as many as a jump needs.
fn before(view: &View) -> Vec<Instruction> {
    let mut len = 0;
    let needed = |one: &&Instruction| {
        let is_needed = len < JUMP && is_movable(one);
        len += one.len();
        is_needed
    };
    view.before.iter().rev().take_while(needed).copied().collect()
}

/// The instructions after it that can be moved, likewise.
fn after(view: &View, text: Text<'_>) -> Vec<Instruction> {
    let next = view.site.next_ip();
    let start = usize::try_from(next - text.address).unwrap_or(usize::MAX);
    let bytes = text.bytes.get(start..).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, bytes, next, DecoderOptions::NONE);
    let mut moved = Vec::new();
    let mut len = SYSCALL;
    while len < JUMP {
        let one = decoder.decode();
        if one.is_invalid() || !is_movable(&one) {
            break;
        }
        len += one.len();
        moved.push(one);
    }
    moved
}

/// Whether an instruction means the same elsewhere, and goes on with the next.
fn is_movable(one: &Instruction) -> bool {
    one.flow_control() == FlowControl::Next
        && !one.is_ip_rel_memory_operand()
        && one.code() != Code::Syscall
        // Padding belongs to nobody, and what faults says where.
        && !matches!(one.mnemonic(), Mnemonic::Hlt | Mnemonic::Endbr64)
}

/// The number, if the last instruction that touches `eax` before the call is a move of one.
fn number(view: &View) -> Option<u32> {
    for one in view.before.iter().rev() {
        if one.flow_control() != FlowControl::Next {
            return None;
        }
        let is_accumulator = one.op_count() > 0
            && one.op0_kind() == OpKind::Register
            && one.op0_register().full_register() == Register::RAX;
        if !is_accumulator {
            continue;
        }
        let is_wide = matches!(one.op0_register(), Register::EAX | Register::RAX);
        return match one.mnemonic() {
            Mnemonic::Mov if is_wide && is_immediate(one) => u32::try_from(one.immediate(1)).ok(),
            Mnemonic::Xor if is_wide && one.op1_kind() == OpKind::Register => {
                (one.op1_register() == one.op0_register()).then_some(0)
            }
            _ => None,
        };
    }
    None
}

fn is_immediate(one: &Instruction) -> bool {
    matches!(one.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64)
}
