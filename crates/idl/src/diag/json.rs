//! Shows a diagnostic to a program: one JSON object, lines and columns counted from 1.

use serde::Serialize;

use super::diagnostic::Diagnostic;
use crate::source::{SourceMap, Span};

#[derive(Serialize)]
struct Shown<'a> {
    severity: &'a str,
    code: String,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<Location<'a>>,
    labels: Vec<ShownLabel<'a>>,
    help: &'a [String],
}

#[derive(Serialize)]
struct ShownLabel<'a> {
    text: &'a str,
    place: Option<Location<'a>>,
}

/// A part of a file, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Location<'a> {
    /// Path of the file.
    pub file: &'a str,
    /// First line.
    pub line: u32,
    /// First column.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// One past the last column.
    pub end_column: u32,
}

/// Where a span is; `None` if its file is unknown.
#[must_use]
pub fn location(sources: &SourceMap, span: Span) -> Option<Location<'_>> {
    let source = sources.file(span.file)?;
    let (start, end) = (source.line_column(span.start), source.line_column(span.end));
    Some(Location {
        file: &source.path,
        line: start.line,
        column: start.column,
        end_line: end.line,
        end_column: end.column,
    })
}

/// The diagnostic as one line of JSON, without a line end.
#[must_use]
pub fn to_json(diagnostic: &Diagnostic, sources: &SourceMap) -> String {
    let labels = diagnostic
        .labels
        .iter()
        .map(|l| ShownLabel { text: &l.text, place: location(sources, l.span) })
        .collect();
    let shown = Shown {
        severity: diagnostic.severity.as_str(),
        code: diagnostic.code.to_string(),
        message: &diagnostic.message,
        place: diagnostic.span.and_then(|s| location(sources, s)),
        labels,
        help: &diagnostic.help,
    };
    // Strings and numbers always have a JSON form.
    serde_json::to_string(&shown).unwrap_or_default()
}
