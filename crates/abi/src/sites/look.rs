//! What instruction begins at a byte, seen by decoders that begin at several
//! neighbouring bytes, some way before.

use super::text::Text;
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Decoding begins at every [`STEP`]th of so many neighbouring bytes: as many as the longest
/// instruction has.
const STARTS: usize = 15;
const STEP: usize = 3;
/// How far before a pair of bytes decoding begins (bytes).
const BEFORE: usize = 160;
/// Instructions kept of what precedes a site.
const KEPT: usize = 8;

/// A site with its neighbourhood.
pub(super) struct View {
    /// The instruction itself.
    pub(super) site: Instruction,
    /// What precedes it, the nearest last.
    pub(super) before: Vec<Instruction>,
}

/// What is seen at a place.
pub(super) enum Sight {
    /// No such instruction.
    Nothing,
    /// Decoders disagree.
    Unsure,
    /// One.
    Seen(View),
}

/// What decoders see at a byte that may be in an instruction of that kind.
pub(super) fn look(text: Text<'_>, at: usize, is_it: impl Fn(&Instruction) -> bool) -> Sight {
    let first = at.saturating_sub(BEFORE);
    let (mut yes, mut no) = (0, 0);
    let mut view = None;
    for start in (first..(first + STARTS).min(at + 1)).step_by(STEP) {
        match decode(text, start, at) {
            Some(seen) if is_it(&seen.site) => {
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
