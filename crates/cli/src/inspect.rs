//! How a program gets the library, from its file alone.
//!
//! The dynamic loader preloads into programs that it loads itself, whose C library is ours, and
//! which do not gain privileges by being started. Programs that make their own system calls are
//! loaded by Sojourn's own loader. A script is what its interpreter is. Not here: reading ELF
//! (`elf`), finding the file (`search`).

mod elf;
#[cfg(test)]
pub(crate) mod tests;

use elf::{Elf, ElfError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// How a program gets the library.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The dynamic loader preloads it.
    Preload,
    /// Sojourn's loader loads the program: it is static, of musl, or Go's. For a script, its
    /// interpreter, and what the script's first line gives it.
    Load(Option<(PathBuf, Option<OsString>)>),
}

/// Why a program cannot get it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Obstacle {
    /// It must be the first before the C library, and counts what we do as the program's.
    #[error("it is made with {0}, which watches every call and thread, also the library's")]
    Sanitizer(&'static str),
    /// Of another architecture or word length.
    #[error("it is made for another kind of machine ({0})")]
    Machine(String),
    /// Of another C library.
    #[error("its loader is {0}, that of another C library")]
    Loader(PathBuf),
    /// The loader ignores us.
    #[error(
        "it is set-user-ID, and the loader preloads nothing into programs that gain privileges"
    )]
    SetUser,
    /// The loader ignores us.
    #[error(
        "it is set-group-ID, and the loader preloads nothing into programs that gain privileges"
    )]
    SetGroup,
    /// The loader ignores us.
    #[error(
        "it has capabilities, and the loader preloads nothing into programs that gain privileges"
    )]
    Capabilities,
    /// We may run it but not look.
    #[error("its file cannot be read ({0}), so that nobody knows whether it can be preloaded")]
    Unreadable(Errno),
    /// Where a library should be.
    #[error("it is a program")]
    Program,
    /// Neither ELF nor script.
    #[error("it is neither an ELF program nor a script")]
    Unknown,
    /// A damaged ELF file.
    #[error("its ELF headers make no sense ({0})")]
    Damaged(&'static str),
    /// The script is fine, its interpreter is not.
    #[error("its interpreter {0:?}: {1}")]
    Interpreter(PathBuf, Box<Obstacle>),
    /// Interpreters of interpreters.
    #[error("its interpreters are nested too deep")]
    Nested,
}

/// Who would run it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    /// The real user.
    pub(crate) uid: u32,
    /// The real group.
    pub(crate) gid: u32,
}

impl Runner {
    /// This process.
    pub(crate) fn this() -> Self {
        Self { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }
}

/// The kernel follows as many `#!` lines.
const DEPTH_MAX: usize = 5;
/// Enough for any `#!` line the kernel takes and for most ELF headers.
const FIRST_BYTES: usize = 4096;

/// Looks how the program in `file` gets the library when `runner` runs it.
pub(crate) fn inspect(file: &Path, runner: Runner) -> Result<Way, Obstacle> {
    inspect_nested(file, runner, 0)
}

/// Looks whether `file` is a library of this machine.
pub(crate) fn inspect_library(file: &Path) -> Result<(), Obstacle> {
    let open = open(file).map_err(Obstacle::Unreadable)?;
    let mut bytes = [0; FIRST_BYTES];
    let len = read(&open, &mut bytes, 0).map_err(Obstacle::Unreadable)?;
    let bytes = &bytes[..len];
    if !bytes.starts_with(elf::MAGIC) {
        return Err(Obstacle::Unknown);
    }
    let read_more = |offset, buffer: &mut [u8]| read(&open, buffer, offset).unwrap_or(0);
    let elf = Elf::read(bytes, read_more).map_err(of_headers)?;
    if elf.is_program { Err(Obstacle::Program) } else { Ok(()) }
}

fn of_headers(error: ElfError) -> Obstacle {
    match error {
        ElfError::Machine(what) => Obstacle::Machine(what),
        ElfError::Damaged(what) => Obstacle::Damaged(what),
    }
}

fn inspect_nested(file: &Path, runner: Runner, depth: usize) -> Result<Way, Obstacle> {
    let open = open(file).map_err(Obstacle::Unreadable)?;
    let mut bytes = [0; FIRST_BYTES];
    let len = read(&open, &mut bytes, 0).map_err(Obstacle::Unreadable)?;
    let bytes = &bytes[..len];
    if let Some((interpreter, argument)) = interpreter_of(bytes) {
        if depth == DEPTH_MAX {
            return Err(Obstacle::Nested);
        }
        return match inspect_nested(&interpreter, runner, depth + 1) {
            Ok(Way::Load(None)) => Ok(Way::Load(Some((interpreter, argument)))),
            // An interpreter that is a script: the kernel puts the lines together.
            Ok(Way::Load(Some(_))) => {
                Err(Obstacle::Interpreter(interpreter, Box::new(Obstacle::Nested)))
            }
            Ok(Way::Preload) => Ok(Way::Preload),
            Err(cause) => Err(Obstacle::Interpreter(interpreter, Box::new(cause))),
        };
    }
    if !bytes.starts_with(elf::MAGIC) {
        return Err(Obstacle::Unknown);
    }
    privileges(&open, runner)?;
    let read_more = |offset, buffer: &mut [u8]| read(&open, buffer, offset).unwrap_or(0);
    let elf = Elf::read(bytes, read_more).map_err(of_headers)?;
    if let Some(sanitizer) = elf.sanitizer {
        return Err(Obstacle::Sanitizer(sanitizer));
    }
    // The loader itself, told to load a program: it preloads into that.
    if elf.interpreter.is_none() && is_a_name_of_our_loader(file) {
        return Ok(Way::Preload);
    }
    match elf.interpreter {
        None => Ok(Way::Load(None)),
        Some(loader) if is_our_loader(&loader) && !elf.is_go => Ok(Way::Preload),
        // Go calls the C library for some things only.
        Some(loader) if is_our_loader(&loader) || is_musl(&loader) => Ok(Way::Load(None)),
        Some(loader) => Err(Obstacle::Loader(loader)),
    }
}

/// Whether a loader is musl's, by its name.
fn is_musl(loader: &Path) -> bool {
    let name = loader.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld-musl-")
}

fn open(file: &Path) -> Result<File, Errno> {
    // Not blocking, for the case that somebody has put a FIFO there.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(file, flags, Mode::empty())?.into())
}

/// Reads as much as there is, up to the length of `buffer`.
fn read(file: &File, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read_at(&mut buffer[len..], offset.saturating_add(len as u64)) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Ok(len)
}

/// The interpreter of a script, and the one argument that it may be given.
fn interpreter_of(bytes: &[u8]) -> Option<(PathBuf, Option<OsString>)> {
    let line = bytes.strip_prefix(b"#!")?;
    let end = line.iter().position(|byte| matches!(byte, b'\n' | b'\0')).unwrap_or(line.len());
    let line = line[..end].trim_ascii();
    let is_gap = |byte: &u8| matches!(byte, b' ' | b'\t');
    let word = line.split(is_gap).next().filter(|word| !word.is_empty())?;
    let rest = line[word.len()..].trim_ascii();
    let argument = (!rest.is_empty()).then(|| OsStr::from_bytes(rest).to_owned());
    Some((OsStr::from_bytes(word).into(), argument))
}

/// Whether starting the program gains privileges: the kernel then tells the loader, and the loader
/// preloads nothing.
fn privileges(file: &File, runner: Runner) -> Result<(), Obstacle> {
    const SET_USER: u32 = 0o4000;
    /// Without the group's execute bit it means something else.
    const SET_GROUP: u32 = 0o2010;
    let metadata = file
        .metadata()
        .map_err(|error| Obstacle::Unreadable(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if metadata.mode() & SET_USER != 0 && metadata.uid() != runner.uid {
        return Err(Obstacle::SetUser);
    }
    if metadata.mode() & SET_GROUP == SET_GROUP && metadata.gid() != runner.gid {
        return Err(Obstacle::SetGroup);
    }
    // Root has them all already.
    let has = runner.uid != 0
        && rustix::fs::fgetxattr(file, "security.capability", &mut [0u8; 64][..]).is_ok();
    if has { Err(Obstacle::Capabilities) } else { Ok(()) }
}

/// Whether a file is the loader itself, whichever of its names that is (`ld-2.31.so`,
/// `/usr/bin/ld.so`).
fn is_a_name_of_our_loader(file: &Path) -> bool {
    if is_our_loader(file) {
        return true;
    }
    // Where programs name it; the file behind may have its version for a name.
    let usual = match std::env::consts::ARCH {
        "x86_64" => "/lib64/ld-linux-x86-64.so.2",
        "aarch64" => "/lib/ld-linux-aarch64.so.1",
        _ => return std::fs::canonicalize(file).is_ok_and(|file| is_our_loader(&file)),
    };
    let identity =
        |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    std::fs::canonicalize(file).is_ok_and(|file| is_our_loader(&file))
        || identity(file).is_some() && identity(file) == identity(Path::new(usual))
}

/// Whether a loader is the one of the C library that the preload library needs. Its path may differ
/// (another installation of the same C library), its name does not.
fn is_our_loader(loader: &Path) -> bool {
    let ours = match std::env::consts::ARCH {
        "x86_64" => "ld-linux-x86-64.so.2",
        "aarch64" => "ld-linux-aarch64.so.1",
        // Every other one of the GNU C library is called something like it.
        _ => {
            return loader.to_string_lossy().contains("/ld-linux") || loader.ends_with("ld64.so.2");
        }
    };
    loader.ends_with(ours)
}
