//! The mappings of this process (`/proc/thread-self/maps`, proc(5)): which of them are code of
//! files.
//!
//! Not here: what the code has in it (`candidates`).

use crate::{linker, objects, raw};
use core::ops::Range;

pub(super) const PAGE: u64 = 4096;

/// A mapping's addresses, and the part of a file that they map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) range: Range<u64>,
    pub(super) offset: u64,
    pub(super) file: File,
}

/// A file by its device, as proc(5) writes it, and its inode's number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    device: String,
    inode: u64,
}

/// A mapping.
#[derive(Clone, Debug)]
pub(super) struct Mapping {
    pub(super) extent: Extent,
    is_readable: bool,
    is_writable: bool,
    is_executable: bool,
    pub(super) is_private: bool,
    name: String,
}

impl Mapping {
    fn is_file(&self) -> bool {
        self.extent.file.inode != 0
    }
}

/// All mappings, in ascending order.
#[derive(Debug)]
pub(super) struct Maps {
    all: Vec<Mapping>,
    excepted: Vec<File>,
}

fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let rights = words.next()?.as_bytes();
    let offset = hex(words.next()?)?;
    let file = File { device: words.next()?.to_owned(), inode: words.next()?.parse().ok()? };
    let has = |at: usize, right: u8| rights.get(at) == Some(&right);
    Some(Mapping {
        extent: Extent { range: hex(start)?..hex(end)?, offset, file },
        is_readable: has(0, b'r'),
        is_writable: has(1, b'w'),
        is_executable: has(2, b'x'),
        is_private: has(3, b'p'),
        name: words.next().unwrap_or_default().to_owned(),
    })
}

impl Maps {
    /// Reads the mappings; `None` if they cannot be read.
    pub(super) fn read() -> Option<Self> {
        let text = std::fs::read("/proc/thread-self/maps").ok()?;
        let text = String::from_utf8_lossy(&text);
        let all = text.lines().map(parse).collect::<Option<Vec<_>>>()?;
        let mut maps = Self { all, excepted: Vec::new() };
        maps.excepted = maps.known_files();
        Some(maps)
    }

    /// Returns the files whose calls are known: this library, the dynamic loader, and the parts of
    /// the C library.
    fn known_files(&self) -> Vec<File> {
        // SAFETY: reads the auxiliary vector.
        let loader = unsafe { libc::getauxval(libc::AT_BASE) };
        let own = linker::base() as u64;
        // One function of each object that glibc had before version 2.34.
        let parts = [c"write", c"pthread_create", c"dlopen", c"timer_create", c"forkpty"];
        let parts = parts.iter().filter_map(|name| objects::of_c_library(name));
        let at = [own, loader].into_iter().chain(parts.map(|at| at as u64));
        at.filter_map(|at| Some(self.at(at)?.extent.file.clone()))
            .filter(|f| f.inode != 0)
            .collect()
    }

    /// Returns the mapping with this address.
    fn at(&self, address: u64) -> Option<&Mapping> {
        self.all.iter().find(|one| one.extent.range.contains(&address))
    }

    /// Iterates over the code that comes from files and is not writable.
    pub(super) fn code(&self) -> impl Iterator<Item = &Mapping> {
        self.all
            .iter()
            .filter(|one| one.is_file() && one.is_executable && one.is_readable && !one.is_writable)
    }

    /// Returns true if there is code of a file that cannot be read, or that is writable as well.
    pub(super) fn has_unclear_code(&self) -> bool {
        let is_unclear = |one: &Mapping| one.is_writable || !one.is_readable;
        self.all.iter().any(|one| one.is_file() && one.is_executable && is_unclear(one))
    }

    /// Returns true if the calls of this code are known.
    pub(super) fn is_excepted(&self, code: &Mapping) -> bool {
        self.excepted.contains(&code.extent.file)
    }

    /// Returns the address of the first page of the code's file, if it is mapped before the code.
    pub(super) fn base(&self, code: &Mapping) -> Option<u64> {
        let is_base = |one: &&Mapping| {
            let extent = &one.extent;
            extent.file == code.extent.file
                && extent.offset == 0
                && extent.range.start <= code.extent.range.start
        };
        self.all.iter().rev().find(is_base).map(|one| one.extent.range.start)
    }

    /// Returns what is mapped of the code's file for reading only, code and constants.
    pub(super) fn constants(&self, code: &Mapping) -> impl Iterator<Item = &Mapping> {
        let file = code.extent.file.clone();
        let is_it = move |one: &&Mapping| one.extent.file == file && one.is_readable;
        self.all.iter().filter(is_it).filter(|one| !one.is_writable)
    }

    /// Returns true if nothing is mapped at these addresses, and nothing is going to grow there:
    /// the program's break, and the first thread's stack.
    pub(super) fn is_free(&self, range: &Range<u64>) -> bool {
        /// Room that the break and the stack keep.
        const BREAK: u64 = 16 << 20;
        const STACK: u64 = 1 << 30;
        /// The end of the addresses of programs (47 bits), and the lowest that is used here.
        const ALL: Range<u64> = 1 << 20..(1 << 47) - PAGE;
        let meets = |other: Range<u64>| range.start < other.end && other.start < range.end;
        let named = |name| self.all.iter().find(move |one| one.name == name);
        // SAFETY: tells where the break is.
        let end = unsafe { raw::call(libc::SYS_brk, [0; 6]) } as u64;
        let start = named("[heap]").map_or(end, |heap| heap.extent.range.start);
        let stack = named("[stack]").map(|one| one.extent.range.clone());
        let is_inside = ALL.start <= range.start && range.end <= ALL.end;
        is_inside
            && !meets(start..end + BREAK)
            && !stack.is_some_and(|stack| meets(stack.start.saturating_sub(STACK)..stack.end))
            && !self.all.iter().any(|one| meets(one.extent.range.clone()))
    }
}
