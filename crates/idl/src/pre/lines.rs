//! Where the lines of the preprocessor are. Not here: what they say; see `directive`.

use std::ops::Range;

/// The lines that begin with `#`, from that character to the end of the line. A line that ends
/// with `\`, or inside a comment, goes on.
pub(super) fn directives(text: &str) -> Vec<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut found, mut at, mut is_fresh) = (Vec::new(), 0, true);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' => is_fresh = true,
            b' ' | b'\t' | b'\r' | 0x0C => {}
            b'#' if is_fresh => {
                let end = end_of_line(bytes, at);
                found.push(at..end);
                at = end;
                continue;
            }
            b'/' if matches!(bytes.get(at + 1), Some(b'*' | b'/')) => {
                // A comment is white space: a line may begin behind one.
                at = end_of_comment(bytes, at);
                continue;
            }
            b'"' | b'\'' => {
                at = end_of_quote(bytes, at);
                is_fresh = false;
                continue;
            }
            _ => is_fresh = false,
        }
        at += 1;
    }
    found
}

/// Before the line end of the directive that begins at `at`.
fn end_of_line(bytes: &[u8], at: usize) -> usize {
    let mut at = at;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' => return at,
            b'\\' => at += if bytes.get(at + 1) == Some(&b'\r') { 3 } else { 2 },
            b'/' if matches!(bytes.get(at + 1), Some(b'*' | b'/')) => {
                at = end_of_comment(bytes, at);
            }
            b'"' | b'\'' => at = end_of_quote(bytes, at),
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Behind a block comment; before the line end of a line comment.
fn end_of_comment(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at + 2..).unwrap_or(&[]);
    let length = if bytes.get(at + 1) == Some(&b'*') {
        rest.windows(2).position(|two| two == b"*/").map(|n| n + 2)
    } else {
        rest.iter().position(|byte| *byte == b'\n')
    };
    length.map_or(bytes.len(), |n| at + 2 + n)
}

/// Behind a string or character; before the end of the line if it has no end.
fn end_of_quote(bytes: &[u8], at: usize) -> usize {
    let quote = bytes.get(at);
    let mut at = at + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\n' => return at,
            b'\\' if bytes.get(at + 1) != Some(&b'\n') => at += 2,
            _ if Some(byte) == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}
