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
use sojourn_abi::elf::{Area, ElfError, Image};
use sojourn_abi::layout::{Mapping, Plan, Room, Source, plan};
use sojourn_abi::patch::{Trampoline, region_len};
use sojourn_abi::sites::{Rewrite, Site, Text};
use sojourn_abi::starts::Key;
use std::ffi::CString;

/// A program's file.
pub(crate) struct File {
    opened: Opened,
    status: libc::stat,
    start: Start,
    pub(crate) image: Image,
}

/// Those bytes of a file that tell how it is loaded.
enum Start {
    /// The first bytes, with all that is needed.
    Read(Vec<u8>),
    /// All bytes, mapped unchanged.
    Mapped(&'static [u8]),
}

impl Start {
    /// Most files have everything in as many bytes.
    const LEN: usize = 4096;

    fn of(fd: usize, len: u64) -> Result<Self, Refusal> {
        let mut bytes = vec![0; Self::LEN];
        let arguments = [fd, bytes.as_mut_ptr() as usize, Self::LEN, 0, 0, 0];
        // SAFETY: there is room for the answer.
        let got = number(unsafe { raw::call(libc::SYS_pread64, arguments) })?;
        bytes.truncate(got);
        if Image::reach(&bytes).min(len) <= got as u64 {
            return Ok(Self::Read(bytes));
        }
        raw::map(fd, len as usize).map(Self::Mapped).map_err(Refusal::Kernel)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Read(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl Drop for Start {
    fn drop(&mut self) {
        if let Self::Mapped(bytes) = self {
            // SAFETY: no reference to the bytes is left.
            unsafe { raw::unmap(bytes) };
        }
    }
}

/// An open file, which Drop closes.
struct Opened {
    fd: usize,
    /// The file's absolute path without symbolic links, if that is known.
    path: Option<CString>,
}

impl Opened {
    const FLAGS: usize = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;

    fn at(path: &CStr) -> Result<Self, Refusal> {
        let arguments = [path.as_ptr() as usize, Self::FLAGS, 0, 0, 0, 0];
        // SAFETY: a path that ends with a zero.
        let fd = number(unsafe { raw::call(libc::SYS_open, arguments) })?;
        Ok(Self { fd, path: None })
    }

    /// Opens a file whose path has no symbolic links, so that nobody need ask for the path again;
    /// `/proc` takes its time. `None`: the path may have some, or the kernel cannot tell (Linux 5.6
    /// can).
    fn directly(path: &CStr) -> Option<Self> {
        const NO_SYMLINKS: u64 = 4;
        let parts = path.to_bytes().strip_prefix(b"/")?.split(|byte| *byte == b'/');
        let is_whole = parts.into_iter().all(|part| ![&b""[..], b".", b".."].contains(&part));
        let how = [Self::FLAGS as u64, 0, NO_SYMLINKS];
        let (folder, name) = (libc::AT_FDCWD as usize, path.as_ptr() as usize);
        let arguments = [folder, name, (&raw const how) as usize, size_of_val(&how), 0, 0];
        // SAFETY: a path that ends with a zero, and the structure of openat2(2).
        let fd = is_whole.then(|| unsafe { raw::call(libc::SYS_openat2, arguments) })?;
        Some(Self { fd: number(fd).ok()?, path: Some(path.to_owned()) })
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: this value's own descriptor.
        unsafe { raw::call(libc::SYS_close, [self.fd, 0, 0, 0, 0, 0]) };
    }
}

impl File {
    /// Opens a program and reads its headers.
    pub(crate) fn open(path: &CStr) -> Result<Self, Refusal> {
        Self::of(Opened::at(path)?)
    }

    /// Does the same for a program whose [`Self::path`] will be asked for.
    pub(crate) fn open_directly(path: &CStr) -> Result<Self, Refusal> {
        Self::of(Opened::directly(path).map_or_else(|| Opened::at(path), Ok)?)
    }

    fn of(opened: Opened) -> Result<Self, Refusal> {
        let status = raw::status(opened.fd).ok_or(Refusal::Kernel(libc::EBADF))?;
        let start = Start::of(opened.fd, status.st_size as u64)?;
        let image = Image::read(start.bytes()).map_err(Refusal::File)?;
        Ok(Self { opened, status, start, image })
    }

    /// Returns the file's absolute path without symbolic links; `None` if the file has none any
    /// more.
    pub(crate) fn path(&self) -> Option<CString> {
        if let Some(path) = &self.opened.path {
            return Some(path.clone());
        }
        let link = CString::new(format!("/proc/self/fd/{}", self.opened.fd)).ok()?;
        raw::link(&link).filter(|path| !path.to_bytes().ends_with(b" (deleted)"))
    }

    /// Returns the name of the program at `path`, whose file this is, in the record of starts.
    pub(crate) fn key(&self, path: &CStr) -> Key {
        let bytes = self.start.bytes();
        let first = bytes.get(..FIRST).unwrap_or(bytes);
        Key::new(path.to_bytes(), first, &FileState::of(&self.status))
    }

    /// Returns the path of the program's interpreter.
    pub(crate) fn interpreter(&self) -> Option<&CStr> {
        CStr::from_bytes_until_nul(self.image.interpreter_in(self.start.bytes())?).ok()
    }

    /// Returns the system calls of each executable segment of the file, which is mapped as planned.
    fn sites(&self, plan: &Plan) -> Result<Vec<Examined>, Refusal> {
        let executable = self.image.segments.iter().filter(|one| one.is_executable);
        let build_id = BuildId(checksum(&self.image.build_id));
        executable
            .filter(|one| one.file_len > 0)
            .map(|one| {
                if one.offset.saturating_add(one.file_len) > self.status.st_size as u64 {
                    return Err(Refusal::File(ElfError::Headers));
                }
                let address = one.address.wrapping_add(plan.base);
                // SAFETY: mapped and readable, up to the file's end.
                let bytes = unsafe {
                    core::slice::from_raw_parts(address as *const u8, one.file_len as usize)
                };
                let text = Text { address, bytes };
                let in_file = FileText { fd: self.opened.fd, build_id, offset: one.offset };
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
                Ok(Examined { text, sites: found.sites, is_open: !one.is_writable })
            })
            .collect()
    }
}

/// An executable segment.
struct Examined {
    text: Text<'static>,
    /// Its system calls.
    sites: Vec<Site>,
    /// True if it is writable now and not yet executable ([`Code::Open`]).
    is_open: bool,
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
    let Placed { plan, texts } = examine(file, part)?;
    let mut region = plan.trampolines.at as usize;
    let (mut left, mut trampolines) = (Vec::new(), Vec::new());
    for Examined { text, sites, is_open } in texts {
        if is_open {
            let made = rewriting::rewrite_open(text, &sites, region, entry);
            trampolines.extend(made.map_err(|Refused(error)| Refusal::Text(error))?);
        }
        region += room_of(&sites);
        left.extend(sites.iter().filter(|site| is_missed(site)).map(|site| site.at as usize));
    }
    Ok(Loaded { plan, left, trampolines })
}

/// A program in memory that is not yet rewritten.
struct Placed {
    plan: Plan,
    texts: Vec<Examined>,
}

/// Bytes that are reserved for trampolines before their number is known. What is too much is given
/// back.
const TRAMPOLINES: usize = 1 << 20;

/// Maps a program's file, and finds its system calls there: a second mapping would cost page
/// faults.
fn examine(file: &File, part: Part) -> Result<Placed, Refusal> {
    let breaks = if part == Part::Program { BREAK_MAX } else { 0 };
    let gap = if part == Part::Program { random(13) << 12 } else { 0 };
    let mut reserved = TRAMPOLINES;
    loop {
        let room = Room { trampolines: reserved as u64, gap, breaks };
        let plan = place(file, part, room, Code::Open)?;
        let texts = file.sites(&plan)?;
        let needed = texts.iter().map(|one| room_of(&one.sites)).sum();
        let (from, len) = match needed > reserved {
            true => (plan.reserved.at as usize, plan.reserved.len as usize),
            false => (plan.trampolines.at as usize + needed, reserved - needed),
        };
        // SAFETY: the whole reservation, or its end, which nothing uses.
        unsafe { raw::call(libc::SYS_munmap, [from, len, 0, 0, 0, 0]) };
        if needed <= reserved {
            return Ok(Placed { plan, texts });
        }
        reserved = needed;
    }
}

/// How code is mapped that cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// As the program says.
    Closed,
    /// To be read and written, until it is rewritten.
    Open,
}

/// Maps a program's file, and reserves room behind it.
pub(crate) fn place(file: &File, part: Part, room: Room, code: Code) -> Result<Plan, Refusal> {
    let plan = reserve(&file.image, part, room)?;
    for mapping in &plan.mappings {
        let is_opened = code == Code::Open && mapping.source != Source::Zero;
        let access = match mapping.access {
            [_, false, true] if is_opened => [true, true, false],
            access => access,
        };
        map(&Mapping { access, ..*mapping }, file.opened.fd)?;
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
