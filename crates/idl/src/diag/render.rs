//! Shows a diagnostic to a person: place, source line, caret, ways out.

use std::fmt::Write as _;

use super::diagnostic::Diagnostic;
use crate::source::{SourceMap, Span};

/// Widest source line shown, in characters; of longer ones the part around the caret.
const WIDTH_MAX: usize = 160;

/// The text of one diagnostic, with a line end.
#[must_use]
pub fn render(diagnostic: &Diagnostic, sources: &SourceMap) -> String {
    let mut out =
        format!("{}[{}]: {}\n", diagnostic.severity.as_str(), diagnostic.code, diagnostic.message);
    let lines = diagnostic.span.iter().chain(diagnostic.labels.iter().map(|l| &l.span));
    let margin = lines
        .filter_map(|s| Some(sources.file(s.file)?.line_column(s.start).line))
        .max()
        .map_or(1, |line| line.to_string().len());
    if let Some(span) = diagnostic.span {
        let annotation = Annotation { span, arrow: "-->", mark: '^', text: "" };
        snippet(&mut out, sources, margin, &annotation);
    }
    for label in &diagnostic.labels {
        let annotation =
            Annotation { span: label.span, arrow: ":::", mark: '-', text: &label.text };
        snippet(&mut out, sources, margin, &annotation);
    }
    for help in &diagnostic.help {
        let _ = writeln!(out, "{:margin$} = help: {help}", "");
    }
    out
}

/// A part of the source, and how it is shown.
struct Annotation<'a> {
    span: Span,
    arrow: &'a str,
    /// The character below what is meant.
    mark: char,
    /// The text behind the marks.
    text: &'a str,
}

/// Writes the line of an annotation; line numbers take `margin` columns.
fn snippet(out: &mut String, sources: &SourceMap, margin: usize, annotation: &Annotation<'_>) {
    let Annotation { span, arrow, mark, text } = *annotation;
    let Some(source) = sources.file(span.file) else { return };
    let at = source.line_column(span.start);
    let line: Vec<char> = source.line(at.line).chars().map(visible).collect();
    let column = (at.column as usize - 1).min(line.len());
    let length = source.slice(span).lines().next().unwrap_or("").chars().count();
    let from = if line.len() > WIDTH_MAX { column.saturating_sub(WIDTH_MAX / 2) } else { 0 };
    let shown: String = line[from..].iter().take(WIDTH_MAX).collect();
    let marks = length.min(WIDTH_MAX).min(line.len() - column).max(1);
    let marks: String = std::iter::repeat_n(mark, marks).collect();
    let _ = writeln!(out, "{:margin$}{arrow} {}:{}:{}", "", source.path, at.line, at.column);
    let _ = writeln!(out, "{:margin$} |", "");
    let _ = writeln!(out, "{:margin$} | {shown}", at.line);
    let pad = column - from;
    let _ = writeln!(out, "{:margin$} | {:pad$}{marks} {text}", "", "");
    while out.ends_with(" \n") {
        out.truncate(out.len() - 2);
        out.push('\n');
    }
}

/// A character that takes one column and cannot disturb a terminal.
fn visible(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{FFFD}',
        c => c,
    }
}
