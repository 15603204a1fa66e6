//! `SJ07`: compatibility with an older version.

use super::explanation::{Explanation, Sample};
use crate::diag::codes::{self, Code};

const fn against(
    code: Code,
    title: &'static str,
    text: &'static str,
    versions: Versions,
) -> Explanation {
    let Versions { old, bad, good } = versions;
    let (bad, good) = (Sample::Against { old, new: bad }, Sample::Against { old, new: good });
    Explanation { code, title, text, bad, good }
}

/// A version of an interface and two that follow it.
struct Versions {
    old: &'static str,
    /// Has the fault.
    bad: &'static str,
    good: &'static str,
}

const OLD: &str = "[version(1.0)] interface i { long f([in] long a); void g(void); }";

pub(super) const ENTRIES: &[Explanation] = &[
    Explanation {
        code: codes::COMPAT_DUMP,
        title: "not a dump",
        text: "The file to compare with is not one that `sojourn-idl dump` has written, or a tool with another format has.",
        bad: Sample::Against { old: "{}", new: OLD },
        good: Sample::Against { old: OLD, new: OLD },
    },
    against(
        codes::COMPAT_INTERFACE_REMOVED,
        "an interface is gone",
        "Clients that ask for the interface are refused. If it was renamed, its uuid alone does not help: the dump names interfaces. Keep it as long as somebody may use it.",
        Versions {
            old: OLD,
            bad: "[version(1.0)] interface j { long f([in] long a); void g(void); }",
            good: OLD,
        },
    ),
    against(
        codes::COMPAT_UUID,
        "another uuid",
        "Clients find an interface by its uuid, so an interface with another uuid is another interface.",
        Versions {
            old: "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a10)] interface i { void f(void); }",
            bad: "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a11)] interface i { void f(void); }",
            good: "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a10)] interface i { void f(void); }",
        },
    ),
    against(
        codes::COMPAT_MAJOR,
        "another major version",
        "Servers refuse clients of another major version. To change an interface incompatibly and go on serving old clients, let the server offer both versions as interfaces with names and uuids of their own.",
        Versions {
            old: "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a10), version(1.0)] interface i { void f(void); }",
            bad: "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a10), version(2.0)] interface i { void f(void); }",
            good: "[uuid(6f0c2f6e-6f27-4d0c-9d2b-0b8f3c1d7a10), version(1.1)] interface i { void f(void); void g(void); }",
        },
    ),
    against(
        codes::COMPAT_MINOR,
        "the minor version does not follow",
        "An interface that has grown has a higher minor version, so that a new client is told by an old server that it lacks operations. It never sinks.",
        Versions {
            old: OLD,
            bad: "[version(1.0)] interface i { long f([in] long a); void g(void); void h(void); }",
            good: "[version(1.1)] interface i { long f([in] long a); void g(void); void h(void); }",
        },
    ),
    against(
        codes::COMPAT_OPERATION_REMOVED,
        "an operation is gone",
        "Old clients go on calling it. An operation that is no longer wanted stays in its place and answers a fault.",
        Versions {
            old: OLD,
            bad: "[version(1.0)] interface i { long f([in] long a); }",
            good: "[version(1.1)] interface i { long f([in] long a); void g(void); void h(void); }",
        },
    ),
    against(
        codes::COMPAT_OPERATION_MOVED,
        "an operation has another number",
        "Operations travel as numbers, in order of their declaration, those of the base interfaces first. New ones come last; a base interface that others extend cannot grow.",
        Versions {
            old: OLD,
            bad: "[version(1.0)] interface i { void g(void); long f([in] long a); }",
            good: "[version(1.1)] interface i { long f([in] long a); void g(void); long h([in] long a); }",
        },
    ),
    against(
        codes::COMPAT_OPERATION_CHANGED,
        "an operation has changed",
        "Parameters, their order, directions, types, sizes and ranges, the result and `oneway` are what both sides have agreed upon. For a new meaning add a new operation.",
        Versions {
            old: OLD,
            bad: "[version(1.0)] interface i { long f([in] hyper a); void g(void); }",
            good: "[version(1.1)] interface i { long f([in] long a); void g(void); long f2([in] hyper a); }",
        },
    ),
    against(
        codes::COMPAT_TYPE_CHANGED,
        "a type has changed",
        "Structures, unions and enumerations that operations use are part of the agreement, down to the members of enumerations: an old receiver refuses a value it does not know. Declare a new type, and new operations that use it.",
        Versions {
            old: "typedef struct { long x; } s_t;\ninterface i { void f([in] s_t s); }",
            bad: "typedef struct { long x; long y; } s_t;\ninterface i { void f([in] s_t s); }",
            good: "typedef struct { long x; } s_t;\ntypedef struct { long x; long y; } s2_t;\n[version(0.1)] interface i { void f([in] s_t s); void f2([in] s2_t s); }",
        },
    ),
    against(
        codes::COMPAT_RENAMED,
        "an operation or parameter has another name",
        "Names of operations and parameters do not travel, so old programs go on working; but programs that are compiled anew must be changed. This is a warning.",
        Versions {
            old: OLD,
            bad: "[version(1.0)] interface i { long f([in] long b); void g(void); }",
            good: OLD,
        },
    ),
];
