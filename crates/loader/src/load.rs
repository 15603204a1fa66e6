//! Loading a program: its file is mapped, and its text is rewritten.
//!
//! Not here: the format of the file (`sojourn_abi::elf`), the layout in memory
//! (`sojourn_abi::layout`), the writing of patches (`rewriting`).

use crate::cache::{self, FileText};
use crate::raw;
use crate::refusal::Refusal;
use crate::rewriting::{self, Refused};
use core::ffi::CStr;
use sojourn_abi::cache::BuildId;
use sojourn_abi::cache::{FileState, checksum};
use sojourn_abi::class::FIRST;
use sojourn_abi::elf::{Area, Image};
use sojourn_abi::layout::{Mapping, Plan, Room, Source, plan};
use sojourn_abi::patch::{Trampoline, region_len};
use sojourn_abi::sites::{Rewrite, Site, Text};
use sojourn_abi::starts::Key;
use std::ffi::CString;

/// A program's file, mapped unchanged.
pub(crate) struct File {
    fd: usize,
    status: libc::stat,
    bytes: &'static [u8],
    pub(crate) image: Image,
}

impl File {
    /// Opens a program and reads its headers.
    pub(crate) fn open(path: &CStr) -> Result<Self, Refusal> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        let arguments = [path.as_ptr() as usize, flags, 0, 0, 0, 0];
        // SAFETY: a path that ends with a zero.
        let fd = number(unsafe { raw::call(libc::SYS_open, arguments) })?;
        let status = raw::status(fd).ok_or(Refusal::Kernel(libc::EBADF))?;
        let bytes = raw::map(fd, status.st_size as usize).map_err(Refusal::Kernel)?;
        let image = Image::read(bytes).map_err(Refusal::File)?;
        Ok(Self { fd, status, bytes, image })
    }

    /// Returns the file's absolute path without symbolic links; `None` if the file has none any
    /// more.
    pub(crate) fn path(&self) -> Option<CString> {
        let link = CString::new(format!("/proc/self/fd/{}", self.fd)).ok()?;
        raw::link(&link).filter(|path| !path.to_bytes().ends_with(b" (deleted)"))
    }

    /// Returns the name of the program at `path`, whose file this is, in the record of starts.
    pub(crate) fn key(&self, path: &CStr) -> Key {
        let first = self.bytes.get(..FIRST).unwrap_or(self.bytes);
        Key::new(path.to_bytes(), first, &FileState::of(&self.status))
    }

    /// Returns the path of the program's interpreter.
    pub(crate) fn interpreter(&self) -> Option<&'static CStr> {
        CStr::from_bytes_until_nul(self.image.interpreter_in(self.bytes)?).ok()
    }

    /// Returns the system calls of each executable segment, at the addresses in the headers.
    fn sites(&self) -> Result<Vec<Examined>, Refusal> {
        let executable = self.image.segments.iter().filter(|one| one.is_executable);
        let build_id = BuildId(checksum(&self.image.build_id));
        executable
            .filter(|one| one.file_len > 0)
            .map(|one| {
                let start = one.offset as usize;
                let bytes = start
                    .checked_add(one.file_len as usize)
                    .and_then(|end| self.bytes.get(start..end))
                    .ok_or(Refusal::File(sojourn_abi::elf::ElfError::Headers))?;
                let text = Text { address: one.address, bytes };
                let in_file = FileText { fd: self.fd, build_id, offset: one.offset };
                let found = cache::sites(in_file, text);
                if one.is_writable && !found.sites.is_empty() {
                    return Err(Refusal::WritableCode);
                }
                if found.sets_gs.is_some() {
                    return Err(Refusal::Gs);
                }
                if found.tests_integrity {
                    return Err(Refusal::Integrity);
                }
                Ok(Examined { text, sites: found.sites })
            })
            .collect()
    }
}

/// An executable segment.
struct Examined {
    text: Text<'static>,
    /// Its system calls.
    sites: Vec<Site>,
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: no reference to the bytes is left.
        unsafe {
            raw::unmap(self.bytes);
            raw::call(libc::SYS_close, [self.fd, 0, 0, 0, 0, 0]);
        }
    }
}

/// Returns a system call's result, or the kernel's error.
fn number(result: isize) -> Result<usize, Refusal> {
    usize::try_from(result).map_err(|_| Refusal::Kernel(-result as i32))
}

/// A program in memory.
pub(crate) struct Loaded {
    pub(crate) plan: Plan,
    /// The addresses of calls that could not be rewritten, in ascending order.
    pub(crate) left: Vec<usize>,
    /// The trampolines, in ascending order.
    pub(crate) trampolines: Vec<Trampoline>,
}

/// The two parts that a program can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Program,
    Interpreter,
}

/// Loads a program whose trampolines lead to `entry`.
pub(crate) fn load(file: &File, part: Part, entry: usize) -> Result<Loaded, Refusal> {
    let texts = file.sites()?;
    let trampolines = texts.iter().map(|one| room_of(&one.sites)).sum::<usize>() as u64;
    let breaks = if part == Part::Program { BREAK_MAX } else { 0 };
    let gap = if part == Part::Program { random(13) << 12 } else { 0 };
    let plan = place(file, part, Room { trampolines, gap, breaks })?;
    let mut region = plan.trampolines.at as usize;
    let (mut left, mut trampolines) = (Vec::new(), Vec::new());
    for Examined { text, sites } in texts {
        let text = Text { address: text.address.wrapping_add(plan.base), bytes: text.bytes };
        let based = |site: Site| Site { at: site.at.wrapping_add(plan.base), ..site };
        let sites: Vec<Site> = sites.into_iter().map(based).collect();
        let made = rewriting::rewrite(text, &sites, region, entry);
        trampolines.extend(made.map_err(|Refused(error)| Refusal::Text(error))?);
        region += room_of(&sites);
        left.extend(sites.iter().filter(|site| is_missed(site)).map(|site| site.at as usize));
    }
    Ok(Loaded { plan, left, trampolines })
}

/// Maps a program's file, and reserves room behind it.
pub(crate) fn place(file: &File, part: Part, room: Room) -> Result<Plan, Refusal> {
    let plan = reserve(&file.image, part, room)?;
    for mapping in &plan.mappings {
        map(mapping, file.fd)?;
    }
    for Area { at, len } in &plan.cleared {
        // SAFETY: the end of a writable page of the program.
        unsafe { core::ptr::write_bytes(*at as *mut u8, 0, *len as usize) };
    }
    Ok(plan)
}

/// Returns true if a call is left that must be trapped. An rt_sigreturn(2) need not be: signal
/// handlers return through the kernel in any case.
fn is_missed(site: &Site) -> bool {
    site.rewrite == Rewrite::Unchanged && site.number != Some(libc::SYS_rt_sigreturn as u32)
}

fn room_of(sites: &[Site]) -> usize {
    region_len(sites).next_multiple_of(4096)
}

/// The most bytes of the break: more than any program uses.
const BREAK_MAX: u64 = 1 << 36;

/// Returns this many random bits.
fn random(bits: u32) -> u64 {
    let mut value = 0u64;
    let arguments = [(&raw mut value) as usize, 8, 0, 0, 0, 0];
    // SAFETY: `value` has room for the bytes.
    unsafe { raw::call(libc::SYS_getrandom, arguments) };
    value & ((1 << bits) - 1)
}

/// The region for movable programs, far from the addresses that the kernel chooses.
const MOVABLE: u64 = 0x1000_0000_0000;
const TRIES: u32 = 16;

/// Plans the layout of a program and reserves its addresses.
fn reserve(image: &Image, part: Part, room: Room) -> Result<Plan, Refusal> {
    let flags =
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let mut error = Refusal::Kernel(libc::ENOMEM);
    for _ in 0..TRIES {
        let half = if part == Part::Program { 0 } else { MOVABLE };
        let plan = plan(image, MOVABLE + half + (random(31) << 12), room);
        let (at, len) = (plan.reserved.at as usize, plan.reserved.len as usize);
        let arguments = [at, len, libc::PROT_NONE as usize, flags as usize, usize::MAX, 0];
        // SAFETY: `MAP_FIXED_NOREPLACE` maps only where nothing is mapped.
        match number(unsafe { raw::call(libc::SYS_mmap, arguments) }) {
            Ok(got) if got == at => return Ok(plan),
            Ok(_) => {}
            Err(refused) => error = refused,
        }
    }
    Err(error)
}

fn map(mapping: &Mapping, fd: usize) -> Result<(), Refusal> {
    let [read, write, code] = mapping.access;
    let protection = [(read, libc::PROT_READ), (write, libc::PROT_WRITE), (code, libc::PROT_EXEC)]
        .into_iter()
        .filter_map(|(has, bit)| has.then_some(bit as usize))
        .sum();
    let private = (libc::MAP_PRIVATE | libc::MAP_FIXED) as usize;
    let (at, len) = (mapping.at as usize, mapping.len as usize);
    let arguments = match mapping.source {
        Source::File(offset) => [at, len, protection, private, fd, offset as usize],
        Source::Zero => {
            [at, len, protection, private | libc::MAP_ANONYMOUS as usize, usize::MAX, 0]
        }
    };
    // SAFETY: within the reservation.
    number(unsafe { raw::call(libc::SYS_mmap, arguments) }).map(|_| ())
}
