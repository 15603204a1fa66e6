//! The system calls in a mapping of code.
//!
//! Not here: which mappings are looked at (`maps`), and what a pair of bytes is
//! (`sojourn_abi::unwind`).

use super::maps::{Mapping, Maps};
use super::memory::{bytes, copy, read};
use core::ops::Range;
use sojourn_abi::elf::{Area, Image};
use sojourn_abi::sites::{self, Call, Text, calls};
use sojourn_abi::unwind::{ENTRY, FUNCTION_MAX, Table, Verdict, within_function, without_function};

/// Bytes that are looked at together, and what is read beyond them on either side, so that decoders
/// fall into step before the first and see the whole of the last instruction.
const PART: u64 = 256 << 10;
const AROUND: u64 = 256;
/// The longest table for unwinding that is read (bytes).
const TABLE_MAX: u64 = 32 << 20;
/// rt_sigreturn(2): the kernel finds a handler's frame by the stack pointer, and unwinders know the
/// call by its bytes.
const SIGRETURN: u32 = 15;
/// arch_prctl(2): code that changes the thread's storage itself may make calls while another
/// storage than the C library's is there.
const ARCH_PRCTL: u32 = 158;

/// Returns the addresses of the calls that have to be rewritten; `None` if some cannot be, or may
/// be data as well.
pub(super) fn calls_of(code: &Mapping, maps: &Maps) -> Option<Vec<u64>> {
    let candidates = candidates(code);
    if candidates.is_empty() {
        return Some(Vec::new());
    }
    // What is written to a shared mapping goes to the file.
    if !code.is_private {
        return None;
    }
    let object = maps.base(code).and_then(Object::read);
    // Go's run-time keeps its own stacks, which are too small for this library.
    if object.as_ref().is_some_and(|object| object.image.is_go) {
        return None;
    }
    if maps.constants(code).any(tests_integrity) {
        return None;
    }
    let table = object.as_ref().and_then(|object| Table::read(object.table_at, &object.table));
    let mut found = Vec::new();
    for call in candidates {
        match verdict(&call, table.as_ref()) {
            Verdict::Other => {}
            Verdict::Call if call.number == Some(SIGRETURN) => {}
            Verdict::Call if call.number != Some(ARCH_PRCTL) => found.push(call.at),
            Verdict::Call | Verdict::Doubtful => return None,
        }
    }
    Some(found)
}

/// Returns what may be a call.
fn candidates(code: &Mapping) -> Vec<Call> {
    let mut found = Vec::new();
    each_part(code, |part, text| {
        found.extend(calls(text).filter(|call| part.contains(&call.at)));
    });
    found
}

/// Returns true if the mapping has the message of an integrity test.
fn tests_integrity(constants: &Mapping) -> bool {
    let mut does = false;
    each_part(constants, |_, text| does |= sites::tests_integrity(text.bytes));
    does
}

/// Reads a mapping in parts, each with some bytes around it.
fn each_part(mapping: &Mapping, mut look: impl FnMut(Range<u64>, Text<'_>)) {
    let range = &mapping.extent.range;
    let mut buffer = vec![0; (PART + 2 * AROUND) as usize];
    for start in range.clone().step_by(PART as usize) {
        let address = start.saturating_sub(AROUND).max(range.start);
        let end = (start + PART + AROUND).min(range.end);
        let room = &mut buffer[..(end - address) as usize];
        // Pages behind the end of a file cannot be read (mmap(2), `SIGBUS`).
        let len = read(address, room);
        look(start..start + PART, Text { address, bytes: &room[..len] });
    }
}

fn verdict(call: &Call, table: Option<&Table<'_>>) -> Verdict {
    let Some(table) = table else { return without_function(call) };
    let entry = |at| copy(at, &mut [0; ENTRY]);
    let Some(function) = table.function(call.at, entry) else {
        // Assembly may be without an entry, and between functions may be data.
        return if table.spans(call.at) { without_function(call) } else { Verdict::Other };
    };
    let len = (function.end - function.start).min(FUNCTION_MAX) as usize;
    let Some(bytes) = bytes(function.start, len) else { return Verdict::Doubtful };
    within_function(call.at, function.start, &bytes)
}

/// An object whose headers are in memory.
struct Object {
    image: Image,
    table_at: u64,
    table: Vec<u8>,
}

impl Object {
    /// Reads the headers on the first page, and the table for unwinding. `None`: it is no object.
    fn read(base: u64) -> Option<Self> {
        let first = copy(base, &mut [0; 4096])?;
        let image = Image::read(&first).ok()?;
        let lowest = image.segments.first()?.address & !(super::maps::PAGE - 1);
        let Area { at, len } = image.unwinding.unwrap_or(Area { at: 0, len: 0 });
        let table_at = base.wrapping_sub(lowest).wrapping_add(at);
        let len = if len <= TABLE_MAX { len } else { 0 };
        let table = bytes(table_at, len as usize).unwrap_or_default();
        Some(Self { image, table_at, table })
    }
}
