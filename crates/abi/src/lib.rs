//! Programs that make their own system calls: the places of these calls in their text, the
//! rewriting to calls of Sojourn's own, and the layout of such a program in memory.
//!
//! This crate is pure: bytes and addresses come in, bytes and addresses go out. The loader
//! (`crates/loader`) maps and writes; the preload library serves the calls. `door` is the interface
//! between the two. Read `docs/understand/abi.md` first.
//!
//! Only x86-64 is supported. The instruction set is that of the Intel and AMD manuals. ELF is that
//! of elf(5) and of the System V ABI's AMD64 supplement.

pub mod cache;
pub mod class;
pub mod door;
pub mod elf;
pub mod layout;
pub mod loadable;
pub mod patch;
pub mod punned;
pub mod sites;
pub mod stack;
pub mod starts;
pub mod unwind;
pub mod vectors;
