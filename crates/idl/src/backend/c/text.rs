//! Writing C text: lines, indentation, comments, literals. Knows nothing of the model.

use std::fmt::Write as _;

/// Text under construction; every line is indented by the braces that are open.
#[derive(Default)]
pub(super) struct Text {
    out: String,
    depth: usize,
}

impl Text {
    pub(super) fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            for _ in 0..self.depth {
                self.out.push_str("    ");
            }
            self.out.push_str(line);
        }
        self.out.push('\n');
    }

    /// A line without indentation: preprocessor, labels.
    pub(super) fn flush_left(&mut self, line: impl AsRef<str>) {
        self.out.push_str(line.as_ref());
        self.out.push('\n');
    }

    /// `head {`
    pub(super) fn open(&mut self, head: impl AsRef<str>) {
        let head = head.as_ref();
        self.line(if head.is_empty() { "{".to_owned() } else { format!("{head} {{") });
        self.depth += 1;
    }

    /// `}` and what follows it on the line.
    pub(super) fn close_with(&mut self, tail: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.line(format!("}}{tail}"));
    }

    pub(super) fn close(&mut self) {
        self.close_with("");
    }

    /// The beginning of a function: head on its own line, brace on the next.
    pub(super) fn function(&mut self, head: impl AsRef<str>) {
        self.line(head);
        self.open("");
    }

    /// `if (!condition) return false;`
    pub(super) fn require(&mut self, condition: impl AsRef<str>) {
        self.line(format!("if (SJ_UNLIKELY(!({})))", condition.as_ref()));
        self.line("    return false;");
    }

    /// Documentation as a comment in front of what it documents.
    pub(super) fn doc(&mut self, doc: Option<&str>) {
        let Some(doc) = doc else { return };
        let safe = doc.replace("*/", "* /").replace("/*", "/ *");
        let lines: Vec<&str> = safe.lines().collect();
        match lines.as_slice() {
            [] => {}
            [one] => self.line(format!("/* {} */", one.trim())),
            many => {
                self.line("/*");
                for line in many {
                    self.line(format!(" * {}", line.trim_end()).trim_end());
                }
                self.line(" */");
            }
        }
    }

    pub(super) fn blank(&mut self) {
        if !self.out.is_empty() && !self.out.ends_with("\n\n") {
            self.out.push('\n');
        }
    }

    pub(super) fn finish(self) -> String {
        self.out
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
