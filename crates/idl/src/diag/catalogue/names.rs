//! `SJ02`: names and constants.

use super::explanation::{Explanation, idl};
use crate::diag::codes;

pub(super) const ENTRIES: &[Explanation] = &[
    idl(
        codes::DUPLICATE_NAME,
        "a name declared twice",
        "Types, constants, members of enumerations and interfaces share one space of names, as they do in the generated C, and so do all imported files. Rename one of them, or import the file that declares it instead of repeating the declaration.",
        "const long A = 1;\ntypedef long A;",
        "const long A = 1;\ntypedef long a_t;",
    ),
    idl(
        codes::DUPLICATE_MEMBER,
        "a member declared twice",
        "Within one structure, union or list of parameters every name occurs once.",
        "typedef struct { long a; short a; } s_t;",
        "typedef struct { long a; short b; } s_t;",
    ),
    idl(
        codes::UNKNOWN_TYPE,
        "an unknown type",
        "A type is declared before it is used, in this file or in an imported one. A type that only C or Rust knows is declared as opaque, with its size and alignment; the generated code checks both.",
        "interface i { void f([in] pont_t p); }",
        "typedef struct { long x; } point_t;\ninterface i { void f([in] point_t p); }",
    ),
    idl(
        codes::UNKNOWN_VALUE,
        "an unknown value",
        "Expressions consist of numbers, constants and members of enumerations declared before, and, inside attributes, of the other parameters or fields of the same list.",
        "interface i { void f([in] long n, [in, size_is(m)] long *a); }",
        "interface i { void f([in] long n, [in, size_is(n)] long *a); }",
    ),
    idl(
        codes::NOT_A_TYPE,
        "a value where a type is expected",
        "The name belongs to a constant or to a member of an enumeration.",
        "const long A = 1;\ntypedef A a_t;",
        "const long A = 1;\ntypedef long a_t;",
    ),
    idl(
        codes::NOT_A_VALUE,
        "a type where a value is expected",
        "The name belongs to a type or an interface; there is no sizeof. Values are constants, members of enumerations and, inside attributes, siblings.",
        "typedef long a_t;\ntypedef long b_t[a_t];",
        "const long A = 4;\ntypedef long b_t[A];",
    ),
    idl(
        codes::NOT_AN_INTEGER,
        "an integer is needed",
        "Sizes, bounds, cases and members of enumerations are integers.",
        "typedef long a_t[1.5];",
        "typedef long a_t[2];",
    ),
    idl(
        codes::OVERFLOW,
        "a value outside 64 bits",
        "Constant expressions are computed without loss; results between the least hyper and the greatest unsigned hyper are kept. Shifts are by 0 to 63 bits.",
        "const hyper A = 0x7fffffffffffffff * 4;",
        "const hyper A = 0x7fffffffffffffff;",
    ),
    idl(
        codes::DIVISION_BY_ZERO,
        "division by zero",
        "The divisor of a constant expression comes to zero.",
        "const long A = 1 / (2 - 2);",
        "const long A = 1 / 2;",
    ),
    idl(
        codes::CONST_TYPE,
        "a type that constants cannot have",
        "Constants are integers, characters, booleans, floating point numbers, enumerations, and strings (`char *`, `wchar_t *`).",
        "typedef struct { long x; } s_t;\nconst s_t A = 1;",
        "const long A = 1;",
    ),
    idl(
        codes::CONST_MISMATCH,
        "a value of another type",
        "Numbers go to number types, \"...\" to `char *`, L\"...\" to `wchar_t *`; a fraction does not go to an integer.",
        "const long A = \"one\";",
        "const char *A = \"one\";",
    ),
    idl(
        codes::CONST_RANGE,
        "a value outside the type",
        "The constant's type is too narrow for its value. Nothing is cut off silently.",
        "const short A = 40000;",
        "const unsigned short A = 40000;",
    ),
    idl(
        codes::TAG_KIND,
        "a tag of another kind",
        "The tag has been declared as a struct, enum or union, and is now spoken of as something else.",
        "struct a { long x; };\ninterface i { void f([in] union a *p); }",
        "struct a { long x; };\ninterface i { void f([in] struct a *p); }",
    ),
    idl(
        codes::ANONYMOUS_TYPE,
        "a type needs a name",
        "Types declared inside a list of parameters or at the top level cannot be spoken of later, and the generated code needs a name for them.",
        "interface i { void f([in] struct { long x; } a); }",
        "typedef struct { long x; } a_t;\ninterface i { void f([in] a_t a); }",
    ),
    idl(
        codes::INCOMPLETE_TYPE,
        "declared but never defined",
        "A tag or interface may be announced and used behind pointers before its definition, but the definition must come somewhere, in this file or an imported one.",
        "typedef struct { struct b *next; } a_t;",
        "struct b { long x; };\ntypedef struct { struct b *next; } a_t;",
    ),
];
