//! The Sojourn interface compiler: COM and DCE IDL in, Rust and C stubs out.
//!
//! Pure: text goes in, a resolved model ([`ir::Module`]) and generated text come out. Files are
//! read through a small trait, written only by the command. Read `docs/idl-language.md` for the
//! language, `docs/idl-wire.md` for what travels, then [`ir`].

pub mod backend;
pub mod ir;
pub mod layout;
