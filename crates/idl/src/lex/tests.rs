//! Tokens of small texts, and survival of bad ones.

use super::*;
use crate::diag::Code;
use crate::source::FileNumber;

fn kinds(text: &str) -> (Vec<Kind>, Vec<Code>) {
    let mut sink = Sink::default();
    let tokens = lex(FileNumber::default(), text, &mut sink);
    let mut kinds: Vec<Kind> = tokens.list.into_iter().map(|t| t.kind).collect();
    assert_eq!(kinds.pop(), Some(Kind::End));
    (kinds, sink.finish().into_iter().map(|d| d.code).collect())
}

#[test]
fn numbers_in_every_radix() {
    let (k, d) = kinds("12 0x1F 017 0 1.5 10UL [0..9]");
    assert!(d.is_empty(), "{d:?}");
    let ints: Vec<i128> =
        k.iter().filter_map(|k| if let Kind::Int(n) = k { Some(*n) } else { None }).collect();
    assert_eq!(ints, [12, 31, 15, 0, 10, 0, 9]);
    assert!(k.contains(&Kind::Float(1.5)));
}

#[test]
fn a_uuid_is_one_token_inside_attributes_only() {
    let (k, d) = kinds("[uuid(12e45678-0000-1111-2222-333344445555)] uuid(a - b)");
    assert!(d.is_empty(), "{d:?}");
    assert!(k.contains(&Kind::Uuid("12e45678-0000-1111-2222-333344445555".into())));
    assert_eq!(k.iter().filter(|k| matches!(k, Kind::Uuid(_))).count(), 1);
}

#[test]
fn strings_know_escapes() {
    let (k, d) = kinds(r#""a\n\x41\101" 'x' L'\xe9' L"é""#);
    assert!(d.is_empty(), "{d:?}");
    assert_eq!(k[0], Kind::Str(b"a\nAA".to_vec()));
    assert_eq!(k[1], Kind::Char(120));
    assert_eq!(k[2], Kind::WideChar(0xE9));
    assert_eq!(k[3], Kind::WideStr("é".into()));
}

#[test]
fn documentation_belongs_to_what_follows_or_precedes() {
    let mut sink = Sink::default();
    let t = lex(
        FileNumber::default(),
        "/** One.\n * Two. */ a ///< after\n/// three\n/// four\nb // no\n",
        &mut sink,
    );
    assert_eq!(t.list[0].doc.as_deref(), Some("One.\nTwo."));
    assert_eq!(t.list[0].doc_after.as_deref(), Some("after"));
    assert_eq!(t.list[1].doc.as_deref(), Some("three\nfour"));
    assert_eq!(t.comments.len(), 5);
}

#[test]
fn what_is_no_token_is_reported_and_skipped() {
    for (text, code) in [
        ("a § b", codes::UNKNOWN_CHARACTER),
        ("a @ b", codes::UNKNOWN_CHARACTER),
        ("/* a", codes::UNTERMINATED_COMMENT),
        ("\"a\nb", codes::UNTERMINATED_STRING),
        ("'ab'", codes::BAD_CHARACTER),
        ("'\\q'", codes::BAD_ESCAPE),
        ("99999999999999999999", codes::BAD_NUMBER),
        ("12ab", codes::BAD_NUMBER),
        ("089", codes::BAD_NUMBER),
        ("#include \"x.idl\"", codes::PREPROCESSOR),
    ] {
        let (_, d) = kinds(text);
        assert!(d.contains(&code), "{text}: {d:?}");
    }
}
