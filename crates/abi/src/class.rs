//! Which programs are loaded, which are preloaded into, and which are neither: from the first bytes
//! of their files. Not here: who may gain privileges by being started.

use crate::elf::Image;

/// What kind of program a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No program of this machine: the kernel knows what to do.
    Plain,
    /// The GNU C library's: it is preloaded into.
    Dynamic,
    /// It makes its own system calls: static, musl's, Go's.
    Loaded,
}

/// How many of a file's first bytes tell.
pub const FIRST: usize = 4096;

/// The class of a program at `path`, whose file begins with `first`.
#[must_use]
pub fn class(path: &[u8], first: &[u8]) -> Class {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    match Image::read(first) {
        Err(_) => Class::Plain,
        // A dynamic loader, told to load a program: it preloads into that.
        Ok(_) if name.starts_with(b"ld-") || name.starts_with(b"ld.") => Class::Dynamic,
        Ok(image) => match image.interpreter {
            None => Class::Loaded,
            Some((offset, len)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                let path = first.get(start..start.saturating_add(len as usize));
                let is_gnu =
                    path.is_some_and(|path| path.windows(8).any(|part| part == b"ld-linux"));
                if is_gnu && !image.is_go { Class::Dynamic } else { Class::Loaded }
            }
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_dynamic_and_a_script_is_none() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(class(b"/bin/this", &own[..FIRST]), Class::Dynamic);
        assert_eq!(class(b"/bin/script", b"#!/bin/sh\n"), Class::Plain);
        // The same without an interpreter: its header is of another kind.
        let mut bytes = own[..FIRST].to_vec();
        let headers = Image::read(&bytes).unwrap().headers;
        for at in (64..).step_by(56).take(headers.into()) {
            if bytes[at] == 3 {
                bytes[at] = 0;
            }
        }
        assert_eq!(class(b"static", &bytes), Class::Loaded);
        assert_eq!(class(b"/lib64/ld-linux-x86-64.so.2", &bytes), Class::Dynamic);
    }
}
