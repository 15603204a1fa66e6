//! One line of a script as a value. `tests/scripts/README.md` explains the words.

use sojourn_proto::time::Instant;
use sojourn_wire::tcp::Flags;

/// A segment as a script writes it, with numbers counted from the first byte of each direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    pub(crate) flags: Flags,
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) ack: Option<i64>,
    pub(crate) window: Option<u16>,
    pub(crate) stamps: Option<(i64, i64)>,
    pub(crate) sack: Option<Vec<(i64, i64)>>,
    pub(crate) urgent: u16,
    pub(crate) congestion: bool,
    pub(crate) segment_size: Option<u16>,
    /// Expired timers are handled after the segment.
    pub(crate) is_late: bool,
    /// The name of the expected disposition.
    pub(crate) becomes: Option<String>,
}

/// The action of a line.
#[derive(Clone, Debug)]
pub(crate) enum Verb {
    With(Vec<String>),
    From(Segment),
    To(Segment),
    Send(usize, bool),
    Recv(usize),
    Do(Vec<String>),
    Quiet,
    Expect(String, String),
}

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Option<Instant>,
    pub(crate) verb: Verb,
}

fn time(word: &str) -> Option<Instant> {
    let milliseconds: f64 = word.parse().ok()?;
    Some(Instant::from_micros((milliseconds * 1_000.0).round() as u64))
}

fn number<T: std::str::FromStr>(word: Option<&&str>) -> Result<T, String> {
    let word = word.ok_or("a number is missing")?;
    word.parse().map_err(|_| format!("not a number: {word}"))
}

/// Reads a line.
pub(crate) fn parse(text: &str) -> Result<Line, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (at, words) = match time(words[0]) {
        Some(at) => (Some(at), &words[1..]),
        None => (None, &words[..]),
    };
    let owned = |words: &[&str]| words.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let (first, rest) = words.split_first().ok_or("nothing after the time")?;
    let verb = match *first {
        "with" => Verb::With(owned(rest)),
        "<" => Verb::From(segment(rest)?),
        ">" => Verb::To(segment(rest)?),
        "send" => Verb::Send(number(rest.first())?, rest.get(1) == Some(&"more")),
        "recv" => Verb::Recv(number(rest.first())?),
        "quiet" => Verb::Quiet,
        "expect" => match rest {
            [what, value] => Verb::Expect(what.to_string(), value.to_string()),
            _ => return Err("expect WHAT VALUE".into()),
        },
        _ => Verb::Do(owned(words)),
    };
    Ok(Line { at, verb })
}

fn flags(word: &str) -> Result<Flags, String> {
    let mut flags = Flags::empty();
    for letter in word.chars() {
        flags |= match letter {
            '.' => Flags::ACK,
            'S' => Flags::SYN,
            'F' => Flags::FIN,
            'R' => Flags::RST,
            'P' => Flags::PSH,
            'E' => Flags::ECE,
            'W' => Flags::CWR,
            'U' => Flags::URG,
            '-' => Flags::empty(),
            _ => return Err(format!("unknown flag {letter}")),
        };
    }
    Ok(flags)
}

fn range(word: &str, between: char) -> Result<(i64, i64), String> {
    let parts = word.split_once(between).ok_or(format!("not a range: {word}"))?;
    match (parts.0.parse(), parts.1.parse()) {
        (Ok(start), Ok(end)) => Ok((start, end)),
        _ => Err(format!("not a range: {word}")),
    }
}

fn segment(words: &[&str]) -> Result<Segment, String> {
    let [flag_word, range_word, rest @ ..] = words else {
        return Err("a segment has flags and a range".into());
    };
    let (start, end) = range(range_word, ':')?;
    let mut segment = Segment { flags: flags(flag_word)?, start, end, ..Segment::default() };
    let mut rest = rest.iter().peekable();
    while let Some(word) = rest.next() {
        match *word {
            "ack" => segment.ack = Some(number(rest.next())?),
            "win" => segment.window = Some(number(rest.next())?),
            "ts" => segment.stamps = Some((number(rest.next())?, number(rest.next())?)),
            "urg" => segment.urgent = number(rest.next())?,
            "gso" => segment.segment_size = Some(number(rest.next())?),
            "ce" | "ect" => segment.congestion = true,
            "late" => segment.is_late = true,
            "sack" => {
                let mut blocks = Vec::new();
                while let Some(block) = rest.next_if(|word| word.contains('-')) {
                    blocks.push(range(block, '-')?);
                }
                segment.sack = Some(blocks);
            }
            "=>" => segment.becomes = Some(rest.next().ok_or("=> what?")?.to_string()),
            other => return Err(format!("unknown word {other}")),
        }
    }
    Ok(segment)
}
