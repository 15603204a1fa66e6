//! Entry point for fuzzing: arbitrary bytes in place of the contents of `/proc` and the answers of
//! `sock_diag`. Programs choose much of these: names, environments, addresses of Unix sockets.
//!
//! Invariants: no panic, and termination. Debug and fuzzing builds only; not a part of the
//! interface of this crate. Used by `tests/targets` and `fuzz/fuzz_targets/cli_tables.rs`.

use crate::sessions::fuzz_tables;

/// The first byte selects the parser of the rest: a table, a status or an answer.
pub fn tables(bytes: &[u8]) {
    if let Some((&choice, bytes)) = bytes.split_first() {
        fuzz_tables(choice, bytes);
    }
}
