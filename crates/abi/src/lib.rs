//! Programs that make their own system calls: where in their text they do, how that is rewritten to
//! a call of our own, and how such a program is laid out in memory.
//!
//! Pure: bytes and addresses come in, bytes and addresses go out. Who maps and writes is the loader
//! (`crates/loader`); what becomes of the calls is the preload library's. `door` is what the two
//! agree on. Read `docs/understand/abi.md` first.
//!
//! x86-64 only. The instruction set is that of the Intel and AMD manuals, ELF that of elf(5) and
//! the System V ABI's AMD64 supplement.

pub mod class;
pub mod door;
pub mod elf;
pub mod layout;
pub mod patch;
pub mod sites;
pub mod stack;
