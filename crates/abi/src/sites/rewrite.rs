//! The way in which a system call is rewritten: the instructions that make room for a jump.
//!
//! A jump has five bytes, `syscall` has two. The instructions before it can make room (mostly `mov
//! eax, number`), or those after it. Instructions that are moved must have the same effect at
//! another address: they must not jump or use their own address, and no jump may lead between them.

use super::branches::Targets;
use super::look::View;
use super::text::Text;
use core::ops::Range;
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// The length in bytes of a jump with a distance of four bytes.
const JUMP: usize = 5;
/// The length of `syscall` in bytes.
const SYSCALL: usize = 2;

/// A system call in a program's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The address of the `syscall` instruction.
    pub at: u64,
    /// The call's number, if an instruction before the call loads it into `eax`.
    pub number: Option<u32>,
    /// The way in which the call is rewritten.
    pub rewrite: Rewrite,
}

impl Site {
    /// Returns the addresses of the bytes that are overwritten, or that the call itself has.
    #[must_use]
    pub fn moved(&self) -> Range<u64> {
        let end = self.at + SYSCALL as u64;
        match self.rewrite {
            Rewrite::Before(len) => self.at - u64::from(len)..end,
            Rewrite::Around(before, after) => self.at - u64::from(before)..end + u64::from(after),
            Rewrite::Unchanged => self.at..end,
        }
    }
}

/// The way in which a system call is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// Instructions of this many bytes before the call make room.
    Before(u8),
    /// Instructions of this many bytes before the call, the call, and instructions of this many
    /// bytes after it make room together.
    Around(u8, u8),
    /// The call is not rewritten.
    Unchanged,
}

/// rt_sigreturn(2): the kernel and unwinders know the call's address, and it needs the stack
/// unchanged.
const SIGRETURN: u32 = 15;

/// Returns the addresses of instructions that may be moved, to which no jump may lead.
pub(super) fn inside<'v>(view: &'v View, text: Text<'v>) -> Vec<u64> {
    let before = before(view);
    let first = before.last().map_or(view.site.ip(), |one| one.ip() + 1);
    let after = after(view, text).into_iter().map(|one| one.ip());
    let before = before.iter().map(|one| one.ip()).filter(|at| *at >= first);
    before.chain([view.site.ip()]).chain(after).collect()
}

/// Returns the site with the best possible way.
pub(super) fn site(view: &View, text: Text<'_>, targets: &Targets) -> Site {
    let number = number(view);
    let at = view.site.ip();
    let rewrite = match number {
        Some(SIGRETURN) => Rewrite::Unchanged,
        // A `syscall` with a meaningless prefix. No program with one has been seen.
        _ if view.site.len() != SYSCALL => Rewrite::Unchanged,
        _ => rewrite(view, text, targets),
    };
    Site { at, number, rewrite }
}

/// Chooses the way. The first choice keeps the `syscall` in place, the second moves instructions
/// after it.
fn rewrite(view: &View, text: Text<'_>, targets: &Targets) -> Rewrite {
    let is_target = targets.has(view.site.ip());
    // The moved instructions may begin at the target of a jump, but must not contain one further
    // on.
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
        return Rewrite::Before(*len as u8);
    }
    let mut behind = vec![0];
    for one in after(view, text).iter().take_while(|one| !targets.has(one.ip())) {
        behind.push(behind[behind.len() - 1] + one.len());
    }
    for before in [0].iter().chain(&reach) {
        if let Some(after) = behind.iter().find(|after| before + SYSCALL + **after >= JUMP) {
            return Rewrite::Around(*before as u8, *after as u8);
        }
    }
    Rewrite::Unchanged
}

/// Returns the movable instructions before the call, the nearest first: as many as a jump needs.
fn before(view: &View) -> Vec<Instruction> {
    let mut len = 0;
    let needed = |one: &&Instruction| {
        let is_needed = len < JUMP && is_movable(one);
        len += one.len();
        is_needed
    };
    view.before.iter().rev().take_while(needed).copied().collect()
}

/// Returns the movable instructions after the call: as many as a jump needs.
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

/// Returns true if an instruction has the same effect at another address, and the next instruction
/// follows it.
fn is_movable(one: &Instruction) -> bool {
    one.flow_control() == FlowControl::Next
        && !one.is_ip_rel_memory_operand()
        && one.code() != Code::Syscall
        // `hlt` faults, and the address of a fault matters; `endbr64` marks the target of an
        // indirect jump.
        && !matches!(one.mnemonic(), Mnemonic::Hlt | Mnemonic::Endbr64)
}

/// Returns the call's number, if the last instruction before the call that writes `eax` is a move
/// of a constant.
pub(super) fn number(view: &View) -> Option<u32> {
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
