//! Back ends: from the resolved model to generated text.
//!
//! What both have in common: which files are wanted and what a file is. Each back end is a pure
//! function from [`crate::ir::Module`] and [`Options`] to a list of [`Output`]s; writing them is
//! the caller's business.

pub mod c;
pub mod rust;

/// Which sides to generate, for every back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Client stubs.
    pub client: bool,
    /// Server skeleton and its reply-and-wait loop.
    pub server: bool,
    /// Types and declarations (the C header; the types of the Rust module). Stubs need them, so
    /// they are left out only where another run has made them.
    pub types: bool,
    /// Tests: random calls checked against `docs/reference/idl-random.md`, and mutated messages.
    pub tests: bool,
    /// Version of the tool for the head of every file, e.g. `0.1.0`.
    pub tool_version: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client: true,
            server: true,
            types: true,
            tests: false,
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Path relative to the output directory: `calc.rs`, `calc_client.c`.
    pub path: String,
    /// Its complete text.
    pub text: String,
}
