//! `SJ01`: grammar.

use super::explanation::{Explanation, Sample, idl};
use crate::diag::codes;

fn deep(levels: usize) -> Vec<u8> {
    format!("const long A = {}1{};", "(".repeat(levels), ")".repeat(levels)).into_bytes()
}

pub(super) const ENTRIES: &[Explanation] = &[
    idl(
        codes::UNEXPECTED_TOKEN,
        "something else is expected here",
        "The text does not follow the grammar at this place; the message says what could stand here. Reading goes on behind the broken construct, so that one run finds many mistakes; the first one is the one to look at first.",
        "interface i { void f([in] long); }",
        "interface i { void f([in] long a); }",
    ),
    idl(
        codes::MISSING_PUNCTUATION,
        "a semicolon or the like is missing",
        "A construct is complete but for the mark that ends it. It is read as if the mark were there.",
        "const long A = 1\nconst long B = 2;",
        "const long A = 1;\nconst long B = 2;",
    ),
    idl(
        codes::RESERVED_NAME,
        "a reserved word as a name",
        "Words of the language, and those of C that no C compiler accepts as a name, cannot name anything: the generated header could not be compiled. (Words of Rust may be used; they are escaped.)",
        "interface i { void f([in] long register); }",
        "interface i { void f([in] long registration); }",
    ),
    Explanation {
        code: codes::TOO_DEEP,
        title: "nested too deeply",
        text: "Constructs may stand inside one another to a depth of 64, a declaration may have 16 pointers and dimensions, and types may stand in place inside one another to a depth of 256. No file that people write comes near; the bound keeps hostile input from exhausting the compiler. Give inner parts names with typedef or const, and point to inner types instead of holding them.",
        bad: Sample::Made(|| deep(100), "a hundred parentheses inside one another"),
        good: Sample::Made(|| deep(10), "ten"),
    },
    idl(
        codes::QUALIFIER,
        "volatile has no meaning",
        "Values are copied when they travel; that the original may change meanwhile is no property of the interface. `const` is accepted and says nothing about what travels either.",
        "interface i { void f([in] volatile long *a); }",
        "interface i { void f([in] const long *a); }",
    ),
    idl(
        codes::FOREIGN_TYPE,
        "a type of another system",
        "DCE's pipes and Automation's SAFEARRAY, BSTR and VARIANT do not exist here. Arrays with size_is, wide strings and unions say the same in the language's own words; a stream of unknown length goes through a descriptor.",
        "interface i { void f([in] BSTR a); }",
        "interface i { void f([in, string] wchar_t *a); }",
    ),
    idl(
        codes::TYPE_WORDS,
        "words that make no type",
        "Integers are small (8 bits), short (16), long and int (32) and hyper (64); each may be unsigned. These widths are DCE's and do not depend on the machine: a C `long` of 64 bits is a hyper.",
        "typedef short long a_t;",
        "typedef hyper a_t;",
    ),
    idl(
        codes::FUNCTION_POINTER,
        "functions do not travel",
        "A pointer to a function means nothing in another address space. To be called back, declare an interface with the operation and pass a reference to it.",
        "typedef struct { long (*compare)(long a, long b); } s_t;",
        "interface comparer { long compare([in] long a, [in] long b); }\ntypedef struct { comparer *compare; } s_t;",
    ),
    idl(
        codes::BIT_FIELD,
        "bit fields do not travel",
        "How compilers lay bit fields out is their own affair, so they cannot be part of a contract. Use an unsigned integer, and constants for the bits.",
        "typedef struct { unsigned long ready : 1; } s_t;",
        "const unsigned long READY = 1;\ntypedef struct { unsigned long flags; } s_t;",
    ),
    idl(
        codes::VARIADIC,
        "a fixed number of parameters",
        "The parameters of an operation are known beforehand. For a variable number of values pass an array with size_is, for values of several types an array of unions.",
        "interface i { void f([in] long n, ...); }",
        "interface i { void f([in] long n, [in, size_is(n)] long *values); }",
    ),
    idl(
        codes::CASE_STYLE,
        "case labels of the other kind of union",
        "A union whose discriminant is outside it marks its arms with attributes, `[case(1)]` and `[default]`; labels as in C belong to the kind that begins with `switch (type name)` and carries its discriminant along.",
        "typedef [switch_type(long)] union { case 1: long a; } u_t;",
        "typedef [switch_type(long)] union { [case(1)] long a; } u_t;",
    ),
    idl(
        codes::MANY_BASES,
        "more than one base",
        "An interface extends one other, whose operations come first in its table. Several interfaces may be served on one endpoint, and each may be asked for there.",
        "interface a { void f(void); }\ninterface b { void g(void); }\ninterface c : a, b { void h(void); }",
        "interface a { void f(void); }\ninterface b : a { void g(void); }\ninterface c : b { void h(void); }",
    ),
    idl(
        codes::AUTOMATION,
        "a dispatch interface has no stubs",
        "Members of a dispatch interface have no place in a table: programs look their names up and call them by number, with all arguments in one structure. They are kept in the model and get no stubs. Declare an interface with the same operations.",
        "dispinterface d { properties: methods: }",
        "interface d { void f(void); }",
    ),
];
