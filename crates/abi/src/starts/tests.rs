#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use core::cell::{Cell, RefCell};

const USER: u32 = 1000;
const FOLDER: Fd = 3;
const RECORD: Fd = 4;
const PLACE: &[u8] = b"/home/someone/.cache/sojourn\0";

/// A folder with a record in memory.
struct Memory {
    folder: Option<Status>,
    file: Status,
    bytes: RefCell<Vec<u8>>,
    limit: u64,
    open: Cell<i32>,
}

impl Memory {
    fn new() -> Self {
        let folder = Some(Status { user: USER, mode: 0o040_700, size: 0 });
        let file = Status { user: USER, mode: 0o100_600, size: 0 };
        let (bytes, open) = (RefCell::default(), Cell::new(0));
        Self { folder, file, bytes, limit: u64::MAX, open }
    }

    /// Starts a program `count` times; returns how often it was started plainly.
    fn starts(&self, key: &Key, count: usize) -> usize {
        let plain = (0..count).filter(|_| is_small(self, PLACE, key)).count();
        assert_eq!(self.open.get(), 0, "a descriptor is left");
        plain
    }

    fn is_hot(&self, key: &Key) {
        is_hot(self, PLACE, key);
        assert_eq!(self.open.get(), 0, "a descriptor is left");
    }
}

impl Files for Memory {
    fn folder(&self, path: &[u8]) -> Option<Fd> {
        assert_eq!(path, PLACE);
        self.folder?;
        self.open.set(self.open.get() + 1);
        Some(FOLDER)
    }

    fn file(&self, folder: Fd, name: &CStr) -> Option<Fd> {
        assert_eq!((folder, name), (FOLDER, c"starts"));
        self.open.set(self.open.get() + 1);
        Some(RECORD)
    }

    fn status(&self, fd: Fd) -> Option<Status> {
        if fd == FOLDER {
            return self.folder;
        }
        let size = self.bytes.borrow().len() as u64;
        Some(Status { size: size.max(self.file.size), ..self.file })
    }

    fn read(&self, fd: Fd, to: &mut [u8], offset: u64) {
        assert_eq!(fd, RECORD);
        let bytes = self.bytes.borrow();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(to.len());
        to[..len].copy_from_slice(&rest[..len]);
    }

    fn write(&self, fd: Fd, from: &[u8], offset: u64) {
        assert_eq!(fd, RECORD);
        let mut bytes = self.bytes.borrow_mut();
        let end = offset as usize + from.len();
        let len = bytes.len().max(end);
        bytes.resize(len, 0);
        bytes[offset as usize..end].copy_from_slice(from);
    }

    fn close(&self, _: Fd) {
        self.open.set(self.open.get() - 1);
    }

    fn user(&self) -> u32 {
        USER
    }

    fn size_limit(&self) -> u64 {
        self.limit
    }
}

fn state() -> FileState {
    FileState { device: 1, inode: 2, size: 3, modified_ns: 4, changed_ns: 5 }
}

fn key() -> Key {
    Key::new(b"/bin/program", b"\x7fELF", &state())
}

#[test]
fn a_program_is_small_after_three_starts_and_tried_again_at_each_64th() {
    let memory = Memory::new();
    let plain: Vec<bool> = (0..200).map(|_| is_small(&memory, PLACE, &key())).collect();
    let loaded: Vec<usize> = (1..=200).filter(|start| !plain[start - 1]).collect();
    assert_eq!(loaded, [1, 2, 3, 64, 128, 192]);
}

#[test]
fn a_hot_session_begins_the_count_anew() {
    let memory = Memory::new();
    assert_eq!(memory.starts(&key(), 5), 2);
    memory.is_hot(&key());
    assert_eq!(memory.starts(&key(), 5), 2);
    // A program that was never counted.
    let other = Key::new(b"/bin/other", b"\x7fELF", &state());
    memory.is_hot(&other);
    assert_eq!(memory.starts(&other, 3), 0);
}

#[test]
fn another_program_and_another_name_of_it_have_counts_of_their_own() {
    let memory = Memory::new();
    assert_eq!(memory.starts(&key(), 4), 1);
    let states = [
        FileState { device: 9, ..state() },
        FileState { inode: 9, ..state() },
        FileState { size: 9, ..state() },
        FileState { modified_ns: 9, ..state() },
        FileState { changed_ns: 9, ..state() },
    ];
    for state in states {
        assert_eq!(
            memory.starts(&Key::new(b"/bin/program", b"\x7fELF", &state), 3),
            0,
            "{state:?}"
        );
    }
    assert_eq!(memory.starts(&Key::new(b"/bin/name", b"\x7fELF", &state()), 3), 0);
    assert_eq!(memory.starts(&Key::new(b"/bin/program", b"\x7fELF2", &state()), 3), 0);
    // The folder does not count: a file has one number.
    let memory = Memory::new();
    assert_eq!(memory.starts(&key(), 3), 0);
    assert_eq!(memory.starts(&Key::new(b"program", b"\x7fELF", &state()), 1), 1);
}

#[test]
fn no_cut_and_no_changed_byte_of_an_entry_counts() {
    let memory = Memory::new();
    memory.starts(&key(), 10);
    let whole = memory.bytes.borrow().clone();
    let at = key().offset() as usize;
    let begins_anew = |bytes: Vec<u8>| {
        *memory.bytes.borrow_mut() = bytes;
        assert_eq!(memory.starts(&key(), 1), 0);
        assert_eq!(memory.starts(&key(), 3), 1);
    };
    for byte in 0..ENTRY {
        let mut changed = whole.clone();
        changed[at + byte] ^= 1;
        begins_anew(changed);
        begins_anew(whole[..at + byte].to_vec());
    }
    begins_anew(vec![0xff; FILE as usize]);
    begins_anew(Vec::new());
    *memory.bytes.borrow_mut() = whole;
    assert_eq!(memory.starts(&key(), 1), 1);
    // The highest count stays the highest.
    memory.write(RECORD, &key().entry(u64::MAX), key().offset());
    assert_eq!(memory.starts(&key(), 2), 2);
}

#[test]
fn a_record_that_others_could_have_written_is_neither_read_nor_written() {
    let made = || {
        let memory = Memory::new();
        memory.starts(&key(), 10);
        memory
    };
    let folder = |change: fn(&mut Status)| {
        let mut memory = made();
        change(memory.folder.as_mut().unwrap());
        memory
    };
    let file = |change: fn(&mut Status)| {
        let mut memory = made();
        change(&mut memory.file);
        memory
    };
    let hostile = [
        folder(|status| status.user = 0),
        folder(|status| status.mode = 0o040_770),
        folder(|status| status.mode = 0o041_777),
        file(|status| status.user = 0),
        file(|status| status.mode = 0o100_644),
        file(|status| status.mode = 0o100_660),
        file(|status| status.mode = 0o104_600),
        file(|status| status.mode = 0o010_600),
        file(|status| status.size = FILE + 1),
        Memory { folder: None, ..made() },
    ];
    for (number, memory) in hostile.iter().enumerate() {
        let before = memory.bytes.borrow().clone();
        assert_eq!(memory.starts(&key(), 10), 0, "{number}");
        memory.is_hot(&key());
        assert_eq!(*memory.bytes.borrow(), before, "{number}");
    }
    // Nothing is written where the kernel would send a signal.
    let memory = Memory { limit: FILE - 1, ..Memory::new() };
    assert_eq!(memory.starts(&key(), 10), 0);
    assert!(memory.bytes.borrow().is_empty());
}

#[test]
fn all_entries_are_within_the_file_and_within_a_page() {
    for inode in 0..10_000 {
        let offset = Key::new(b"x", b"", &FileState { inode, ..state() }).offset();
        assert!(offset + ENTRY as u64 <= FILE);
        assert_eq!(offset / 4096, (offset + ENTRY as u64 - 1) / 4096);
    }
}

#[test]
fn the_folder_is_that_of_the_cache() {
    let of = |xdg: Option<&'static [u8]>, home: Option<&'static [u8]>| {
        let mut room = [0; PATH];
        let value_of = |name: &[u8]| match name {
            b"XDG_CACHE_HOME=" => xdg,
            b"HOME=" => home,
            _ => None,
        };
        folder(value_of, &mut room).map(<[u8]>::to_vec)
    };
    assert_eq!(of(Some(b"/x"), Some(b"/h")).as_deref(), Some(&b"/x/sojourn\0"[..]));
    assert_eq!(of(Some(b"x"), Some(b"/h")).as_deref(), Some(&b"/h/.cache/sojourn\0"[..]));
    assert_eq!(of(None, Some(b"/h")).as_deref(), Some(&b"/h/.cache/sojourn\0"[..]));
    assert_eq!(of(None, Some(b"h")), None);
    assert_eq!(of(None, None), None);
    assert_eq!(of(Some(&[b'/'; PATH]), None), None);
    assert!(of(Some(&[b'/'; PATH - 9]), None).is_some());
    assert_eq!(of(Some(&[b'/'; PATH - 8]), None), None);
}

#[test]
fn values_of_the_setting() {
    for (value, load) in [
        (None, Load::Auto),
        (Some(&b"auto"[..]), Load::Auto),
        (Some(b"on"), Load::On),
        (Some(b"true"), Load::On),
        (Some(b"off"), Load::Off),
        (Some(b"false"), Load::Off),
        (Some(b"nonsense"), Load::Off),
        (Some(b"AUTO"), Load::Auto),
        (Some(b"On"), Load::On),
    ] {
        assert_eq!(Load::read(value), load, "{value:?}");
    }
}
