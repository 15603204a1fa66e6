//! The class of a program, by the first bytes of its file: programs that the loader loads, programs
//! that get the preload library, and all others.
//!
//! Not here: programs that gain privileges when they are started, which the callers exclude.

use crate::elf::{Image, PROGRAM_HEADER};

/// The class of a program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Not a program of this machine (a script, for instance): the kernel decides.
    Plain,
    /// A program that is linked with the GNU C library dynamically: the preload library serves it.
    Dynamic,
    /// A program that makes its own system calls: a static one, one of musl's, one of Go's.
    Loaded {
        /// True if the program names no interpreter. One that does gets what `LD_PRELOAD` names
        /// when it is started plainly, and that library would see some of its calls.
        is_static: bool,
    },
}

/// The number of bytes at the beginning of a file that [`class`] needs.
pub const FIRST: usize = 4096;

/// The name of Sojourn's own loader.
const LOADER: &[u8] = b"sojourn-abi";

/// Returns the class of the program at `path`, whose file begins with `first`.
#[must_use]
pub fn class(path: &[u8], first: &[u8]) -> Class {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match Image::read(first) {
        Err(_) => Class::Plain,
        // A dynamic loader that is started as a program (ld.so(8)) loads another program, and
        // preloads into it. Sojourn's own loader names no interpreter and starts one itself.
        Ok(_) if name.starts_with(b"ld-") || name.starts_with(b"ld.") || name == LOADER => {
            Class::Dynamic
        }
        Ok(image) => {
            let path = image.interpreter_in(first);
            let is_gnu = path.is_some_and(|path| path.windows(8).any(|part| part == b"ld-linux"));
            let is_static = image.interpreter.is_none();
            if is_gnu && !image.is_go { Class::Dynamic } else { Class::Loaded { is_static } }
        }
    }
}

/// What a short look at a program's file tells of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// [`class`] does not tell it to be loaded: most programs.
    Ordinary,
    /// It names no interpreter. [`class`] tells whether it can be loaded.
    Static,
    /// Only [`class`] tells.
    Unclear,
}

/// The number of bytes at the beginning of a file by which [`glance`] knows most programs.
pub const FIRST_GLANCE: usize = 1024;

/// Looks at the beginning of a program's file. Allocates nothing, and consists of nothing but its
/// own instructions.
#[must_use]
#[inline(always)]
pub fn glance(first: &[u8]) -> Glance {
    const INTERPRETER: usize = 3;
    const NOTE: usize = 4;
    let byte = |at: usize| first.get(at).copied().unwrap_or(0);
    let word = |at: usize| (0..8).fold(0, |all, n| all | usize::from(byte(at + n)) << (8 * n));
    let contains = |header: usize, what: &[u8]| {
        let (start, len) = (word(header + 8), word(header + 32));
        let end = start.saturating_add(len).min(first.len()).saturating_sub(what.len());
        (start..end).any(|at| (0..what.len()).all(|n| byte(at + n) == what[n]))
    };
    if [0, 1, 2, 3].map(byte) != *b"\x7fELF" {
        return Glance::Ordinary;
    }
    let (mut has_interpreter, mut is_gnu) = (false, false);
    // A note that is not here may be Go's.
    let mut may_be_go = false;
    let table = word(32);
    for number in 0..word(56) & 0xffff {
        let header = table.saturating_add(number * PROGRAM_HEADER);
        if header >= first.len() {
            return Glance::Unclear;
        }
        let kind = word(header) & 0xffff_ffff;
        // As in the kernel the first interpreter counts.
        if kind == INTERPRETER && !has_interpreter {
            has_interpreter = true;
            is_gnu = contains(header, b"ld-linux");
        }
        if kind == NOTE {
            let end = word(header + 8).saturating_add(word(header + 32));
            may_be_go |= end > first.len() || contains(header, b"Go\0\0");
        }
    }
    match has_interpreter {
        true if is_gnu && !may_be_go => Glance::Ordinary,
        true => Glance::Unclear,
        false => Glance::Static,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn this_program_is_dynamic_and_a_script_is_none() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(class(b"/bin/this", &own[..FIRST]), Class::Dynamic);
        assert_eq!(class(b"/bin/script", b"#!/bin/sh\n"), Class::Plain);
        // The same program without an interpreter: the type of that header (`PT_INTERP`) is
        // cleared.
        let mut bytes = own[..FIRST].to_vec();
        let headers = Image::read(&bytes).unwrap().headers;
        for at in (64..).step_by(56).take(headers.into()) {
            if bytes[at] == 3 {
                bytes[at] = 0;
            }
        }
        assert_eq!(class(b"static", &bytes), Class::Loaded { is_static: true });
        assert_eq!(class(b"/lib64/ld-linux-x86-64.so.2", &bytes), Class::Dynamic);
        assert_eq!(class(b"/usr/bin/sojourn-abi", &bytes), Class::Dynamic);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn no_program_that_is_loaded_is_taken_for_an_ordinary_one() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let whole = &own[..FIRST];
        for ordinary in [whole, &whole[..FIRST_GLANCE], b"#!/bin/sh\n", b""] {
            assert_eq!(glance(ordinary), Glance::Ordinary);
        }
        assert_ne!(glance(b"\x7fELF"), Glance::Ordinary);
        for len in 0..FIRST {
            let _ = glance(&whole[..len]);
        }
        let mut bytes = whole.to_vec();
        let mut loaded = 0;
        for at in 0..1024 {
            for byte in [0, 1, 3, 4, b'G', 0xff] {
                let kept = std::mem::replace(&mut bytes[at], byte);
                if let Class::Loaded { is_static } = class(b"x", &bytes) {
                    let glance = glance(&bytes);
                    assert_ne!(glance, Glance::Ordinary, "{at} {byte}");
                    assert!(is_static || glance != Glance::Static, "{at} {byte}");
                    loaded += 1;
                }
                bytes[at] = kept;
            }
        }
        assert!(loaded > 0);
        // A note of Go's in the place of the first one.
        let note = bytes.windows(4).position(|four| four == b"GNU\0").unwrap();
        bytes[note..note + 4].copy_from_slice(b"Go\0\0");
        assert_eq!(class(b"x", &bytes), Class::Loaded { is_static: false });
        assert_eq!(glance(&bytes[..note]), Glance::Unclear, "a note that is not there");
        assert_eq!(glance(&bytes), Glance::Unclear);
    }
}
