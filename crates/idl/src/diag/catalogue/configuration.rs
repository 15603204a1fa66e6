//! `SJ06`: the application configuration file.

use super::explanation::{Explanation, Sample};
use crate::diag::codes::{self, Code};

/// The interface that all samples configure.
const IDL: &str = "typedef long a_t;\ninterface i { long f([in] long n, [in, size_is(n)] long *a); [oneway] void g(void); error_status_t h(void); }";

const fn acf(
    code: Code,
    title: &'static str,
    text: &'static str,
    bad: &'static str,
    good: &'static str,
) -> Explanation {
    Explanation { code, title, text, bad: Sample::Acf(IDL, bad), good: Sample::Acf(IDL, good) }
}

pub(super) const ENTRIES: &[Explanation] = &[
    acf(
        codes::ACF_KEY,
        "an unknown key",
        "The ACF's keys are listed in docs/reference/idl-language.md. Attributes of the IDL do not belong here: they change what travels, and both sides must agree on them.",
        "[timeot(10)] interface i { }",
        "[timeout(10)] interface i { }",
    ),
    acf(
        codes::ACF_ARGUMENTS,
        "wrong arguments of a key",
        "Each key has one form, which the message shows. Times are milliseconds (of `sync(spin(..))`: microseconds), sizes are bytes.",
        "[sync(sleep)] interface i { }",
        "[sync(park)] interface i { }",
    ),
    acf(
        codes::ACF_KEY_PLACE,
        "a key in the wrong place",
        "Some keys speak of interfaces, some of operations, types or parameters. What is said of an interface holds for all its operations that say nothing else, and what is said of a type for all parameters of it.",
        "[deferred] interface i { }",
        "interface i { [deferred] f(); }",
    ),
    acf(
        codes::ACF_CONFLICT,
        "keys that contradict each other",
        "copy_below and reference_above set the same threshold; code and nocode, in_line and out_of_line, user_marshal and represent_as exclude each other.",
        "[code, nocode] interface i { }",
        "[nocode] interface i { }",
    ),
    acf(
        codes::ACF_TWICE,
        "configured twice",
        "All settings of an interface, operation, type or parameter stand in one place, so that none is overlooked.",
        "interface i { [timeout(1)] f(); [deferred] f(); }",
        "interface i { [timeout(1), deferred] f(); }",
    ),
    acf(
        codes::ACF_INTERFACE,
        "an interface that the IDL does not declare",
        "The ACF speaks of things by the names they have in the IDL file it belongs to.",
        "[timeout(1)] interface j { }",
        "[timeout(1)] interface i { }",
    ),
    acf(
        codes::ACF_OPERATION,
        "an operation that the IDL does not declare",
        "Operations are named as in the IDL, with or without their parameters. Those of a base interface are configured there.",
        "interface i { [timeout(1)] ff(); }",
        "interface i { [timeout(1)] f(); }",
    ),
    acf(
        codes::ACF_PARAM,
        "a parameter that the IDL does not declare",
        "Parameters are found by name, not by position; those about which there is nothing to say may be left out.",
        "interface i { f([copy_below(10)] b); }",
        "interface i { f([copy_below(10)] a); }",
    ),
    acf(
        codes::ACF_TYPE,
        "a type that the IDL does not declare",
        "Types are named as in the IDL: by their typedef name, or by their tag if they have none.",
        "interface i { typedef [represent_as(mine)] b_t; }",
        "interface i { typedef [represent_as(mine)] a_t; }",
    ),
    acf(
        codes::ACF_MISUSE,
        "a key that does not fit what it is said of",
        "comm_status and fault_status need a place for a status: a result, or an out parameter, of type error_status_t, long or unsigned long. A oneway operation has no reply that could be deferred, and a local one sends nothing that could wait, be too large or break rules.",
        "interface i { [deferred] g(); }",
        "interface i { [comm_status] h(); }",
    ),
    acf(
        codes::ACF_ALLOCATE,
        "memory for a value that needs none",
        "Numbers, fixed arrays and structures of them are stored where the program says; only strings, arrays whose size is told at run time and what pointers lead to are allocated.",
        "interface i { f([allocate(pool(p))] n); }",
        "interface i { f([allocate(pool(p))] a); }",
    ),
    acf(
        codes::ACF_ALLOCATE_RUST,
        "a pool or function that Rust stubs have no use for",
        "Rust stubs take vectors from a pool or a function for single parameters that are arrays of numbers. Strings and everything else are owned values of the standard library. C stubs take any memory from there, for whole operations too: generate C alone, or say it of a fitting parameter.",
        "interface i { [allocate(pool(p))] f(); }",
        "interface i { f([allocate(pool(p))] a); }",
    ),
];
