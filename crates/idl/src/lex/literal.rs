//! The longer tokens: numbers, strings, characters; and texts of comments and `#` lines.

use super::lexer::Lexer;
use super::token::Kind;
use crate::diag::{Diagnostic, codes};
use crate::source::Span;

impl Lexer<'_> {
    pub(super) fn number(&mut self) {
        let start = self.at;
        let is_hex = self.peek(0) == Some(b'0') && matches!(self.peek(1), Some(b'x' | b'X'));
        if is_hex {
            self.at += 2;
            self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'_');
            return self.integer(start, 16);
        }
        self.skip_while(|b| b.is_ascii_digit());
        let fraction = self.peek(0) == Some(b'.') && self.peek(1) != Some(b'.');
        if fraction {
            self.at += 1;
            self.skip_while(|b| b.is_ascii_digit());
        }
        let exponent = matches!(self.peek(0), Some(b'e' | b'E')) && {
            let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
            self.peek(1 + sign).is_some_and(|b| b.is_ascii_digit())
        };
        if exponent {
            self.at += 2;
            self.skip_while(|b| b.is_ascii_digit());
        }
        if fraction || exponent {
            return self.float(start);
        }
        self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'_');
        let octal = self.slice(start).len() > 1 && self.slice(start).starts_with('0');
        self.integer(start, if octal { 8 } else { 10 });
    }

    fn float(&mut self, start: usize) {
        self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'_');
        let text = self.slice(start);
        let digits = text.trim_end_matches(['f', 'F', 'l', 'L']);
        match digits.parse::<f64>() {
            Ok(value) if value.is_finite() => self.push(Kind::Float(value), start),
            _ => self.bad_number(start),
        }
    }

    fn integer(&mut self, start: usize, radix: u32) {
        let text = self.slice(start);
        let text = if radix == 16 { &text[2..] } else { text };
        let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
        let suffix_fits = text.len() - digits.len() <= 3;
        let digits = if radix == 8 && digits.is_empty() { "0" } else { digits };
        match i128::from_str_radix(digits, radix) {
            Ok(value) if suffix_fits && value <= i128::from(u64::MAX) => {
                self.push(Kind::Int(value), start);
            }
            _ => self.bad_number(start),
        }
    }

    /// Reports, and goes on as if it were 1, a value that offends nobody later on.
    fn bad_number(&mut self, start: usize) {
        let text: String = self.slice(start).chars().take(40).collect();
        self.sink.push(
            Diagnostic::error(
                codes::BAD_NUMBER,
                self.span_from(start),
                format!("`{text}` is no number that IDL knows"),
            )
            .help("numbers are decimal, 0x hexadecimal or 0 octal, at most 64 bits wide, with u and l as suffixes"),
        );
        self.push(Kind::Int(1), start);
    }

    pub(super) fn string(&mut self, wide: bool) {
        let start = self.at;
        let text = self.quoted(start, b'"', wide);
        let kind = if wide {
            Kind::WideStr(String::from_utf8_lossy(&text).into_owned())
        } else {
            Kind::Str(text)
        };
        self.push(kind, start);
    }

    pub(super) fn character(&mut self, wide: bool) {
        let start = self.at;
        let text = self.quoted(start, b'\'', wide);
        let decoded = String::from_utf8_lossy(&text);
        let mut chars = decoded.chars();
        let value = match (chars.next(), chars.next()) {
            (Some(c), None) if wide && (c as u32) <= 0xFFFF => Some(c as u32),
            _ if !wide && text.len() == 1 => Some(u32::from(text[0])),
            _ => None,
        };
        if value.is_none() {
            self.sink.push(
                Diagnostic::error(
                    codes::BAD_CHARACTER,
                    self.span_from(start),
                    "a character constant holds exactly one character",
                )
                .help("a `char` is one byte: for others write L'...' (16 bits), for texts \"...\""),
            );
        }
        let value = value.unwrap_or(u32::from(b'?'));
        self.push(if wide { Kind::WideChar(value) } else { Kind::Char(value) }, start);
    }

    /// The bytes between two `quote`s, or up to the end of the line (reported).
    fn quoted(&mut self, start: usize, quote: u8, wide: bool) -> Vec<u8> {
        self.at += 1 + usize::from(wide);
        let mut text = Vec::new();
        loop {
            match self.peek(0) {
                Some(b) if b == quote => {
                    self.at += 1;
                    return text;
                }
                None | Some(b'\n') => {
                    self.sink.push(
                        Diagnostic::error(
                            codes::UNTERMINATED_STRING,
                            self.span_from(start),
                            "the line ends before the quotation mark closes",
                        )
                        .help(
                            "close it; long strings may be written as several, one after the other",
                        ),
                    );
                    return text;
                }
                Some(b'\\') => self.escape(wide, &mut text),
                Some(byte) => {
                    text.push(byte);
                    self.at += 1;
                }
            }
        }
    }

    fn escape(&mut self, wide: bool, text: &mut Vec<u8>) {
        let start = self.at;
        self.at += 1;
        let Some(byte) = self.peek(0).filter(|b| *b != b'\n') else { return };
        let value = match byte {
            b'n' => Some(10),
            b't' => Some(9),
            b'r' => Some(13),
            b'a' => Some(7),
            b'b' => Some(8),
            b'f' => Some(12),
            b'v' => Some(11),
            b'\\' | b'"' | b'\'' | b'?' => Some(u32::from(byte)),
            b'0'..=b'7' => return self.number_escape(start, wide, 8, text),
            b'x' => {
                self.at += 1;
                return self.number_escape(start, wide, 16, text);
            }
            _ => None,
        };
        // A whole character is skipped, so that `at` stays on a character boundary.
        self.at +=
            self.text.get(self.at..).and_then(|t| t.chars().next()).map_or(1, char::len_utf8);
        self.end_escape(start, wide, value, text);
    }

    fn number_escape(&mut self, start: usize, wide: bool, radix: u32, text: &mut Vec<u8>) {
        let digits = self.at;
        let longest = if radix == 8 { 3 } else { 4 };
        while self.at - digits < longest
            && self.peek(0).is_some_and(|b| char::from(b).is_digit(radix))
        {
            self.at += 1;
        }
        let value = u32::from_str_radix(self.slice(digits), radix).ok();
        self.end_escape(start, wide, value, text);
    }

    fn end_escape(&mut self, start: usize, wide: bool, value: Option<u32>, text: &mut Vec<u8>) {
        match (value, value.and_then(char::from_u32)) {
            (Some(_), Some(c)) if wide => {
                let mut buffer = [0; 4];
                text.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
            }
            (Some(value), _) if !wide && value <= 0xFF => {
                text.push(u8::try_from(value).unwrap_or(b'?'));
            }
            _ => self.sink.push(
                Diagnostic::error(
                    codes::BAD_ESCAPE,
                    self.span_from(start),
                    "this escape sequence does not exist, or does not fit into a character",
                )
                .help("C's escapes are known: \\n \\t \\\\ \\\" \\' \\0 \\x41 \\101"),
            ),
        }
    }
}

/// Text of a block comment without the `*` that begin its lines.
pub(super) fn unmark_block(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| {
            let bare = line.trim();
            let bare = bare.strip_prefix('*').unwrap_or(bare);
            bare.strip_prefix(' ').unwrap_or(bare)
        })
        .collect();
    lines.join("\n").trim_matches('\n').trim_end().to_owned()
}

/// A preprocessor line where there is no preprocessor; `None` for lines without effect.
pub(super) fn preprocessor_diagnostic(line: &str, span: Span) -> Option<Diagnostic> {
    let word: String = line
        .trim_start_matches('#')
        .trim_start()
        .chars()
        .take_while(|c| !c.is_whitespace())
        .collect();
    if word == "pragma" {
        let message = "`#pragma` is accepted without effect".to_owned();
        return Some(Diagnostic::note(codes::IGNORED, span, message));
    }
    let message = format!("there is no preprocessor here: `#{word}` has no effect");
    Some(Diagnostic::error(codes::PREPROCESSOR, span, message).help(
        "IDL files that are compiled may have such lines; in an ACF, or in a file that is to be formatted, take the line out",
    ))
}
