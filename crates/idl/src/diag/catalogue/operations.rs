//! `SJ05`: operations and interfaces.

use super::explanation::{Explanation, Sample, idl};
use crate::diag::codes;

fn operations(count: usize) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut text = String::from("interface i {\n");
    for n in 0..count {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "void f{n}(void);");
    }
    text.push_str("}\n");
    text.into_bytes()
}

pub(super) const ENTRIES: &[Explanation] = &[
    idl(
        codes::NO_DIRECTION,
        "a parameter without direction",
        "Each parameter says whether it travels with the request (`in`), with the reply (`out`) or with both.",
        "interface i { void f(long a); }",
        "interface i { void f([in] long a); }",
    ),
    idl(
        codes::OUT_POINTER,
        "an out parameter that is no pointer",
        "What comes back needs a place to come to: out parameters are pointers or arrays, as they are in C.",
        "interface i { void f([out] long a); }",
        "interface i { void f([out] long *a); }",
    ),
    idl(
        codes::OUT_NULLABLE,
        "an out parameter that may be null",
        "The pointer of an out parameter points to the place where the value is put, so it is a reference and never null. To bring back a pointer that may be null, add a level: the inner pointer has the class of pointer_default.",
        "interface i { void f([out, unique] long *a); }",
        "interface i { void f([out] long **a); }",
    ),
    idl(
        codes::OUT_STRING,
        "an out string of unknown length",
        "A string that comes back either is put into the caller's buffer, whose size the interface must know, or is provided with the reply: then the parameter is a pointer to the string.",
        "interface i { void f([out, string] char *s); }",
        "interface i { void f([out, string] char **s); }",
    ),
    idl(
        codes::ONEWAY,
        "a oneway operation that brings something back",
        "Nobody waits for a oneway operation: it has no result, no out parameters and no reply.",
        "interface i { [oneway] long f([in] long a); }",
        "interface i { [oneway] void f([in] long a); }",
    ),
    idl(
        codes::RETVAL,
        "a parameter that cannot be the retval",
        "`retval` marks the parameter that languages with exceptions show as the result: the last one, `out`, of an operation that otherwise answers nothing or an HRESULT.",
        "interface i { HRESULT f([out, retval] long *a, [in] long b); }",
        "interface i { HRESULT f([in] long b, [out, retval] long *a); }",
    ),
    idl(
        codes::RESULT_TYPE,
        "an array as the result",
        "As in C, an array cannot be a result. Make it an out parameter, or put it into a structure.",
        "typedef long a_t[4];\ninterface i { a_t f(void); }",
        "typedef long a_t[4];\ninterface i { void f([out] a_t a); }",
    ),
    idl(
        codes::DUPLICATE_OPERATION,
        "an operation declared twice",
        "Operations are told apart by their names: there is no overloading, and operations of a base interface are not declared again.",
        "interface i { void f([in] long a); void f([in] double a); }",
        "interface i { void f([in] long a); void g([in] double a); }",
    ),
    Explanation {
        code: codes::TOO_MANY_OPERATIONS,
        title: "too many operations",
        text: "Operations are numbered with 16 bits, those of the base interfaces first, and the last number is taken by the binding call. Divide the interface.",
        bad: Sample::Made(|| operations(65536), "an interface of 65536 operations"),
        good: Sample::Made(|| operations(100), "one of 100"),
    },
    idl(
        codes::TOO_MANY_DESCRIPTORS,
        "too many descriptors in one message",
        "A message carries at most 16 descriptors (references to interfaces are descriptors too). Divide the operation.",
        "interface i { void f([in] descriptor files[17]); }",
        "interface i { void f([in] descriptor files[16]); }",
    ),
    idl(
        codes::UNKNOWN_BASE,
        "an unknown base interface",
        "The base is defined before the interface that extends it, in this file or an imported one. IUnknown is known and has no operations here: references count themselves.",
        "interface derived : bass { void g(void); }",
        "interface base { void f(void); }\ninterface derived : base { void g(void); }",
    ),
    idl(
        codes::MANY_LIBRARIES,
        "more than one library",
        "A file has one `library` at most, whose name and documentation describe the file.",
        "library a { interface i { void f(void); } }\nlibrary b { interface j { void f(void); } }",
        "library a { interface i { void f(void); } interface j { void f(void); } }",
    ),
    idl(
        codes::DECLARED_ONLY,
        "an operation that no message can carry",
        "Files of COM declare operations that only work inside one process. Such an operation keeps its number and gets no stubs; the message says what is to blame, and `sojourn-idl check FILE` lists all of them. Say how the parameter travels, or add `local` if the operation is not meant to be called from elsewhere.",
        "[object] interface i { void f([in] long n, [in] void *p); }",
        "[object] interface i { void f([in] long n, [in, size_is(n)] byte *p); }",
    ),
];
