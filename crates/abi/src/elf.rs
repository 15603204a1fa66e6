//! The parts of ELF (elf(5)) that loading a program needs.
//!
//! Nothing in the file is trusted: contradictions are errors. Not here: the addresses at which
//! segments are placed (`layout`).

use core::ops::Range;

/// The reason why a file cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// The file is not ELF, or is cut short.
    #[error("it is no ELF program")]
    NotElf,
    /// The word length, the byte order or the processor is not this machine's.
    #[error("it is made for another kind of machine")]
    Machine,
    /// The file is neither `ET_EXEC` nor `ET_DYN`.
    #[error("it is no executable")]
    NotExecutable,
    /// Headers contradict each other.
    #[error("its program headers make no sense")]
    Headers,
}

/// A segment that is mapped (`PT_LOAD`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The address in memory, without the base of a movable image.
    pub address: u64,
    /// The number of bytes from the file.
    pub file_len: u64,
    /// The number of bytes in memory, never less than `file_len`; the rest is zero.
    pub memory_len: u64,
    /// `PF_R`.
    pub is_readable: bool,
    /// `PF_W`.
    pub is_writable: bool,
    /// `PF_X`.
    pub is_executable: bool,
}

/// A part of a file or of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The offset in the file, or the address.
    pub at: u64,
    /// The length in bytes.
    pub len: u64,
}

/// The headers of an executable file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// True if the image may be placed anywhere (`ET_DYN`).
    pub is_movable: bool,
    /// The address of the first instruction.
    pub entry: u64,
    /// In ascending order, without overlaps; never empty.
    pub segments: Vec<Segment>,
    /// The place of the interpreter's path in the file, with the final zero (`PT_INTERP`).
    pub interpreter: Option<Area>,
    /// The address of the program headers in memory; 0 if they are not in memory.
    pub headers_at: u64,
    /// The number of program headers.
    pub headers: u16,
    /// True if Go's own linker has linked the program.
    pub is_go: bool,
    /// True if the program asks for an executable stack (`PT_GNU_STACK`).
    pub wants_executable_stack: bool,
    /// The build-id that a linker has stored in a note, GNU's or Go's; empty if there is none.
    pub build_id: Vec<u8>,
    /// The place of the table for unwinding in memory (`PT_GNU_EH_FRAME`).
    pub unwinding: Option<Area>,
}

const HEADER: usize = 64;
/// The size of a program header in bytes.
pub const PROGRAM_HEADER: usize = 56;
const HEADERS_MAX: u16 = 512;
const PAGE: u64 = 4096;
/// The end of the addresses that programs may use (47 bits).
const ADDRESS_MAX: u64 = 1 << 47;

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    word(bytes, at).map_or(0, u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    word(bytes, at).map_or(0, u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    word(bytes, at).map_or(0, u64::from_le_bytes)
}

impl Image {
    /// Reads the headers of `file`, which begins with them. Bytes behind the headers are only
    /// searched for notes.
    ///
    /// # Errors
    /// If the file is not an executable of this machine.
    pub fn read(file: &[u8]) -> Result<Self, ElfError> {
        if file.len() < HEADER || !file.starts_with(b"\x7fELF") {
            return Err(ElfError::NotElf);
        }
        const X86_64: u16 = 62;
        // `ELFCLASS64` and `ELFDATA2LSB`.
        if (file[4], file[5]) != (2, 1) || u16_at(file, 18) != X86_64 {
            return Err(ElfError::Machine);
        }
        let is_movable = match u16_at(file, 16) {
            2 => false,
            3 => true,
            _ => return Err(ElfError::NotExecutable),
        };
        let (size, headers) = (u16_at(file, 54), u16_at(file, 56));
        if usize::from(size) != PROGRAM_HEADER || headers == 0 || headers > HEADERS_MAX {
            return Err(ElfError::Headers);
        }
        let offset = usize::try_from(u64_at(file, 32)).map_err(|_| ElfError::Headers)?;
        let end = offset.checked_add(PROGRAM_HEADER * usize::from(headers));
        let table = end.and_then(|end| file.get(offset..end)).ok_or(ElfError::Headers)?;
        let mut image = Self {
            is_movable,
            entry: u64_at(file, 24),
            segments: Vec::new(),
            interpreter: None,
            headers_at: 0,
            headers,
            is_go: false,
            wants_executable_stack: false,
            build_id: Vec::new(),
            unwinding: None,
        };
        for header in table.chunks_exact(PROGRAM_HEADER) {
            image.take(header, file)?;
        }
        image.check(offset as u64)?;
        Ok(image)
    }

    /// Returns how many of a file's first bytes [`Self::read`] and [`Self::interpreter_in`] look
    /// at, as far as `first`, some of these bytes, can tell.
    #[must_use]
    pub fn reach(first: &[u8]) -> u64 {
        const READ: [u32; 2] = [3, 4];
        let table = u64_at(first, 32);
        let len = PROGRAM_HEADER as u64 * u64::from(u16_at(first, 56));
        let end = table.saturating_add(len);
        let headers = first.get(table as usize..end as usize).unwrap_or_default();
        let ends = headers.chunks_exact(PROGRAM_HEADER).map(|header| {
            let is_read = READ.contains(&u32_at(header, 0));
            let end = u64_at(header, 8).saturating_add(u64_at(header, 32));
            if is_read { end } else { 0 }
        });
        ends.fold(end.max(HEADER as u64), u64::max)
    }

    fn take(&mut self, header: &[u8], file: &[u8]) -> Result<(), ElfError> {
        const LOAD: u32 = 1;
        const INTERPRETER: u32 = 3;
        const NOTE: u32 = 4;
        const HEADERS: u32 = 6;
        const STACK: u32 = 0x6474_e551;
        const UNWINDING: u32 = 0x6474_e550;
        let (offset, address) = (u64_at(header, 8), u64_at(header, 16));
        let (file_len, memory_len) = (u64_at(header, 32), u64_at(header, 40));
        let flags = u32_at(header, 4);
        match u32_at(header, 0) {
            LOAD if memory_len > 0 => self.segments.push(Segment {
                offset,
                address,
                file_len,
                memory_len,
                is_readable: flags & 4 != 0,
                is_writable: flags & 2 != 0,
                is_executable: flags & 1 != 0,
            }),
            INTERPRETER if self.interpreter.is_none() => {
                if !(2..=4096).contains(&file_len) {
                    return Err(ElfError::Headers);
                }
                self.interpreter = Some(Area { at: offset, len: file_len });
            }
            HEADERS => self.headers_at = address,
            NOTE => {
                let end = offset.saturating_add(file_len).min(file.len() as u64) as usize;
                let notes = file.get(offset.min(end as u64) as usize..end).unwrap_or_default();
                self.take_notes(notes);
            }
            UNWINDING => self.unwinding = Some(Area { at: address, len: memory_len }),
            STACK => self.wants_executable_stack = flags & 1 != 0,
            _ => {}
        }
        Ok(())
    }

    /// Reads notes. Go's linker stores its build identifier in a note named `Go`.
    fn take_notes(&mut self, mut notes: &[u8]) {
        const NOTE: usize = 12;
        /// `NT_GNU_BUILD_ID`.
        const BUILD_ID: u32 = 3;
        let padded = |len: u32| (len as usize).next_multiple_of(4);
        while notes.len() >= NOTE {
            let (name, len, kind) = (u32_at(notes, 0), u32_at(notes, 4), u32_at(notes, 8));
            let start = NOTE.saturating_add(padded(name));
            let is_go = name == 4 && notes[NOTE..].starts_with(b"Go\0\0");
            let is_gnu = name == 4 && notes[NOTE..].starts_with(b"GNU\0") && kind == BUILD_ID;
            let content = notes.get(start..start.saturating_add(len as usize));
            if let Some(content) = content.filter(|_| is_go || is_gnu) {
                self.build_id.extend_from_slice(content);
            }
            self.is_go |= is_go;
            notes = notes.get(start.saturating_add(padded(len))..).unwrap_or_default();
        }
    }

    /// Checks that segments are in order and within bounds, and that their offsets can be mapped.
    fn check(&mut self, headers_in_file: u64) -> Result<(), ElfError> {
        let mut before = 0;
        for segment in &self.segments {
            let end = segment.address.checked_add(segment.memory_len).ok_or(ElfError::Headers)?;
            let is_ordered = segment.address >= before && end <= ADDRESS_MAX;
            let is_mappable = segment.address % PAGE == segment.offset % PAGE
                && segment.offset.checked_add(segment.file_len).is_some();
            if !is_ordered || !is_mappable || segment.file_len > segment.memory_len {
                return Err(ElfError::Headers);
            }
            before = end;
        }
        if self.segments.is_empty() {
            return Err(ElfError::Headers);
        }
        // Without `PT_PHDR` the headers are in memory if a segment contains that part of the file.
        if self.headers_at == 0 {
            let mut all = self.segments.iter();
            let holds =
                |one: &&Segment| (one.offset..one.offset + one.file_len).contains(&headers_in_file);
            self.headers_at =
                all.find(holds).map_or(0, |one| one.address + (headers_in_file - one.offset));
        }
        Ok(())
    }

    /// Returns the interpreter's path with the final zero, if `file` has it; `file` may be only the
    /// beginning of the file.
    #[must_use]
    pub fn interpreter_in<'f>(&self, file: &'f [u8]) -> Option<&'f [u8]> {
        let Area { at, len } = self.interpreter?;
        let start = usize::try_from(at).ok()?;
        file.get(start..start.checked_add(len as usize)?)
    }

    /// Returns the addresses in memory, in whole pages.
    #[must_use]
    pub fn extent(&self) -> Range<u64> {
        let lowest = self.segments.first().map_or(0, |one| one.address);
        let highest = self.segments.last().map_or(0, |one| one.address + one.memory_len);
        lowest & !(PAGE - 1)..highest.next_multiple_of(PAGE)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read(std::env::current_exe().unwrap()).unwrap()
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_program_is_read() {
        let image = Image::read(&own()).unwrap();
        assert!(image.is_movable && !image.is_go);
        assert!(image.segments.iter().any(|one| one.is_executable && !one.is_writable));
        let file = own();
        let path = image.interpreter_in(&file).unwrap();
        assert_eq!(image.interpreter_in(&file[..8]), None);
        assert!(path.starts_with(b"/lib") && path.ends_with(b"\0"));
        let Range { start, end } = image.extent();
        assert!(start % PAGE == 0 && end % PAGE == 0 && (start..end).contains(&image.entry));
    }

    #[test]
    fn build_ids_are_read_from_notes() {
        let mut image = Image::read(&own()).unwrap();
        image.build_id.clear();
        // A note of GNU's that is no build-id, a build-id of six bytes, and Go's note.
        image.take_notes(
            b"\x04\0\0\0\x04\0\0\0\x05\0\0\0GNU\0none\x04\0\0\0\x06\0\0\0\x03\0\0\0GNU\0sixsix\0\0",
        );
        assert_eq!((image.build_id.as_slice(), image.is_go), (&b"sixsix"[..], false));
        image.take_notes(b"\x04\0\0\0\x02\0\0\0\x04\0\0\0Go\0\0id\0\0");
        assert_eq!((image.build_id.as_slice(), image.is_go), (&b"sixsixid"[..], true));
        // A note that is longer than its segment.
        image.take_notes(b"\x04\0\0\0\xff\xff\xff\xff\x03\0\0\0GNU\0");
        assert_eq!(image.build_id, b"sixsixid");
    }

    #[test]
    fn the_reach_is_enough_to_read_a_file() {
        let whole = own();
        let mut len = HEADER as u64;
        while Image::reach(&whole[..len as usize]) > len {
            len = Image::reach(&whole[..len as usize]);
        }
        assert!(len < whole.len() as u64);
        let (some, all) = (Image::read(&whole[..len as usize]), Image::read(&whole));
        assert_eq!(some.unwrap(), all.unwrap());
    }

    #[test]
    fn no_cut_and_no_changed_byte_of_the_headers_is_fatal() {
        let whole = &own()[..4096];
        for len in 0..1024 {
            let _ = Image::read(&whole[..len]);
        }
        let mut bytes = whole.to_vec();
        for at in 0..1024 {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let kept = std::mem::replace(&mut bytes[at], byte);
                if let Ok(image) = Image::read(&bytes) {
                    assert!(!image.extent().is_empty());
                }
                bytes[at] = kept;
            }
        }
        bytes[4] = 1;
        assert_eq!(Image::read(&bytes), Err(ElfError::Machine));
        assert_eq!(Image::read(b"#!/bin/sh"), Err(ElfError::NotElf));
    }
}
