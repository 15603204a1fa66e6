//! The formatter on small and on real files.

use super::format_source;
use crate::diag::Sink;
use crate::lex::{Kind, lex};
use crate::source::FileNumber;

fn formatted(text: &str) -> String {
    match format_source("x.idl", text) {
        Ok(text) => text,
        Err(failure) => panic!("{failure}"),
    }
}

fn kinds(text: &str) -> (Vec<Kind>, Vec<String>) {
    let tokens = lex(FileNumber::default(), text, &mut Sink::default());
    let comments = tokens.comments.iter().map(|c| {
        let raw = &text[c.span.start as usize..c.span.end as usize];
        raw.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    (tokens.list.iter().map(|t| t.kind.clone()).collect(), comments.collect())
}

#[test]
fn a_mess_becomes_orderly() {
    let mess = "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a10),version( 1.0 )]interface i:b{\n\n\
        const long N=-(1<<2)*3;// three\n\
        typedef  struct{long*a;[size_is( *n,m-1 )]short**b[ 3 ][4];}s_t,*s_p;\n\n\n\
        typedef enum{A,B=2}e_t;\n\
        typedef union switch(long k)u{case 1:case 2:long x;default:;}u_t;\n\
        typedef[switch_type(long)]union{[case(1)]s_t*s;[default];}v_t;cpp_quote(\"a\")\n\n\
        cpp_quote(\"b\");\
        long f([in,range(-1,1)]long a,[out]long*b);void g(void);};";
    let expected = "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a10), version(1.0)]\n\
interface i : b {
    const long N = -(1 << 2) * 3; // three
    typedef struct {
        long *a;
        [size_is(*n, m - 1)] short **b[3][4];
    } s_t, *s_p;

    typedef enum {
        A,
        B = 2
    } e_t;
    typedef union switch (long k) u {
        case 1: case 2: long x;
        default: ;
    } u_t;
    typedef [switch_type(long)] union {
        [case(1)] s_t *s;
        [default];
    } v_t;
    cpp_quote(\"a\")

    cpp_quote(\"b\");
    long f([in, range(-1, 1)] long a, [out] long *b);
    void g(void);
};
";
    assert_eq!(formatted(mess), expected);
}

#[test]
fn long_operations_have_a_parameter_a_row() {
    let long = "interface i { long operation_with_a_long_name([in] long first_parameter, \
        [in, size_is(first_parameter)] long *second_parameter, /* why */ [out] long *third); };";
    let expected = "interface i {
    long operation_with_a_long_name(
        [in] long first_parameter,
        [in, size_is(first_parameter)] long *second_parameter, /* why */
        [out] long *third);
};
";
    assert_eq!(formatted(long), expected);
}

#[test]
fn examples_keep_their_tokens_and_are_stable() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../idl/examples");
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.display().to_string();
        let once = format_source(&name, &text).unwrap();
        assert_eq!(kinds(&text), kinds(&once), "{name}");
        assert_eq!(once, format_source(&name, &once).unwrap(), "{name}");
    }
}

#[test]
fn what_cannot_be_read_is_not_touched() {
    assert!(format_source("x.idl", "interface {").is_err());
    assert!(format_source("x.acf", "[in] long").is_err());
}
