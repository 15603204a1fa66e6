//! How a system call is rewritten: which instructions make room for a jump.
//!
//! A jump has five bytes, `syscall` two. What precedes it can make room (mostly `mov eax, number`),
//! or what follows. Instructions that are moved must mean the same elsewhere: no jump, nothing that
//! names its own place, and nobody jumps between them.

use super::branches::Targets;
use super::{Site, Text, View};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};

/// Bytes of a jump to anywhere near.
const JUMP: usize = 5;
/// Bytes of `syscall`.
const SYSCALL: usize = 2;

/// How a system call is rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The instructions of so many bytes before it make room; the `syscall` itself stays. Whoever
    /// is past them, and a call that the kernel restarts, find it.
    Before(u8),
    /// The instructions of so many bytes after it make room, together with it.
    After(u8),
    /// Not at all.
    Left,
}

/// rt_sigreturn(2), whose address the kernel and unwinders know, and which needs the stack as it
/// is.
const SIGRETURN: u32 = 15;

/// Addresses that nobody may jump to if the site is to be rewritten.
pub(super) fn inside<'v>(view: &'v View, text: Text<'v>) -> Vec<u64> {
    let mut all = Vec::new();
    if let Some(len) = before(view) {
        all.extend(starts(view).filter(|at| *at > view.site.ip() - len as u64));
        all.push(view.site.ip());
    }
    if let Some(moved) = after(view, text) {
        all.extend(moved.iter().map(Instruction::ip));
    }
    all
}

fn starts(view: &View) -> impl Iterator<Item = u64> {
    view.before.iter().map(Instruction::ip)
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

fn way(view: &View, text: Text<'_>, targets: &Targets) -> Way {
    let at = view.site.ip();
    if let Some(len) = before(view) {
        let first = at - len as u64;
        let is_free = starts(view).filter(|one| *one > first).all(|one| !targets.has(one));
        if is_free && !targets.has(at) {
            return Way::Before(len as u8);
        }
    }
    match after(view, text) {
        Some(moved) if moved.iter().all(|one| !targets.has(one.ip())) => {
            Way::After(moved.iter().map(|one| one.len() as u8).sum())
        }
        _ => Way::Left,
    }
}

/// How many bytes of whole instructions before it make room for a jump.
fn before(view: &View) -> Option<usize> {
    let mut len = 0;
    for one in view.before.iter().rev() {
        if !is_movable(one) {
            return None;
        }
        len += one.len();
        if len >= JUMP {
            return Some(len);
        }
    }
    None
}

/// The instructions after it that make room, with it, for a jump.
fn after(view: &View, text: Text<'_>) -> Option<Vec<Instruction>> {
    let next = view.site.next_ip();
    let bytes = text.bytes.get(usize::try_from(next - text.address).ok()?..)?;
    let mut decoder = Decoder::with_ip(64, bytes, next, DecoderOptions::NONE);
    let mut moved = Vec::new();
    let mut len = SYSCALL;
    while len < JUMP {
        let one = decoder.decode();
        if one.is_invalid() || !is_movable(&one) {
            return None;
        }
        len += one.len();
        moved.push(one);
    }
    Some(moved)
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
