//! What becomes of tokens; the rest is tested with whole files (`tests/com.rs`).

use super::{Includes, preprocess};
use crate::diag::Sink;
use crate::lex::{IncludedFile, Kind};
use crate::source::{FileNumber, Span};

struct Nothing;

impl Includes for Nothing {
    fn open(&mut self, _: &str, _: Span, _: &mut Sink) -> Result<IncludedFile, String> {
        Err("no files here".to_owned())
    }
}

fn words(text: &str) -> Vec<String> {
    let mut sink = Sink::default();
    let tokens = preprocess(FileNumber::default(), text, &mut Nothing, &mut sink);
    assert_eq!(tokens.list.last().map(|t| &t.kind), Some(&Kind::End));
    let found = sink.finish();
    assert!(found.is_empty(), "{found:?}");
    tokens.list.iter().filter_map(|t| t.ident().map(str::to_owned)).collect()
}

#[test]
fn a_macro_is_not_replaced_inside_itself() {
    assert_eq!(words("#define a b a\n#define b a\na"), ["a", "a"]);
}

#[test]
fn a_macro_with_parameters_needs_its_brackets() {
    assert_eq!(words("#define f(x) got x\nf f(y) f (z)"), ["f", "got", "y", "got", "z"]);
    assert_eq!(words("#define f() got\nf()"), ["got"]);
    assert_eq!(words("#define f (x)\nf"), ["x"], "a space makes it a value");
}

#[test]
fn arguments_are_balanced() {
    assert_eq!(words("#define f(x, y) y\nf((a, b), c) f([d, e], g)"), ["c", "g"]);
}

#[test]
fn lines_go_on_and_comments_are_white_space() {
    assert_eq!(words("#define f a \\\n b /* c\n */ d // e\n/* x */ # undef g\nf"), ["a", "b", "d"]);
    assert_eq!(words("\"#define a b\" a '#' b"), ["a", "b"]);
}

#[test]
fn what_comes_out_of_a_macro_stands_where_it_is_used() {
    let mut sink = Sink::default();
    let tokens =
        preprocess(FileNumber::default(), "#define f(x) y x\nf(z)", &mut Nothing, &mut sink);
    let spans: Vec<(u32, u32)> = tokens.list.iter().map(|t| (t.span.start, t.span.end)).collect();
    assert_eq!(spans, [(17, 18), (19, 20), (21, 21)]);
}
