//! C text besides statements: comments, literals, names. Knows nothing of the model.

use std::fmt::Write as _;

use super::template::{Code, c};
use crate::layout::Padding;

/// `if (!condition) return false;`
pub(super) fn require(condition: impl std::fmt::Display) -> Code {
    c!(
        "
        if (SJ_UNLIKELY(!($condition)))
            return false;
        ",
        condition,
    )
}

/// Requires that the bytes between fields are zero.
pub(super) fn require_zeroes(padding: &[Padding]) -> Code {
    padding.iter().map(|gap| require(is_zero(gap))).collect()
}

/// The condition that the bytes of a gap are zero.
pub(super) fn is_zero(gap: &Padding) -> String {
    format!("sj_is_zero(sj_p + {}, {})", gap.offset, gap.len)
}

/// Writes zeroes between fields.
pub(super) fn zero_padding(padding: &[Padding]) -> Code {
    let one = |gap: &Padding| c!("memset(sj_p + $o, 0, $n);", o = gap.offset, n = gap.len);
    padding.iter().map(one).collect()
}

/// Documentation as a comment in front of what it documents.
pub(super) fn doc(doc: Option<&str>) -> Code {
    let Some(doc) = doc else { return Code::new() };
    let safe = doc.replace("*/", "* /").replace("/*", "/ *");
    let lines: Vec<&str> = safe.lines().collect();
    match lines.as_slice() {
        [] => Code::new(),
        [one] => c!("/* $text */", text = one.trim()),
        many => {
            let lines: String = many
                .iter()
                .map(|line| format!("{}\n", format!(" * {}", line.trim_end()).trim_end()))
                .collect();
            format!("/*\n{lines} */\n")
        }
    }
}

/// An integer of at most 64 bits, signed or not, as a C constant of 64 bits.
pub(super) fn int64(n: i128) -> String {
    if n == i128::from(i64::MIN) {
        return "INT64_MIN".to_owned();
    }
    if n > i128::from(i64::MAX) {
        return format!("(int64_t)UINT64_C({})", n as u64);
    }
    format!("INT64_C({n})")
}

/// A C string literal; bytes outside printable ASCII as octal escapes.
pub(super) fn string_literal(bytes: &[u8]) -> String {
    let mut out = String::from("\"");
    for &b in bytes {
        match b {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'?' => out.push_str("\\?"),
            0x20..=0x7E => out.push(char::from(b)),
            _ => {
                let _ = write!(out, "\\{b:03o}");
            }
        }
    }
    out.push('"');
    out
}

/// What an ACF calls `module::name` is `module_name` in C.
pub(super) fn path(name: &str) -> String {
    name.replace("::", "_")
}
