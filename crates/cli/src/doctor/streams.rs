//! Whether the C library's streams (`FILE`) are seen by the preload library, which puts functions
//! of its own into the C library's tables.
//!
//! This looks at a process from outside, `cat` between two pipes: some words of its C library's
//! data are addresses in the preload library, or none are. Not here: how the tables are found
//! (`sojourn-preload`, `libio`).

use super::item::Item;
use sojourn_session::notice::mapping;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

const NAME: &str = "streams";
const C_LIBRARY: &str = "libc.so.6";

/// `command`: a `cat` with the library preloaded.
pub(super) fn streams(command: Command) -> Item {
    match are_seen(command) {
        Ok(true) => Item::ok(NAME, "what programs read and write by stdio can move"),
        Ok(false) => Item::limited(
            NAME,
            "this C library's tables of streams are not as expected: what programs use by stdio stays in the kernel",
            "nothing to do; tell the project which C library this is (ldd --version)",
        ),
        Err(error) => Item::limited(
            NAME,
            format!("it cannot be seen whether streams can move: {error}"),
            "a program may not be looked into here (ptrace(2), yama); nothing to do",
        ),
    }
}

fn are_seen(mut command: Command) -> io::Result<bool> {
    let mut cat = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let seen = look(&mut cat);
    // It ends with its input.
    drop(cat.stdin.take());
    cat.wait()?;
    seen
}

fn look(cat: &mut Child) -> io::Result<bool> {
    // When it answers it has begun.
    if let (Some(to), Some(from)) = (&mut cat.stdin, &mut cat.stdout) {
        to.write_all(b"\n")?;
        from.read_exact(&mut [0])?;
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", cat.id()))?;
    let of = |name: &str| {
        let is_its = |line: &&str| line.split('/').next_back() == Some(name);
        maps.lines().filter(is_its).filter_map(mapping).collect::<Vec<_>>()
    };
    let library = of(crate::beside::LIBRARY);
    let memory = File::open(format!("/proc/{}/mem", cat.id()))?;
    // Data that is closed after start is all that can only be read, beside text and headers.
    for (range, _) in of(C_LIBRARY).into_iter().filter(|(_, rights)| *rights == "r--p") {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        memory.read_exact_at(&mut bytes, range.start)?;
        let mut words = bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes);
        if words.any(|word| library.iter().any(|(range, _)| range.contains(&word))) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_seen_only_with_the_library() {
        assert!(!are_seen(Command::new("cat")).unwrap());
    }
}
