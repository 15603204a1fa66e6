//! The method by which a program gets the library, from the program's file alone.
//!
//! The dynamic loader preloads the library into a dynamic program that uses the same C library as
//! the library does, and that gains no privileges at its start. Programs that make their own system
//! calls are loaded by Sojourn's own loader. A script is treated as its interpreter. Not here:
//! reading ELF (`elf`), finding the file (`search`).

mod elf;
#[cfg(test)]
pub(crate) mod tests;

use elf::{Elf, ElfError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The interpreter of a script, as the script's first line names it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Interpreter {
    pub(crate) file: PathBuf,
    /// The one argument that the line may have.
    pub(crate) argument: Option<OsString>,
}

/// The method by which a program gets the library.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoadMethod {
    /// The dynamic loader preloads it.
    Preload,
    /// Sojourn's loader loads the program: it is static, or linked with musl, or made by Go's tool
    /// chain. For a script the value is its interpreter.
    Load(Option<Interpreter>),
}

/// The reason why a program cannot get the library.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Obstacle {
    /// A sanitizer's run-time library must be the first before the C library, and takes the
    /// library's calls for the program's.
    #[error("it is made with {0}, which watches every call and thread, also the library's")]
    Sanitizer(&'static str),
    /// Another architecture or word length.
    #[error("it is made for another kind of machine ({0})")]
    Machine(String),
    /// Another C library.
    #[error("its loader is {0}, that of another C library")]
    Loader(PathBuf),
    /// The dynamic loader preloads nothing in secure-execution mode (ld.so(8)).
    #[error(
        "it is set-user-ID, and the loader preloads nothing into programs that gain privileges"
    )]
    SetUser,
    /// The dynamic loader preloads nothing in secure-execution mode (ld.so(8)).
    #[error(
        "it is set-group-ID, and the loader preloads nothing into programs that gain privileges"
    )]
    SetGroup,
    /// The dynamic loader preloads nothing in secure-execution mode (ld.so(8)).
    #[error(
        "it has capabilities, and the loader preloads nothing into programs that gain privileges"
    )]
    Capabilities,
    /// This user may execute the file but not read it.
    #[error("its file cannot be read ({0}), so that nobody knows whether it can be preloaded")]
    Unreadable(Errno),
    /// A program in place of a library.
    #[error("it is a program")]
    Program,
    /// Neither ELF nor script.
    #[error("it is neither an ELF program nor a script")]
    Unknown,
    /// A damaged ELF file.
    #[error("its ELF headers make no sense ({0})")]
    Damaged(&'static str),
    /// An obstacle of a script's interpreter.
    #[error("its interpreter {0:?}: {1}")]
    Interpreter(PathBuf, Box<Obstacle>),
    /// More interpreters of interpreters than the kernel follows.
    #[error("its interpreters are nested too deep")]
    Nested,
}

/// The user and group that run the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Runner {
    /// The real user.
    pub(crate) uid: Uid,
    /// The real group.
    pub(crate) gid: Gid,
}

impl Runner {
    /// Returns this process's user and group.
    pub(crate) fn this() -> Self {
        Self { uid: rustix::process::getuid(), gid: rustix::process::getgid() }
    }
}

/// The number of `#!` lines that the kernel follows.
const DEPTH_MAX: usize = 5;
/// Bytes that are read first: enough for any `#!` line that the kernel takes and for most ELF
/// headers.
const FIRST_BYTES: usize = 4096;

/// Returns the method by which the program in `file` gets the library when `runner` runs it.
pub(crate) fn inspect(file: &Path, runner: Runner) -> Result<LoadMethod, Obstacle> {
    inspect_nested(file, runner, 0)
}

/// Checks that `file` is a library for this machine.
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

fn inspect_nested(file: &Path, runner: Runner, depth: usize) -> Result<LoadMethod, Obstacle> {
    let open = open(file).map_err(Obstacle::Unreadable)?;
    let mut bytes = [0; FIRST_BYTES];
    let len = read(&open, &mut bytes, 0).map_err(Obstacle::Unreadable)?;
    let bytes = &bytes[..len];
    if let Some(interpreter) = interpreter_of(bytes) {
        if depth == DEPTH_MAX {
            return Err(Obstacle::Nested);
        }
        return match inspect_nested(&interpreter.file, runner, depth + 1) {
            Ok(LoadMethod::Load(None)) => Ok(LoadMethod::Load(Some(interpreter))),
            // The interpreter is a script, too: the kernel passes both scripts' arguments to the
            // last interpreter, which the loader does not do.
            Ok(LoadMethod::Load(Some(_))) => {
                Err(Obstacle::Interpreter(interpreter.file, Box::new(Obstacle::Nested)))
            }
            Ok(LoadMethod::Preload) => Ok(LoadMethod::Preload),
            Err(cause) => Err(Obstacle::Interpreter(interpreter.file, Box::new(cause))),
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
    // The file is the dynamic loader, run by its name to load a program: it preloads into that
    // program.
    if elf.interpreter.is_none() && is_a_name_of_our_loader(file) {
        return Ok(LoadMethod::Preload);
    }
    match elf.interpreter {
        None => Ok(LoadMethod::Load(None)),
        Some(loader) if is_our_loader(&loader) && !elf.is_go => Ok(LoadMethod::Preload),
        // A Go program calls the C library for some operations only, and makes its own system calls
        // for the others.
        Some(loader) if is_our_loader(&loader) || is_musl(&loader) => Ok(LoadMethod::Load(None)),
        Some(loader) => Err(Obstacle::Loader(loader)),
    }
}

/// Returns true if a dynamic loader is musl's, by its name.
fn is_musl(loader: &Path) -> bool {
    let name = loader.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld-musl-")
}

fn open(file: &Path) -> Result<File, Errno> {
    // The path may be a FIFO, whose opening would block without this flag.
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

/// Returns the interpreter of a script.
fn interpreter_of(bytes: &[u8]) -> Option<Interpreter> {
    let line = bytes.strip_prefix(b"#!")?;
    let end = line.iter().position(|byte| matches!(byte, b'\n' | b'\0')).unwrap_or(line.len());
    let line = line[..end].trim_ascii();
    let is_gap = |byte: &u8| matches!(byte, b' ' | b'\t');
    let word = line.split(is_gap).next().filter(|word| !word.is_empty())?;
    let rest = line[word.len()..].trim_ascii();
    let argument = (!rest.is_empty()).then(|| OsStr::from_bytes(rest).to_owned());
    Some(Interpreter { file: OsStr::from_bytes(word).into(), argument })
}

/// Returns an obstacle if the program gains privileges at its start. The kernel then sets
/// `AT_SECURE`, and the dynamic loader preloads nothing.
fn privileges(file: &File, runner: Runner) -> Result<(), Obstacle> {
    const SET_USER: u32 = 0o4000;
    /// Set-group-ID with the group's execute bit; without that bit it is a mark for mandatory
    /// locks.
    const SET_GROUP: u32 = 0o2010;
    let metadata = file
        .metadata()
        .map_err(|error| Obstacle::Unreadable(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if metadata.mode() & SET_USER != 0 && metadata.uid() != runner.uid.as_raw() {
        return Err(Obstacle::SetUser);
    }
    if metadata.mode() & SET_GROUP == SET_GROUP && metadata.gid() != runner.gid.as_raw() {
        return Err(Obstacle::SetGroup);
    }
    // Root has all capabilities already, so a file's capabilities add none.
    let has = !runner.uid.is_root()
        && rustix::fs::fgetxattr(file, "security.capability", &mut [0u8; 64][..]).is_ok();
    if has { Err(Obstacle::Capabilities) } else { Ok(()) }
}

/// Returns true if a file is the dynamic loader, under any of its names (`ld-2.31.so`,
/// `/usr/bin/ld.so`).
fn is_a_name_of_our_loader(file: &Path) -> bool {
    if is_our_loader(file) {
        return true;
    }
    // The path is the one in programs' headers; it may be a link to a file with the version in its
    // name.
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

/// Returns true if a dynamic loader belongs to the C library that the preload library needs. Its
/// path may differ (another installation of the same C library), its name does not.
fn is_our_loader(loader: &Path) -> bool {
    let ours = match std::env::consts::ARCH {
        "x86_64" => "ld-linux-x86-64.so.2",
        "aarch64" => "ld-linux-aarch64.so.1",
        // The GNU C library's loaders have names of this form on other architectures.
        _ => {
            return loader.to_string_lossy().contains("/ld-linux") || loader.ends_with("ld64.so.2");
        }
    };
    loader.ends_with(ours)
}
