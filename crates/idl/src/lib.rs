//! The Sojourn interface compiler: COM and DCE IDL in, Rust and C stubs out.
//!
//! Pure: text goes in, a resolved model ([`ir::Module`]) and generated text come out. Files are
//! read through a small trait ([`source::Loader`]), written only by the command and by the helper
//! for build scripts. Read `docs/reference/idl-language.md` for the language,
//! `docs/reference/idl-wire.md` for what travels, then [`ir`].

mod acf;
mod ast;
pub mod backend;
mod build_script;
pub mod compat;
mod compile;
mod describe;
pub mod diag;
pub mod docgen;
mod format;
mod fuzz;
pub mod ir;
pub mod layout;
mod lex;
mod output;
mod parse;
mod pre;
mod sema;
pub mod source;
pub mod stubs;

pub use build_script::{Build, BuildError};
pub use compile::{Compilation, Failure, Options, compile};
pub use format::format_source;
pub use fuzz::fuzz_parse;
pub use output::{WriteError, make_rule, write_all};
pub use sema::Places;
