//! Templates of C: text that can be read as C, with holes for what differs.
//!
//! A hole is `$` and a word of lower-case letters and digits: `sj_put_of_$name(sj_e, &$lv)`. A hole
//! alone on its line takes whole lines, indented as the hole is, or none at all. Templates are
//! written with [`c!`], which the compiler refuses if a hole has no value or a value has no hole.
//! Not here: what the C says.

use std::fmt::{Display, Write as _};

/// Lines of C, each with its end.
pub(super) type Code = String;

/// Fills a template: `c!("memcpy(&$lv, $from, 4);", lv, from = place)`. Every line loses the
/// indentation of the first one, so that a template is indented in Rust as other code is.
macro_rules! c {
    (@value $hole:ident) => { &$hole };
    (@value $hole:ident $value:expr) => { &$value };
    ($template:literal $(, $hole:ident $(= $value:expr)?)* $(,)?) => {{
        const { $crate::backend::c::template::check($template, &[$(stringify!($hole)),*]) };
        $crate::backend::c::template::fill(
            $template,
            &[$($crate::backend::c::template::Value {
                hole: stringify!($hole),
                value: c!(@value $hole $($value)?),
            }),*],
        )
    }};
}
pub(super) use c;

/// Refuses a template with a hole that is not among `holes`, and holes that it does not have.
pub(super) const fn check(template: &str, holes: &[&str]) {
    let text = template.as_bytes();
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'$' {
            let end = word_end(text, at + 1);
            assert!(end > at + 1, "a template has a hole without a name");
            assert!(has(text, at + 1, end, holes), "a template has a hole that gets no value");
            at = end;
        } else {
            at += 1;
        }
    }
    let mut hole = 0;
    while hole < holes.len() {
        assert!(is_used(text, holes[hole]), "a value has no hole in its template");
        hole += 1;
    }
}

/// The end of the word of lower-case letters and digits at `at`.
const fn word_end(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && (text[at].is_ascii_lowercase() || text[at].is_ascii_digit()) {
        at += 1;
    }
    at
}

const fn has(text: &[u8], start: usize, end: usize, holes: &[&str]) -> bool {
    let mut hole = 0;
    while hole < holes.len() {
        if is_word(text, start, end, holes[hole].as_bytes()) {
            return true;
        }
        hole += 1;
    }
    false
}

const fn is_used(text: &[u8], hole: &str) -> bool {
    let mut at = 0;
    while at < text.len() {
        if text[at] == b'$' && is_word(text, at + 1, word_end(text, at + 1), hole.as_bytes()) {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_word(text: &[u8], start: usize, end: usize, word: &[u8]) -> bool {
    if end - start != word.len() {
        return false;
    }
    let mut at = 0;
    while at < word.len() {
        if text[start + at] != word[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// What is put into a hole.
pub(super) struct Value<'v> {
    /// The hole's name.
    pub(super) hole: &'static str,
    pub(super) value: &'v dyn Display,
}

/// The template with values in its holes. [`check`] has seen that each has one.
pub(super) fn fill(template: &str, values: &[Value<'_>]) -> Code {
    let value = |name: &str| {
        let found = values.iter().find(|value| value.hole == name);
        found.map(|value| value.value.to_string()).unwrap_or_default()
    };
    let mut out = String::new();
    let lines = lines(template);
    let margin = lines.iter().find(|line| !line.trim().is_empty()).map_or(0, |line| indent(line));
    for line in lines {
        let line = line.get(margin..).unwrap_or_default();
        let words = line.trim_start();
        match words.strip_prefix('$').filter(|name| word_end(name.as_bytes(), 0) == name.len()) {
            Some(name) => put_lines(&mut out, &line[..line.len() - words.len()], &value(name)),
            None => put_line(&mut out, line, &value),
        }
    }
    out
}

/// The lines between the quotes of a template of several, or its only line.
fn lines(template: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = template.split('\n').collect();
    if lines.len() > 1 {
        lines.remove(0);
        lines.pop_if(|last| last.trim().is_empty());
    }
    lines
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

fn put_lines(out: &mut String, indent: &str, value: &str) {
    for line in value.lines() {
        let indent = if line.is_empty() { "" } else { indent };
        // Writing to a string cannot fail.
        let _infallible = writeln!(out, "{indent}{line}");
    }
}

fn put_line(out: &mut String, line: &str, value: &dyn Fn(&str) -> String) {
    let mut parts = line.split('$');
    out.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let end = word_end(part.as_bytes(), 0);
        out.push_str(&value(&part[..end]));
        out.push_str(&part[end..]);
    }
    out.push('\n');
}

/// The text of a file: no empty line at its beginning, and never two.
pub(super) fn tidy(code: &str) -> String {
    let mut out = String::new();
    for line in code.lines() {
        if !line.is_empty() || !(out.is_empty() || out.ends_with("\n\n")) {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_take_words_or_lines() {
        let (name, body) = ("calc_add", c!("int x;") + &c!("f(&x);"));
        let filled = c!(
            "

            static int sj_of_$name_put(void)
            {
                $body
                $nothing
                return $n;
            }
            ",
            name,
            body,
            nothing = "",
            n = 1 + 1,
        );
        let wanted =
            "\nstatic int sj_of_calc_add_put(void)\n{\n    int x;\n    f(&x);\n    return 2;\n}\n";
        assert_eq!(filled, wanted);
        assert_eq!(tidy(&format!("\n\na\n\n\n{filled}")), format!("a\n{wanted}"));
    }

    #[test]
    fn holes_and_values_go_together() {
        let is_refused = |template: &str, holes: &[&str]| {
            std::panic::catch_unwind(|| check(template, holes)).is_err()
        };
        assert!(!is_refused("f($a, &$b->c_$a);", &["a", "b"]));
        assert!(is_refused("f($a, $b);", &["a"]), "a hole without a value");
        assert!(is_refused("f($a);", &["a", "b"]), "a value without a hole");
        assert!(is_refused("f($ab);", &["a"]), "another hole");
        assert!(is_refused("cost: 5$;", &[]), "a hole without a name");
    }
}
