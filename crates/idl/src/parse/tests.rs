//! Recovery and bounds of the parser; what constructs mean is tested with `sema`.

use super::{is_com, parse};
use crate::ast::{File, Item};
use crate::diag::{Code, Sink, codes};
use crate::lex::lex;
use crate::source::FileNumber;

fn read(text: &str) -> (File, Vec<(Code, u32)>) {
    let mut sink = Sink::default();
    let tokens = lex(FileNumber::default(), text, &mut sink);
    let file = parse(&tokens, text, is_com(&tokens), &mut sink);
    let line = |d: &crate::diag::Diagnostic| {
        let at = d.span.map_or(0, |s| s.start as usize);
        u32::try_from(text[..at].matches('\n').count() + 1).unwrap()
    };
    let found = sink.finish().iter().map(|d| (d.code, line(d))).collect();
    (file, found)
}

#[test]
fn one_run_finds_mistakes_in_every_construct() {
    let text = "import 5;
typedef struct { long a } s_t;
typedef struct { long ; short b; } t_t;
const = 4;
interface i {
    void f([in long a);
    void g([in] long a [out] long *b);
    void h([in] ] long a);
    long j(;
    void k(void);
}
const long FINE = 1;
typedef union switch (long) { case 1: long a; } u_t;
interface { }
const long FINE_TOO = 2;";
    let (file, found) = read(text);
    let lines: Vec<u32> = found.iter().map(|(_, line)| *line).collect();
    for line in [1, 2, 3, 4, 6, 7, 8, 9, 13, 14] {
        assert!(lines.contains(&line), "line {line}: {found:?}");
    }
    let consts = file.items.iter().filter(|i| matches!(i, Item::Const(_))).count();
    assert_eq!(consts, 2, "what is right is still read: {found:?}");
    let Some(Item::Interface(interface)) =
        file.items.iter().find(|i| matches!(i, Item::Interface(_)))
    else {
        panic!("the interface is still there");
    };
    let read = |wanted: &str| {
        interface.items.iter().any(|i| matches!(i, Item::Operation(o) if o.name.text == wanted))
    };
    assert!(read("k") && read("g"), "{found:?}");
}

#[test]
fn nesting_is_bounded_everywhere() {
    let many = 20_000;
    for (open, close) in
        [("(", ")"), ("-", ""), ("1 ? 1 : ", ""), ("*", ""), ("[", "]"), ("{", "}")]
    {
        for around in [
            ("const long A = ", "1", ";"),
            ("typedef long ", "a", ";"),
            ("typedef struct ", "long a;", " s;"),
            ("interface i ", "", ""),
            ("[size_is(", "1", ")] interface i { }"),
        ] {
            let text = format!(
                "{}{}{}{}{}",
                around.0,
                open.repeat(many),
                around.1,
                close.repeat(many),
                around.2
            );
            let (_, found) = read(&text);
            assert!(!found.is_empty(), "{open} {around:?}");
        }
    }
    let fields = "struct a { ".repeat(many);
    assert!(read(&format!("typedef {fields}")).1.iter().any(|d| d.0 == codes::TOO_DEEP));
    let sum = format!("const long A = 1{};", " + 1".repeat(many));
    assert!(!read(&sum).1.is_empty());
}

#[test]
fn declarators_read_from_the_name_outwards() {
    use crate::ast::LevelKind;
    let (file, found) = read("typedef long *(*a[2])[3];");
    assert!(found.is_empty(), "{found:?}");
    let Item::Typedef(typedef) = &file.items[0] else { panic!("a typedef") };
    let kinds: Vec<&str> = typedef.declarators[0]
        .levels
        .iter()
        .map(|l| match l.kind {
            LevelKind::Pointer => "*",
            _ => "[]",
        })
        .collect();
    assert_eq!(kinds, ["[]", "*", "[]", "*"]);
}
