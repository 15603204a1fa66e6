//! The part of ELF that decides about preloading: interpreter, machine, notes, needed libraries.
//!
//! Pure: the bytes come in as arguments. The file is not trusted; impossible values are reported as
//! damage. The format is elf(5)'s.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The first bytes of an ELF file.
pub(crate) const MAGIC: &[u8] = b"\x7fELF";

/// The facts in a program's headers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elf {
    /// The dynamic loader; `None` for static programs.
    pub(crate) interpreter: Option<PathBuf>,
    /// The file was linked by Go's linker.
    pub(crate) is_go: bool,
    /// The file is a program, also a position-independent one, and not a library.
    pub(crate) is_program: bool,
    /// The sanitizer whose run-time library the program uses.
    pub(crate) sanitizer: Option<&'static str>,
}

/// The error that the headers cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ElfError {
    /// Another architecture, word length or byte order, in words.
    Machine(String),
    /// Damaged headers: the field with the impossible value.
    Damaged(&'static str),
}

const HEADER_LEN: usize = 64;
const PROGRAM_HEADER_LEN: usize = 56;
/// More program headers than any linker makes.
const PROGRAM_HEADERS_MAX: u16 = 512;
const TYPE_EXECUTABLE: u16 = 2;
const TYPE_SHARED: u16 = 3;
const SEGMENT_INTERPRETER: u32 = 3;
const SEGMENT_NOTE: u32 = 4;
const SEGMENT_LOAD: u32 = 1;
const SEGMENT_DYNAMIC: u32 = 2;
const DYNAMIC_LEN_MAX: u64 = 64 << 10;
/// The most bytes of names of symbols and libraries that are read.
const NAMES_LEN_MAX: u64 = 8 << 20;
/// Tags of the dynamic segment: address and length of the names.
const NAMES_AT: u64 = 5;
const NAMES_LEN: u64 = 10;
const PATH_LEN_MAX: u64 = 4096;
const NOTES_LEN_MAX: u64 = 64 << 10;

/// Returns true if `DT_FLAGS_1` has `DF_1_PIE`, the linkers' mark of a position-independent
/// program.
fn is_position_independent_program(dynamic: &[u8]) -> bool {
    const FLAGS: u64 = 0x6fff_fffb;
    const PROGRAM: u64 = 0x0800_0000;
    let mut entries = dynamic.chunks_exact(16);
    entries.any(|entry| u64_at(entry, 0) == FLAGS && u64_at(entry, 8) & PROGRAM != 0)
}

/// Returns this machine's architecture as elf(5) numbers it.
fn own_machine() -> u16 {
    match std::env::consts::ARCH {
        "x86_64" => 62,
        "aarch64" => 183,
        "riscv64" => 243,
        "powerpc64" => 21,
        "s390x" => 22,
        "loongarch64" => 258,
        _ => 0,
    }
}

impl Elf {
    /// Reads the headers. `first` is the beginning of the file; `read` reads at an offset and
    /// returns the number of bytes.
    pub(crate) fn read(
        first: &[u8],
        read: impl Fn(u64, &mut [u8]) -> usize,
    ) -> Result<Self, ElfError> {
        identify(first)?;
        let header = first.get(..HEADER_LEN).ok_or(ElfError::Damaged("it ends in its header"))?;
        if !matches!(u16_at(header, 16), TYPE_EXECUTABLE | TYPE_SHARED) {
            return Err(ElfError::Damaged("it is no executable"));
        }
        if u16_at(header, 18) != own_machine() {
            return Err(ElfError::Machine(format!("ELF machine {}", u16_at(header, 18))));
        }
        let (entry, count) = (u16_at(header, 54), u16_at(header, 56));
        if usize::from(entry) != PROGRAM_HEADER_LEN || count > PROGRAM_HEADERS_MAX {
            return Err(ElfError::Damaged("its program headers are of no known form"));
        }
        let mut table = vec![0; PROGRAM_HEADER_LEN * usize::from(count)];
        let bytes = |offset: u64, buffer: &mut [u8]| {
            let from_first = usize::try_from(offset)
                .ok()
                .and_then(|start| first.get(start..start.checked_add(buffer.len())?));
            match from_first {
                Some(there) => buffer.copy_from_slice(there),
                None if read(offset, buffer) == buffer.len() => {}
                None => return Err(ElfError::Damaged("it is cut short")),
            }
            Ok(())
        };
        bytes(u64_at(header, 32), &mut table)?;
        let is_fixed = u16_at(header, 16) == TYPE_EXECUTABLE;
        let mut elf =
            Self { interpreter: None, is_go: false, is_program: is_fixed, sanitizer: None };
        let mut dynamic = Vec::new();
        for segment in table.chunks_exact(PROGRAM_HEADER_LEN) {
            let (offset, len) = (u64_at(segment, 8), u64_at(segment, 32));
            let content = |max: u64| {
                let mut content = vec![0; usize::try_from(len.min(max)).unwrap_or(0)];
                bytes(offset, &mut content).map(|()| content)
            };
            match u32_at(segment, 0) {
                SEGMENT_INTERPRETER => elf.interpreter = Some(path(&content(PATH_LEN_MAX)?)?),
                SEGMENT_NOTE => elf.is_go |= has_go_note(&content(NOTES_LEN_MAX)?),
                SEGMENT_DYNAMIC => dynamic = content(DYNAMIC_LEN_MAX)?,
                _ => {}
            }
        }
        elf.is_program |= is_position_independent_program(&dynamic);
        if let Some(FilePart { offset, len }) = names_of(&dynamic, &table) {
            let mut names = vec![0; usize::try_from(len).unwrap_or(0)];
            // Names that cannot be read are no obstacle here: the dynamic loader reports them.
            if bytes(offset, &mut names).is_ok() {
                elf.sanitizer = sanitizer_of(&names);
            }
        }
        Ok(elf)
    }
}

/// A part of the file.
struct FilePart {
    offset: u64,
    len: u64,
}

/// Returns the part of the file that has the dynamic symbols' and libraries' names.
fn names_of(dynamic: &[u8], table: &[u8]) -> Option<FilePart> {
    const ENTRY: usize = 16;
    let entry = |tag: u64| {
        let mut all = dynamic.chunks_exact(ENTRY);
        all.find(|entry| u64_at(entry, 0) == tag).map(|entry| u64_at(entry, 8))
    };
    let (at, len) = (entry(NAMES_AT)?, entry(NAMES_LEN)?.min(NAMES_LEN_MAX));
    let mut segments = table.chunks_exact(PROGRAM_HEADER_LEN);
    segments.find_map(|segment| {
        let (offset, address, length) =
            (u64_at(segment, 8), u64_at(segment, 16), u64_at(segment, 32));
        let inside = at.checked_sub(address).filter(|inside| *inside < length)?;
        let part = || Some(FilePart { offset: offset.checked_add(inside)?, len });
        (u32_at(segment, 0) == SEGMENT_LOAD).then(part)?
    })
}

/// Returns the sanitizer whose run-time library is among the names, or linked into the program.
/// GCC's linked run-time library exports only its replacements of the C library's functions, which
/// other programs do not export. Sanitizers for leaks or undefined behaviour alone are no obstacle.
fn sanitizer_of(names: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 6] = [
        ("__asan_init", "AddressSanitizer"),
        ("libasan.so", "AddressSanitizer"),
        ("__hwasan_init", "HWAddressSanitizer"),
        ("__tsan_init", "ThreadSanitizer"),
        ("libtsan.so", "ThreadSanitizer"),
        ("__msan_init", "MemorySanitizer"),
    ];
    let names: Vec<&[u8]> = names.split(|byte| *byte == 0).collect();
    let is_library = |name: &str| name.ends_with(".so");
    let is_there = |wanted: &str| {
        names.iter().any(|name| match is_library(wanted) {
            true => name.starts_with(wanted.as_bytes()),
            false => *name == wanted.as_bytes(),
        })
    };
    let known = KNOWN.iter().find(|(name, _)| is_there(name)).map(|(_, what)| *what);
    let has_all =
        || ["__xpg_strerror_r", "_obstack_begin_1", "__isoc99_vfscanf"].into_iter().all(is_there);
    known.or_else(|| has_all().then_some("a sanitizer"))
}

/// Checks word length and byte order against this machine's.
fn identify(first: &[u8]) -> Result<(), ElfError> {
    let machine = |what: &str| Err(ElfError::Machine(what.into()));
    let is_little = first.get(5) == Some(&1);
    match first.get(4) {
        Some(2) if is_little == cfg!(target_endian = "little") => Ok(()),
        Some(2) => machine("the other byte order"),
        Some(1) => machine("32 bits"),
        _ => Err(ElfError::Damaged("no known word length")),
    }
}

fn path(bytes: &[u8]) -> Result<PathBuf, ElfError> {
    let end = bytes.iter().position(|byte| *byte == 0);
    match end.filter(|end| *end > 0) {
        Some(end) => Ok(OsStr::from_bytes(&bytes[..end]).into()),
        None => Err(ElfError::Damaged("its loader has no name")),
    }
}

/// Returns true if a note has the name `Go`. Go's linker writes the build identifier there; it
/// stays when the file is stripped.
fn has_go_note(mut notes: &[u8]) -> bool {
    const NOTE_HEADER: usize = 12;
    let padded = |len: u32| (len as usize).next_multiple_of(4);
    while notes.len() >= NOTE_HEADER {
        let (name, content) = (u32_at(notes, 0), u32_at(notes, 4));
        if notes[NOTE_HEADER..].starts_with(b"Go\0\0") && name == 4 {
            return true;
        }
        let whole = NOTE_HEADER.saturating_add(padded(name)).saturating_add(padded(content));
        notes = notes.get(whole..).unwrap_or_default();
    }
    false
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    if let Some(there) = bytes.get(at..at + N) {
        array.copy_from_slice(there);
    }
    array
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(array(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a 64-bit file with these segments.
    fn file(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut header = vec![0; HEADER_LEN];
        header[..6].copy_from_slice(b"\x7fELF\x02\x01");
        header[16..18].copy_from_slice(&TYPE_SHARED.to_ne_bytes());
        header[18..20].copy_from_slice(&own_machine().to_ne_bytes());
        header[32..40].copy_from_slice(&(HEADER_LEN as u64).to_ne_bytes());
        header[54..56].copy_from_slice(&(PROGRAM_HEADER_LEN as u16).to_ne_bytes());
        header[56..58].copy_from_slice(&(segments.len() as u16).to_ne_bytes());
        let mut offset = HEADER_LEN + PROGRAM_HEADER_LEN * segments.len();
        let mut contents = Vec::<u8>::new();
        for (kind, content) in segments {
            let mut segment = vec![0; PROGRAM_HEADER_LEN];
            segment[..4].copy_from_slice(&kind.to_ne_bytes());
            segment[8..16].copy_from_slice(&(offset as u64).to_ne_bytes());
            segment[32..40].copy_from_slice(&(content.len() as u64).to_ne_bytes());
            header.extend(segment);
            contents.extend(*content);
            offset += content.len();
        }
        header.extend(contents);
        header
    }

    fn read(bytes: &[u8]) -> Result<Elf, ElfError> {
        Elf::read(bytes, |_, _| 0)
    }

    const GO: &[u8] =
        b"\x04\0\0\0\x04\0\0\0\x03\0\0\0GNU\0abcd\x04\0\0\0\x02\0\0\0\x04\0\0\0Go\0\0xy\0\0";

    #[test]
    fn loader_and_go_are_found() {
        let loader = file(&[(6, b""), (SEGMENT_INTERPRETER, b"/lib/ld.so\0")]);
        let expected = Elf {
            interpreter: Some("/lib/ld.so".into()),
            is_go: false,
            is_program: false,
            sanitizer: None,
        };
        assert_eq!(read(&loader), Ok(expected));
        let go = file(&[(SEGMENT_NOTE, GO)]);
        assert_eq!(
            read(&go),
            Ok(Elf { interpreter: None, is_go: true, is_program: false, sanitizer: None })
        );
        let gnu = file(&[(SEGMENT_NOTE, &GO[..20])]);
        assert_eq!(
            read(&gnu),
            Ok(Elf { interpreter: None, is_go: false, is_program: false, sanitizer: None })
        );
    }

    #[test]
    fn what_lies_beyond_the_first_bytes_is_read() {
        let whole = file(&[(SEGMENT_INTERPRETER, b"/lib/ld.so\0")]);
        let later = |offset: u64, buffer: &mut [u8]| {
            let start = offset as usize;
            buffer.copy_from_slice(&whole[start..start + buffer.len()]);
            buffer.len()
        };
        let elf = Elf::read(&whole[..HEADER_LEN], later).unwrap();
        assert_eq!(elf.interpreter, Some("/lib/ld.so".into()));
    }

    #[test]
    fn other_machines_are_told_apart() {
        let good = file(&[]);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            read(&bytes)
        };
        assert_eq!(with(4, 1), Err(ElfError::Machine("32 bits".into())));
        assert_eq!(with(5, 2), Err(ElfError::Machine("the other byte order".into())));
        assert_eq!(with(18, 40), Err(ElfError::Machine("ELF machine 40".into())));
        assert_eq!(with(16, 1), Err(ElfError::Damaged("it is no executable")));
    }

    #[test]
    fn no_cut_and_no_changed_byte_is_fatal() {
        let whole = file(&[(SEGMENT_INTERPRETER, b"/lib/ld.so\0"), (SEGMENT_NOTE, GO)]);
        for len in 0..whole.len() {
            let _ = read(&whole[..len]);
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = byte;
                let _ = read(&bytes);
            }
        }
        assert!(matches!(read(&whole[..HEADER_LEN]), Err(ElfError::Damaged(_))));
        assert!(matches!(read(&[]), Err(ElfError::Damaged(_))));
    }
}
