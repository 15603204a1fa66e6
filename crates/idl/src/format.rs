//! The formatter: the same tokens and comments, laid out the same way every time.
//!
//! # Theory of operation
//! It works on tokens, not on the syntax tree, so that it loses nothing. Tokens and comments are
//! cut into *lines* (`pieces`): after `;`, around `{` and `}`, after members of enumerations. Each
//! line is set on one row if it fits into 100 columns; else its parameter list is set one
//! parameter a row, and long attribute lists are filled. Single empty lines are kept.

mod layout;
mod pieces;

use crate::compile::Failure;
use crate::diag::Sink;
use crate::source::SourceMap;

/// Formats an IDL file, or an ACF if `name` ends in `.acf`.
///
/// # Errors
/// [`Failure`] if the text has grammatical mistakes: what cannot be read cannot be laid out.
pub fn format_source(name: &str, text: &str) -> Result<String, Box<Failure>> {
    let mut sources = SourceMap::default();
    let mut sink = Sink::default();
    let loaded = crate::source::Loaded { path: name.to_owned(), bytes: text.as_bytes().to_vec() };
    let file = crate::sema::add_source(&mut sources, &loaded, &mut sink, None);
    let text = sources.file(file).map_or(String::new(), |s| s.text.clone());
    let tokens = crate::lex::lex(file, &text, &mut sink);
    if name.ends_with(".acf") {
        crate::acf::check_grammar(&tokens, &text, &mut sink);
    } else {
        let is_com = crate::parse::is_com(&tokens);
        crate::parse::parse(&tokens, &text, is_com, &mut sink);
    }
    if sink.has_errors() {
        return Err(Box::new(Failure { diagnostics: sink.finish(), sources }));
    }
    Ok(layout::layout(&pieces::lines(&tokens, &text)))
}

#[cfg(test)]
mod tests;
