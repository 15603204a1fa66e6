//! Sets lines: spaces, indentation, breaks of lines that are too long.

use super::pieces::{Line, Piece, PieceKind};

/// Columns of a row.
const WIDTH: usize = 100;

/// Columns of one level.
const INDENT: usize = 4;

/// The text of all lines.
pub(super) fn layout(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for line in lines {
        if line.gap && !out.is_empty() {
            out.push('\n');
        }
        set(line, &mut out);
    }
    out
}

fn set(line: &Line<'_>, out: &mut String) {
    let indent = line.depth * INDENT;
    let spaces = spacing(&line.pieces);
    let flat = row(&line.pieces, &spaces);
    let last = line.pieces.len().saturating_sub(1);
    let inner_comment = line.pieces.iter().enumerate().any(|(i, p)| {
        p.kind == PieceKind::LineComment && i != last || p.text.contains('\n') && i != 0
    });
    let code_end = line.pieces.iter().rposition(|p| !p.is_comment()).map_or(0, |i| i + 1);
    let code = row(&line.pieces[..code_end], &spaces);
    let fits = indent + code.chars().count() <= WIDTH;
    if inner_comment || !fits {
        broken(line, &spaces, out);
    } else if line.pieces.len() == 1 && line.pieces[0].is_comment() {
        comment(line.pieces[0].text, indent, out);
    } else {
        push_row(&flat, indent, out);
    }
}

fn push_row(text: &str, indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
    out.push_str(text.trim_end());
    out.push('\n');
}

/// A comment of its own; the rows of a starred one are aligned.
fn comment(text: &str, indent: usize, out: &mut String) {
    for (i, line) in text.lines().enumerate() {
        let bare = line.trim();
        match i {
            0 => push_row(bare, indent, out),
            _ if bare.starts_with('*') => push_row(&format!(" {bare}"), indent, out),
            _ => push_row(line.trim_end(), 0, out),
        }
    }
}

fn row(pieces: &[Piece<'_>], spaces: &[bool]) -> String {
    let mut text = String::new();
    for (i, piece) in pieces.iter().enumerate() {
        if i > 0 && spaces[i] {
            text.push(' ');
        }
        text.push_str(piece.text);
    }
    text
}

/// Sets a line on several rows: after the `(` of its parameters and after each of them; without
/// parameters, the first list of attributes is filled.
fn broken(line: &Line<'_>, spaces: &[bool], out: &mut String) {
    let mut rows = Rows { indent: line.depth * INDENT, first: true, text: String::new(), out };
    let parameters = parameter_list(&line.pieces);
    let mut depth = 0_usize;
    for (i, piece) in line.pieces.iter().enumerate() {
        let inside = parameters.is_some_and(|list| i > list.open && i < list.close);
        let filled = parameters.is_none() && depth > 0;
        if spaces[i] && !rows.text.is_empty() {
            let too_long = rows.width() + 1 + piece.text.chars().count() > WIDTH - 2;
            if filled && too_long && depth == 1 && !piece.is_comment() {
                rows.end();
            } else {
                rows.text.push(' ');
            }
        }
        if piece.is_comment() && piece.breaks_before > 0 && i > 0 {
            rows.end();
        }
        rows.text.push_str(piece.text.lines().next().unwrap_or(""));
        for more in piece.text.lines().skip(1) {
            rows.end();
            rows.text.push_str(more.trim());
        }
        match piece.text {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        let comment_follows =
            line.pieces.get(i + 1).is_some_and(|n| n.is_comment() && n.breaks_before == 0);
        let opens = parameters.is_some_and(|list| i == list.open);
        let separates = inside && depth == 1 && piece.text == ",";
        let after_separator = inside && depth == 1 && piece.is_comment();
        let runs_on = piece.kind == PieceKind::LineComment;
        if runs_on || (opens || separates || after_separator) && !comment_follows {
            rows.end();
        }
    }
    rows.end();
}

/// Rows of one line: those after the first are indented once more.
struct Rows<'a> {
    indent: usize,
    first: bool,
    text: String,
    out: &'a mut String,
}

impl Rows<'_> {
    fn width(&self) -> usize {
        self.indent + if self.first { 0 } else { INDENT } + self.text.chars().count()
    }

    fn end(&mut self) {
        let text = std::mem::take(&mut self.text);
        if text.trim().is_empty() {
            return;
        }
        let more = if self.first { 0 } else { INDENT };
        push_row(text.trim_start(), self.indent + more, self.out);
        self.first = false;
    }
}

/// Positions of two brackets.
#[derive(Clone, Copy)]
struct Brackets {
    open: usize,
    close: usize,
}

/// The brackets around the parameters: the first `(` outside other brackets that follows a name.
fn parameter_list(pieces: &[Piece<'_>]) -> Option<Brackets> {
    let mut depth = 0_usize;
    let mut open = None;
    for (i, piece) in pieces.iter().enumerate().filter(|(_, p)| p.kind == PieceKind::Punct) {
        match piece.text {
            "(" | "[" => {
                let named = i > 0 && pieces[i - 1].is_word();
                if depth == 0 && piece.text == "(" && named && open.is_none() {
                    open = Some(i);
                }
                depth += 1;
            }
            ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && open.is_some() {
                    return open.map(|open| Brackets { open, close: i });
                }
            }
            _ => {}
        }
    }
    None
}

/// Before which pieces a space stands.
fn spacing(pieces: &[Piece<'_>]) -> Vec<bool> {
    let mut state = Spacing::default();
    let mut spaces = Vec::with_capacity(pieces.len());
    for (i, piece) in pieces.iter().enumerate() {
        let before = i.checked_sub(1).map(|b| &pieces[b]);
        spaces.push(state.space(before, piece));
    }
    spaces
}

/// Where in a line the spacing is.
#[derive(Default)]
struct Spacing {
    /// Open brackets: `true` for those with expressions inside (`[...]`).
    open: Vec<bool>,
    /// The last `]` closed a dimension.
    dimension: Vec<bool>,
    closed_dimension: bool,
    /// Behind `=` or `case`: operators, not pointers.
    value: bool,
    /// The last operator stands before its only operand.
    unary: bool,
    /// Inside a `?:`.
    question: bool,
}

impl Spacing {
    fn space(&mut self, before: Option<&Piece<'_>>, piece: &Piece<'_>) -> bool {
        let space = match before {
            None => false,
            Some(_) if piece.is_comment() => true,
            Some(before) if before.is_comment() => true,
            Some(before) => self.between(before, piece),
        };
        self.enter(before, piece);
        space
    }

    fn in_expression(&self) -> bool {
        self.value || self.open.contains(&true)
    }

    /// Returns true if `before` ends an operand, so that an operator after it has two.
    fn is_operand(before: Option<&Piece<'_>>) -> bool {
        before.is_some_and(|b| match b.kind {
            PieceKind::Word => b.text != "case",
            PieceKind::Literal => true,
            _ => matches!(b.text, ")" | "]"),
        })
    }

    fn between(&self, before: &Piece<'_>, piece: &Piece<'_>) -> bool {
        let (b, p) = (before.text, piece.text);
        if before.kind == PieceKind::Punct && (matches!(b, "(" | "[" | ".." | "::") || self.unary) {
            return false;
        }
        if piece.kind != PieceKind::Punct {
            return !(before.kind == PieceKind::Punct && b == "*" && !self.in_expression());
        }
        match p {
            // An empty arm: `default: ;`.
            ";" => b == ":",
            "," | ")" | "]" | ".." | "::" => false,
            "(" => match before.kind {
                PieceKind::Word => b == "switch",
                _ if b == "*" => self.in_expression(),
                _ => b != ")",
            },
            "[" => !self.opens_dimension(before),
            ":" => self.question || !self.value && !self.ends_label(before),
            "*" if !self.in_expression() => b != "*",
            _ => true,
        }
    }

    /// `case 1:` and `default:`.
    fn ends_label(&self, before: &Piece<'_>) -> bool {
        before.text == "default"
    }

    fn opens_dimension(&self, before: &Piece<'_>) -> bool {
        before.is_word() && !matches!(before.text, "typedef" | "const")
            || before.text == "]" && self.closed_dimension
            || before.text == ")"
    }

    fn enter(&mut self, before: Option<&Piece<'_>>, piece: &Piece<'_>) {
        let operand_before = Self::is_operand(before);
        self.unary = piece.kind == PieceKind::Punct
            && match piece.text {
                "!" | "~" => true,
                "-" | "+" | "*" => self.in_expression() && !operand_before,
                _ => false,
            };
        if piece.kind == PieceKind::Word && piece.text == "case" && self.open.is_empty() {
            self.value = true;
        }
        if piece.kind != PieceKind::Punct {
            return;
        }
        match piece.text {
            "(" => self.open.push(self.in_expression()),
            "[" => {
                let dimension = before.is_some_and(|b| self.opens_dimension(b));
                self.dimension.push(dimension);
                self.open.push(true);
            }
            ")" => {
                self.open.pop();
            }
            "]" => {
                self.open.pop();
                self.closed_dimension = self.dimension.pop().unwrap_or(false);
            }
            "=" => self.value = true,
            "?" => self.question = true,
            ":" if self.question => self.question = false,
            ":" => self.value = false,
            "," if self.open.is_empty() => self.value = false,
            _ => {}
        }
    }
}
