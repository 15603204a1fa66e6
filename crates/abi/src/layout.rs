//! The layout of a program in memory: the plan of mappings that the loader makes.
//!
//! One reservation holds the program's segments and its trampolines, so that no other mapping can
//! come between them. The break (brk(2)) grows behind it as in the kernel, as far as nothing else
//! is there: room reserved for it would be missing elsewhere (`MAP_32BIT`, mlockall(2)). Not here:
//! reading the file (`elf`), and the mapping itself (`crates/loader`).

use crate::elf::{Area, Image};
use core::ops::Range;

const PAGE: u64 = 4096;

/// The source of a mapping's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The program's file, from this offset on, which is a whole number of pages.
    File(u64),
    /// Zeroes.
    Zero,
}

/// A mapping; its address and length are whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The address.
    pub at: u64,
    /// The length in bytes.
    pub len: u64,
    /// The source of the bytes.
    pub source: Source,
    /// Permission to read, to write and to execute.
    pub access: [bool; 3],
}

/// The mappings and addresses of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number that is added to the image's addresses.
    pub base: u64,
    /// The reservation.
    pub reserved: Area,
    /// The mappings, in the order in which they are made, within the reservation.
    pub mappings: Vec<Mapping>,
    /// Bytes that are zeroed, behind a segment's last byte from the file.
    pub cleared: Vec<Area>,
    /// The place for trampolines.
    pub trampolines: Area,
    /// The addresses that the break may have. Nothing is reserved there.
    pub breaks: Range<u64>,
    /// The address of the first instruction.
    pub entry: u64,
    /// The address of the program headers; 0 if they are not in memory.
    pub headers_at: u64,
}

/// The room behind an image, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Room for trampolines.
    pub trampolines: u64,
    /// Room that stays empty before the break.
    pub gap: u64,
    /// The most bytes of the break; 0 if the image has no break.
    pub breaks: u64,
}

/// Plans the layout of an image. A movable image is placed at `at`.
#[must_use]
pub fn plan(image: &Image, at: u64, room: Room) -> Plan {
    let Range { start: lowest, end: highest } = image.extent();
    let base = if image.is_movable { (at & !(PAGE - 1)).wrapping_sub(lowest) } else { 0 };
    let highest = highest.wrapping_add(base);
    let [near, gap, far] =
        [room.trampolines, room.gap, room.breaks].map(|len| len.next_multiple_of(PAGE));
    let break_at = highest + near + gap;
    let first = lowest.wrapping_add(base);
    let mut plan = Plan {
        base,
        reserved: Area { at: first, len: highest + near - first },
        mappings: Vec::new(),
        cleared: Vec::new(),
        trampolines: Area { at: highest, len: near },
        breaks: break_at..break_at + far,
        entry: image.entry.wrapping_add(base),
        headers_at: if image.headers_at == 0 { 0 } else { image.headers_at.wrapping_add(base) },
    };
    for segment in &image.segments {
        let access = [segment.is_readable, segment.is_writable, segment.is_executable];
        let start = segment.address.wrapping_add(base);
        let page = start & !(PAGE - 1);
        let file_end = start + segment.file_len;
        let from_file = if segment.file_len > 0 { file_end.next_multiple_of(PAGE) } else { page };
        if from_file > page {
            let source = Source::File(segment.offset & !(PAGE - 1));
            plan.mappings.push(Mapping { at: page, len: from_file - page, source, access });
        }
        let end = start + segment.memory_len;
        // The bytes up to the page's end are zeroed as well: programs' own loaders use them as
        // zeroes. A page that is not writable keeps the file's bytes, as in the kernel.
        if end > file_end && from_file > file_end && segment.is_writable && segment.file_len > 0 {
            plan.cleared.push(Area { at: file_end, len: from_file - file_end });
        }
        let end = end.next_multiple_of(PAGE);
        if end > from_file {
            let source = Source::Zero;
            plan.mappings.push(Mapping { at: from_file, len: end - from_file, source, access });
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Segment;
    use proptest::prelude::*;

    const ROOM: Room = Room { trampolines: 100, gap: 5000, breaks: 1 << 20 };

    fn image(is_movable: bool, segments: Vec<Segment>) -> Image {
        Image {
            is_movable,
            entry: segments[0].address,
            segments,
            interpreter: None,
            headers_at: 0,
            headers: 1,
            is_go: false,
            wants_executable_stack: false,
            build_id: Vec::new(),
            unwinding: None,
        }
    }

    fn segment(address: u64, file_len: u64, memory_len: u64, is_writable: bool) -> Segment {
        let offset = 0x10_0000 + address % PAGE;
        let (is_readable, is_executable) = (true, !is_writable);
        Segment { offset, address, file_len, memory_len, is_readable, is_writable, is_executable }
    }

    #[test]
    fn a_static_program() {
        let text = segment(0x40_1010, 0x1500, 0x1500, false);
        let data = segment(0x40_4100, 0x100, 0x2000, true);
        let plan = plan(&image(false, vec![text, data]), 0x1234_5678, ROOM);
        assert_eq!((plan.base, plan.entry), (0, 0x40_1010));
        let at = |at, len, source, is_writable: bool| Mapping {
            at,
            len,
            source,
            access: [true, is_writable, !is_writable],
        };
        let expected = [
            at(0x40_1000, 0x2000, Source::File(0x10_0000), false),
            at(0x40_4000, 0x1000, Source::File(0x10_0000), true),
            at(0x40_5000, 0x2000, Source::Zero, true),
        ];
        assert_eq!(plan.mappings, expected);
        assert_eq!(plan.cleared, [Area { at: 0x40_4200, len: 0xe00 }]);
        assert_eq!(plan.trampolines, Area { at: 0x40_7000, len: 0x1000 });
        assert_eq!(plan.breaks, 0x40_a000..0x50_a000);
        assert_eq!(plan.reserved, Area { at: 0x40_1000, len: 0x7000 });
    }

    proptest! {
        /// Every byte of a segment is mapped exactly once, within the reservation, and the file's
        /// bytes are at their addresses.
        #[test]
        fn every_byte_has_its_place(
            sizes in proptest::collection::vec((0u64..9000, 0u64..9000, 1u64..9000), 1..5),
            is_movable: bool,
        ) {
            let mut next = 0x1_0000u64;
            let mut segments = Vec::new();
            for (gap, file_len, more) in sizes {
                let address = next.next_multiple_of(PAGE) + gap;
                segments.push(segment(address, file_len, file_len + more, true));
                next = address + file_len + more;
            }
            let plan = plan(&image(is_movable, segments.clone()), 0x7000_0000, ROOM);
            let Area { at: first, len } = plan.reserved;
            for one in &plan.mappings {
                prop_assert!(one.at >= first && one.at + one.len <= plan.trampolines.at);
                prop_assert!(one.at % PAGE == 0 && one.len % PAGE == 0 && one.len > 0);
            }
            prop_assert!(plan.breaks.start >= first + len);
            for one in &segments {
                for byte in [0, one.file_len, one.memory_len - 1] {
                    let at = (one.address + byte).wrapping_add(plan.base);
                    let holding: Vec<_> = plan.mappings.iter()
                        .filter(|map| (map.at..map.at + map.len).contains(&at)).collect();
                    prop_assert_eq!(holding.len(), 1);
                    let is_cleared = plan.cleared.iter()
                        .any(|one| (one.at..one.at + one.len).contains(&at));
                    match holding[0].source {
                        Source::File(offset) if byte < one.file_len => {
                            prop_assert_eq!(offset + (at - holding[0].at), one.offset + byte);
                            prop_assert!(!is_cleared);
                        }
                        Source::File(_) => prop_assert!(is_cleared),
                        Source::Zero => prop_assert!(byte >= one.file_len),
                    }
                }
            }
        }
    }
}
