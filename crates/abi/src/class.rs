//! The class of a program, by the first bytes of its file: programs that the loader loads, programs
//! that get the preload library, and all others.
//!
//! Not here: programs that gain privileges when they are started, which the callers exclude.

use crate::elf::Image;

/// The class of a program's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Not a program of this machine (a script, for instance): the kernel decides.
    Plain,
    /// A program that is linked with the GNU C library dynamically: the preload library serves it.
    Dynamic,
    /// A program that makes its own system calls: a static one, one of musl's, one of Go's.
    Loaded,
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
            if is_gnu && !image.is_go { Class::Dynamic } else { Class::Loaded }
        }
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
        assert_eq!(class(b"static", &bytes), Class::Loaded);
        assert_eq!(class(b"/lib64/ld-linux-x86-64.so.2", &bytes), Class::Dynamic);
        assert_eq!(class(b"/usr/bin/sojourn-abi", &bytes), Class::Dynamic);
    }
}
