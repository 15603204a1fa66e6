//! The instruction that contains a byte, as seen by decoders that begin at several neighbouring
//! bytes some distance before.
//!
//! Not here: the consequences (`sites`). Read its theory of operation first.

use super::text::Text;
use iced_x86::{Decoder, DecoderOptions, Instruction};

/// Decoding begins at every [`STEP`]th of this many neighbouring bytes, which is the length of the
/// longest instruction.
const STARTS: usize = 15;
const STEP: usize = 3;
/// The distance in bytes before a site at which decoding begins.
const BEFORE: usize = 160;
/// The number of instructions before a site that are kept.
const KEPT: usize = 8;

/// A site and the instructions before it.
pub(super) struct View {
    /// The instruction at the site.
    pub(super) site: Instruction,
    /// The instructions before the site, the nearest one last.
    pub(super) before: Vec<Instruction>,
}

/// The result of looking at a byte.
pub(super) enum Sight {
    /// No instruction of the wanted kind.
    Nothing,
    /// Decoders disagree.
    Unsure,
    /// An instruction of the wanted kind.
    Seen(View),
}

/// Decodes up to the byte `at`, and tells if the instruction there is of the wanted kind.
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
            // The decoder met bytes that are no instruction: it was out of step, or the bytes are
            // data.
            None => {}
        }
        // At the text's first byte an instruction certainly begins, so one decoder suffices.
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

/// Reduces two views of a site to the instructions that both have before it.
fn common(mut one: View, other: View) -> View {
    let pairs = one.before.iter().rev().zip(other.before.iter().rev());
    let same = pairs.take_while(|(one, other)| one.ip() == other.ip()).count();
    one.before.drain(..one.before.len() - same);
    one
}

/// Decodes from `start` to the instruction that contains the byte `at`. After an invalid
/// instruction decoding continues with the next byte, as in disassemblers. Returns `None` if the
/// byte `at` is not in a valid instruction.
fn decode(text: Text<'_>, start: usize, at: usize) -> Option<View> {
    let bytes = &text.bytes[start..];
    let mut decoder =
        Decoder::with_ip(64, bytes, text.address + start as u64, DecoderOptions::NONE);
    let mut before: Vec<Instruction> = Vec::with_capacity(2 * KEPT);
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
            before.drain(..before.len().saturating_sub(KEPT));
            return Some(View { site: one, before });
        }
        if before.len() == 2 * KEPT {
            // Not for each instruction: they are long.
            before.drain(..=KEPT);
        }
        before.push(one);
    }
}
