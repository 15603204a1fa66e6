//! The application configuration file: what one side wants of its stubs, without changing what
//! travels.
//!
//! It has the shape of DCE's: `interface NAME { typedef [attrs] T; [attrs] op([attrs] param); }`.
//! [`keys`] lists what can be said, `parse` reads the file, `apply` writes it into the model's
//! [`crate::ir::LocalAttrs`].

mod apply;
mod keys;
mod memory;
mod parse;
mod settings;
mod tree;

pub(crate) use apply::apply;
pub(crate) use keys::is_key;

/// Reports what is wrong with the grammar of an ACF.
pub(crate) fn check_grammar(tokens: &crate::lex::Tokens, text: &str, sink: &mut crate::diag::Sink) {
    parse::parse(tokens, text, sink);
}
