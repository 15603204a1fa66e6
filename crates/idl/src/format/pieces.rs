//! Cuts a file into lines of pieces.

use crate::lex::{Kind, Tokens};

/// What a piece is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PieceKind {
    Word,
    /// Number, string, uuid.
    Literal,
    Punct,
    /// Runs to the end of the row.
    LineComment,
    BlockComment,
}

/// A token or a comment.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Piece<'a> {
    pub(super) kind: PieceKind,
    pub(super) text: &'a str,
    /// Line ends between it and the piece before it.
    pub(super) breaks_before: usize,
}

impl Piece<'_> {
    pub(super) fn is_comment(&self) -> bool {
        matches!(self.kind, PieceKind::LineComment | PieceKind::BlockComment)
    }

    pub(super) fn is_word(&self) -> bool {
        self.kind == PieceKind::Word
    }
}

/// A row of the output, if it is short enough.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Line<'a> {
    pub(super) pieces: Vec<Piece<'a>>,
    /// Blocks it is inside of.
    pub(super) depth: usize,
    /// An empty line goes before it.
    pub(super) gap: bool,
}

/// All lines of a file.
pub(super) fn lines<'a>(tokens: &Tokens, text: &'a str) -> Vec<Line<'a>> {
    let mut cutter = Cutter::default();
    for piece in pieces(tokens, text) {
        cutter.add(piece);
    }
    cutter.end_line();
    cutter.lines
}

fn pieces<'a>(tokens: &Tokens, text: &'a str) -> Vec<Piece<'a>> {
    let of_tokens = tokens.list.iter().filter_map(|t| {
        let kind = match t.kind {
            Kind::Ident(_) => PieceKind::Word,
            Kind::Punct(_) => PieceKind::Punct,
            Kind::End => return None,
            _ => PieceKind::Literal,
        };
        Some((t.span, kind))
    });
    let of_comments = tokens.comments.iter().map(|c| {
        let line = text.get(c.span.start as usize..).is_some_and(|t| t.starts_with("//"));
        (c.span, if line { PieceKind::LineComment } else { PieceKind::BlockComment })
    });
    let mut all: Vec<_> = of_tokens.chain(of_comments).collect();
    all.sort_by_key(|(span, _)| span.start);
    let mut end = 0;
    let mut list = Vec::new();
    for (span, kind) in all {
        let (start, stop) = (span.start as usize, span.end as usize);
        let between = text.get(end..start).unwrap_or("");
        let breaks_before = between.bytes().filter(|b| *b == b'\n').count();
        let piece = text.get(start..stop).unwrap_or("").trim_end();
        list.push(Piece { kind, text: piece, breaks_before });
        end = stop;
    }
    list
}

/// What a block's commas are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    Enum,
    Other,
}

#[derive(Default)]
struct Cutter<'a> {
    lines: Vec<Line<'a>>,
    line: Line<'a>,
    blocks: Vec<Block>,
    /// Open `(` and `[`.
    brackets: usize,
    /// What was added last has ended its line; a comment on the same row still belongs to it.
    ended: bool,
    /// A `}` stands alone in the line so far: a name or `;` may follow.
    after_block: bool,
}

impl<'a> Cutter<'a> {
    fn add(&mut self, piece: Piece<'a>) {
        if piece.is_comment() {
            return self.comment(piece);
        }
        let quote_ends =
            piece.text == ";" && self.line.pieces.last().is_some_and(|p| p.text == ")");
        if self.ended && !quote_ends {
            self.end_line();
        }
        if self.after_block && !(piece.is_word() || matches!(piece.text, ";" | "," | "*" | "[")) {
            self.end_line();
        }
        let starts_item = matches!(
            piece.text,
            "interface" | "typedef" | "const" | "import" | "library" | "struct" | "union" | "enum"
        );
        if self.after_block && (starts_item || piece.breaks_before > 0 && piece.text == "[") {
            self.end_line();
        }
        let was_after_block = std::mem::take(&mut self.after_block);
        match piece.text {
            _ if piece.kind != PieceKind::Punct => self.push(piece),
            "(" | "[" => {
                self.brackets += 1;
                self.push(piece);
            }
            ")" | "]" => {
                self.brackets = self.brackets.saturating_sub(1);
                self.push(piece);
                self.end_attributes();
            }
            "{" if self.brackets == 0 => {
                let is_enum = self.line.pieces.iter().any(|p| p.text == "enum");
                self.push(piece);
                self.blocks.push(if is_enum { Block::Enum } else { Block::Other });
                self.ended = true;
            }
            "}" if self.brackets == 0 => {
                self.end_line();
                self.blocks.pop();
                self.push(piece);
                self.line.gap = false;
                self.after_block = true;
            }
            ";" if self.brackets == 0 => {
                self.push(piece);
                self.ended = true;
            }
            "," if self.brackets == 0 && !was_after_block => {
                self.push(piece);
                self.ended = self.blocks.last() == Some(&Block::Enum);
            }
            _ => self.push(piece),
        }
    }

    /// The attributes of an interface have a line of their own.
    fn end_attributes(&mut self) {
        let outer = self.blocks.is_empty() && self.brackets == 0;
        let attributes = self.line.pieces.first().is_some_and(|p| p.text == "[");
        let closed = self.line.pieces.last().is_some_and(|p| p.text == "]");
        self.ended |= outer && attributes && closed;
        // `cpp_quote("...")` needs no semicolon.
        let quote = self.line.pieces.first().is_some_and(|p| p.text == "cpp_quote");
        self.ended |= quote && self.brackets == 0;
    }

    fn comment(&mut self, piece: Piece<'a>) {
        if piece.breaks_before == 0 && !self.line.pieces.is_empty() {
            let runs_on = piece.kind == PieceKind::LineComment;
            self.push(piece);
            self.ended |= runs_on && self.brackets == 0;
            return;
        }
        if self.ended || self.after_block || self.line.pieces.is_empty() {
            self.end_line();
            self.push(piece);
            self.ended = true;
            return;
        }
        // Inside a construct: the line is broken around it when it is set.
        self.push(piece);
    }

    fn push(&mut self, piece: Piece<'a>) {
        if self.line.pieces.is_empty() {
            self.line.depth = self.blocks.len();
            let opens =
                self.lines.last().is_none_or(|l| l.pieces.last().is_some_and(|p| p.text == "{"));
            self.line.gap = piece.breaks_before > 1 && !opens;
        }
        self.line.pieces.push(piece);
    }

    fn end_line(&mut self) {
        self.ended = false;
        self.after_block = false;
        if !self.line.pieces.is_empty() {
            self.lines.push(std::mem::take(&mut self.line));
        }
    }
}
