//! Entry point for fuzzing: arbitrary bytes as what `/proc` and `sock_diag` tell of processes and
//! sockets. Programs choose much of it: names, environments, addresses of Unix sockets.
//!
//! What must hold: no panic, and an end. Debug and fuzzing builds only; not a part of the interface
//! of this crate. Used by `tests/targets` and `fuzz/fuzz_targets/cli_tables.rs`.

use crate::sessions::fuzz_tables;

/// The first byte chooses what the rest is: a table, a status, an answer.
pub fn tables(bytes: &[u8]) {
    if let Some((&choice, bytes)) = bytes.split_first() {
        fuzz_tables(choice, bytes);
    }
}
