//! Pictures of times: a bar for each home, as SVG and as letters for a terminal.
//!
//! A bar has the parts of a send and of a receive, one behind the other, all bars to one scale. Not
//! here: numbers as text (the command), JSON (`report`).

use crate::row::{Direction, Row};
use crate::session::{Cell, Session};
use std::collections::BTreeMap;
use std::fmt::Write as _;

const WIDTH: f64 = 720.0;
const LEFT: f64 = 16.0;
const BAR: f64 = 26.0;
const STEP: f64 = 74.0;
const LEGEND: f64 = 20.0;
/// Columns of the legend.
const COLUMNS: usize = 3;

/// Colours of the rows: cold ones send, warm ones receive; readable on light and dark.
const COLOURS: [&str; Row::ALL.len()] = [
    "#1f5fa8", "#3f8fd0", "#6ab4e0", "#2a9d8f", "#7a5195", "#a05fa8", "#c77dba", "#8d6e63",
    "#e09f3e", "#d1603d", "#b02e2e", "#9aa0a6", "#e2b93b",
];

/// One bar: a home, or a session.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The line above it.
    pub title: String,
    /// The rows' parts of a message.
    pub parts: Vec<Part>,
}

/// A row's part of a message.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The row; the last one of several that are measured together.
    pub row: Row,
    /// Its time on average (ns).
    pub ns: f64,
    /// The first of the rows that are measured together.
    first: Row,
}

impl Part {
    /// The words for it.
    fn words(&self) -> String {
        match self.first == self.row {
            true => self.row.title().to_owned(),
            false => format!("{} to {}", self.first.title(), self.row.title()),
        }
    }
}

impl Bar {
    /// Of a session, or of several that were merged.
    #[must_use]
    pub fn of(title: &str, session: &Session) -> Self {
        let (mut parts, mut begun) = (Vec::new(), None);
        for row in Row::ALL {
            match (session.cell(row), session.share_ns(row)) {
                (Cell::InNext, _) => begun = begun.or(Some(row)),
                (_, Some(ns)) => parts.push(Part { row, ns, first: begun.take().unwrap_or(row) }),
                (_, None) => {}
            }
        }
        Self { title: title.to_owned(), parts }
    }

    /// The words for a row's part, if this bar has it.
    fn words_of(&self, row: Row) -> Option<String> {
        self.parts.iter().find(|part| part.row == row).map(Part::words)
    }

    fn total(&self) -> f64 {
        self.parts.iter().map(|part| part.ns).sum()
    }

    fn sum(&self, direction: Direction) -> f64 {
        let of = self.parts.iter().filter(|part| part.row.direction() == direction);
        of.map(|part| part.ns).sum()
    }
}

/// The sessions together by home and kind, those with the most chains first.
#[must_use]
pub fn by_home(sessions: &[&Session]) -> Vec<Session> {
    let mut homes: BTreeMap<_, Session> = BTreeMap::new();
    for session in sessions.iter().filter(|session| session.chains() > 0) {
        let all = homes.entry((session.home, session.protocol)).or_insert_with(|| Session {
            home: session.home,
            protocol: session.protocol,
            ..Session::default()
        });
        all.merge(session);
    }
    let mut homes: Vec<Session> = homes.into_values().collect();
    homes.sort_by_key(|session| std::cmp::Reverse(session.chains()));
    homes
}

/// The picture, as an SVG file.
#[must_use]
pub fn svg(bars: &[Bar]) -> String {
    let used = |row: &Row| bars.iter().any(|bar| bar.parts.iter().any(|part| part.row == *row));
    let rows: Vec<Row> = Row::ALL.into_iter().filter(used).collect();
    let longest = bars.iter().map(Bar::total).fold(1.0, f64::max);
    let lines = rows.len().div_ceil(COLUMNS) as f64;
    let height = bars.len() as f64 * STEP + lines * LEGEND + 40.0;
    let whole = WIDTH + 2.0 * LEFT;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {whole} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>Time by layer</title>\n\
         <style>text{{fill:#222}}rect.b{{fill:#fff}}@media(prefers-color-scheme:dark)\
         {{text{{fill:#ddd}}rect.b{{fill:#161a1d}}}}</style>\n\
         <rect class=\"b\" width=\"100%\" height=\"100%\"/>\n"
    );
    for (index, bar) in bars.iter().enumerate() {
        draw(&mut out, bar, 16.0 + index as f64 * STEP, WIDTH / longest);
    }
    let top = 16.0 + bars.len() as f64 * STEP;
    for (index, row) in rows.iter().enumerate() {
        let x = LEFT + (index % COLUMNS) as f64 * WIDTH / COLUMNS as f64;
        let y = top + (index / COLUMNS) as f64 * LEGEND;
        let colour = COLOURS[row.index()];
        // Of bars in which a row has more or less in it, the widest words are true of all.
        let words = bars.iter().filter_map(|bar| bar.words_of(*row));
        let title = words.max_by_key(String::len).unwrap_or_default();
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{title}</text>",
            x + 18.0,
            y + 11.0
        );
    }
    out.push_str("</svg>\n");
    out
}

fn draw(out: &mut String, bar: &Bar, top: f64, scale: f64) {
    let (send, receive) = (bar.sum(Direction::Send) / 1e3, bar.sum(Direction::Receive) / 1e3);
    let title = escaped(&bar.title);
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{:.1}\">{title}: send {send:.2} µs, receive {receive:.2} µs</text>",
        top + 12.0
    );
    let mut x = LEFT;
    for part in &bar.parts {
        let width = part.ns * scale;
        let (colour, name) = (COLOURS[part.row.index()], part.words());
        let _ = writeln!(
            out,
            "<rect x=\"{x:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"{BAR}\" \
             fill=\"{colour}\"><title>{name}: {:.2} µs</title></rect>",
            top + 20.0,
            part.ns / 1e3
        );
        x += width;
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The letter of a row, in a bar of letters.
#[must_use]
pub fn letter(row: Row) -> char {
    char::from(b'a' + u8::try_from(row.index()).unwrap_or(0))
}

/// One direction of a session as a bar of letters, `width` long; empty without times.
#[must_use]
pub fn letters(session: &Session, direction: Direction, width: usize) -> String {
    let of = |row: &&Row| row.direction() == direction && session.cell(**row) == Cell::Timed;
    let rows: Vec<Row> = Row::ALL.iter().filter(of).copied().collect();
    let total: f64 = rows.iter().filter_map(|row| session.share_ns(*row)).sum();
    let mut bar = String::new();
    let mut seen = 0.0;
    for row in rows {
        seen += session.share_ns(row).unwrap_or(0.0);
        // Rounding the end of each part, and not its length, makes the bar as long as it should be.
        let end = (seen / total.max(1.0) * width as f64).round() as usize;
        bar.extend(std::iter::repeat_n(letter(row), end.saturating_sub(bar.len())));
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{RowTime, Times};

    fn session(rows: &[(Row, u64)]) -> Session {
        let mut session = Session::default();
        for direction in [Direction::Send, Direction::Receive] {
            let rows = rows.iter().filter(|(row, _)| row.direction() == direction);
            let times = Times {
                rows: rows.map(|(row, ns)| RowTime { row: *row, ns: *ns }).collect(),
                ..Times::default()
            };
            session.add(direction, &times);
        }
        session
    }

    #[test]
    fn letters_stand_for_shares_and_fill_the_bar() {
        let session = session(&[(Row::IpOutput, 300), (Row::LinkOutput, 100), (Row::WakeUp, 5)]);
        assert_eq!(letters(&session, Direction::Send, 8), "ccccccdd");
        assert_eq!(letters(&session, Direction::Receive, 3), "kkk");
        assert_eq!(letters(&Session::default(), Direction::Send, 8), "");
    }

    #[test]
    fn bars_are_to_one_scale_and_names_are_text() {
        let long = session(&[(Row::IpOutput, 3000), (Row::WakeUp, 1000)]);
        let short = session(&[(Row::IpOutput, 1000)]);
        let svg = svg(&[Bar::of("a<b", &long), Bar::of("c", &short)]);
        assert!(svg.contains("a&lt;b: send 3.00 µs, receive 1.00 µs"), "{svg}");
        assert!(svg.contains("width=\"540.00\"") && svg.contains("width=\"180.00\""), "{svg}");
    }

    #[test]
    fn rows_that_are_measured_together_are_named_together() {
        let session = session(&[(Row::IpOutput, 300), (Row::LinkOutput, 100)]);
        let bar = Bar::of("a", &session);
        assert_eq!(
            (bar.parts[0].words(), bar.parts[1].words()),
            ("entry, copy in to ip output".into(), "link output".into())
        );
        assert!(svg(&[bar]).contains(">entry, copy in to ip output<"));
    }

    #[test]
    fn sessions_of_one_home_are_one_bar() {
        let one = session(&[(Row::IpOutput, 100)]);
        let homes = by_home(&[&one, &one, &Session::default()]);
        assert_eq!(homes.len(), 1);
        assert_eq!(homes[0].share_ns(Row::IpOutput), Some(100.0));
        assert_eq!(homes[0].chains(), 4);
    }
}
