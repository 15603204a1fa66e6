//! Checks that the preload library sees calls on the C library's streams (`FILE`): it puts its own
//! functions into the C library's tables.
//!
//! The check reads the memory of a process, `cat` between two pipes: its C library's data has
//! addresses of the preload library if the functions are in the tables. Not here: the search for
//! the tables (`sojourn-preload`, `libio`).

use super::item::Item;
use sojourn_session::notice::MappingLine;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

const NAME: &str = "streams";
const C_LIBRARY: &str = "libc.so.6";

/// Checks the process of `command`, a `cat` with the library preloaded.
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
    let seen = has_patched_tables(&mut cat);
    // `cat` ends at the end of its input.
    drop(cat.stdin.take());
    cat.wait()?;
    seen
}

fn has_patched_tables(cat: &mut Child) -> io::Result<bool> {
    // An answer shows that `cat` has started, and with it the library.
    if let (Some(to), Some(from)) = (&mut cat.stdin, &mut cat.stdout) {
        to.write_all(b"\n")?;
        from.read_exact(&mut [0])?;
    }
    let maps = std::fs::read_to_string(format!("/proc/{}/maps", cat.id()))?;
    let of = |name: &str| {
        let is_its = |line: &&str| line.split('/').next_back() == Some(name);
        maps.lines().filter(is_its).filter_map(MappingLine::parse).collect::<Vec<_>>()
    };
    let library = of(crate::beside::LIBRARY);
    let memory = File::open(format!("/proc/{}/mem", cat.id()))?;
    // Tables that the dynamic loader protects after start (RELRO) are in read-only mappings; the
    // other read-only mappings, text and headers, have no such addresses.
    for MappingLine { range, .. } in of(C_LIBRARY).into_iter().filter(|one| one.rights == "r--p") {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        memory.read_exact_at(&mut bytes, range.start)?;
        let mut words = bytes.as_chunks().0.iter().copied().map(u64::from_ne_bytes);
        if words.any(|word| library.iter().any(|one| one.range.contains(&word))) {
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
