//! Names that mean something else to a compiler of C or C++, whatever header declares them.
//!
//! The lists hold names of GCC, Clang, ISO C, POSIX and the GNU C library, and what the runtime
//! headers use. Which positions a list matters in is decided in `names`.

use std::collections::HashSet;
use std::sync::OnceLock;

/// Keywords of C up to C23 and of C++ up to C++20, alternative tokens included.
const KEYWORDS: &str = "alignas alignof and and_eq asm auto bitand bitor bool break case catch char \
    char16_t char32_t char8_t class co_await co_return co_yield compl concept const const_cast \
    consteval constexpr constinit continue decltype default delete do double dynamic_cast else enum \
    explicit export extern false float for friend goto if inline int long mutable namespace new \
    noexcept not not_eq nullptr operator or or_eq private protected public register \
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast \
    struct switch template this thread_local throw true try typedef typeid typename typeof \
    typeof_unqual union unsigned using virtual void volatile wchar_t while xor xor_eq";

/// Types that generated declarations name.
const TYPES: &str = "bool char double float int8_t int16_t int32_t int64_t size_t ssize_t uint8_t \
    uint16_t uint32_t uint64_t uintptr_t";

/// Object-like macros, predefined or of a header, and words of the compilers with underscores.
const MACROS: &str = include_str!("reserved/macros.txt");

/// Functions, types and function-like macros of the C library.
const LIBRARY: &str = include_str!("reserved/library.txt");

/// Members, parameters and the like that the runtime headers and generated functions use.
const WORDS: &str = include_str!("reserved/words.txt");

type Set = HashSet<&'static str>;

fn set(cell: &'static OnceLock<Set>, texts: &[&'static str]) -> &'static Set {
    cell.get_or_init(|| texts.iter().flat_map(|text| text.split_whitespace()).collect())
}

/// Nothing can be called so: a keyword, or a macro that stands for something else.
pub(super) fn is_never_free(name: &str) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    set(&SET, &[KEYWORDS, MACROS]).contains(name)
}

/// Keywords alone: what follows an underscore is no macro.
pub(super) fn is_keyword(name: &str) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    set(&SET, &[KEYWORDS]).contains(name)
}

/// A type that generated declarations name: a member called so hides it in C++.
pub(super) fn is_type(name: &str) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    set(&SET, &[TYPES]).contains(name)
}

/// Declared at file scope by the C library or by C++, or the function that every program defines.
pub(super) fn is_library(name: &str) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    ["main", "std"].contains(&name) || set(&SET, &[LIBRARY]).contains(name)
}

/// A word of the runtime headers or of generated functions: a macro called so would change them.
pub(super) fn is_word(name: &str) -> bool {
    static SET: OnceLock<Set> = OnceLock::new();
    set(&SET, &[WORDS]).contains(name)
}

/// The prefixes of the runtime and of generated functions.
pub(super) fn is_ours(name: &str) -> bool {
    ["sj_", "SJ_", "SOJOURN_"].iter().any(|prefix| name.starts_with(prefix))
}
