//! Scripted dialogues with a virtual clock: the peer's segments, the program's calls, and the
//! connection's expected answers with their times.
//!
//! The scripts are in `tests/scripts`, a file per group of rules; `tests/scripts/README.md`
//! describes the language. Each case runs with several initial sequence numbers, two of them about
//! to wrap. Not here: whole transfers (`byte_stream`), networks with two ends.

#[path = "dialogue/line.rs"]
mod line;
#[path = "dialogue/play.rs"]
mod play;
#[path = "dialogue/setup.rs"]
mod setup;

use play::Player;

/// Initial sequence numbers, of this end and of the peer.
const STARTS: [(u32, u32); 4] = [
    (0, 0),
    (1_000_000, 5_000_000),
    (u32::MAX - 700, u32::MAX - 1_500),
    (1 << 31, (1 << 31) - 900),
];

/// Plays one case; the error text describes the first difference.
fn play(lines: &[(usize, &str)], starts: (u32, u32)) -> Result<(), String> {
    let mut player = Player::new(starts);
    for (number, text) in lines {
        let parsed = line::parse(text).map_err(|error| format!("line {number}: {error}"))?;
        player.step(&parsed).map_err(|error| format!("line {number}: {text}\n    {error}"))?;
    }
    player.finish().map_err(|error| format!("at the end: {error}"))
}

/// Plays all cases of a script.
fn script(text: &str) {
    let mut cases: Vec<(&str, Vec<(usize, &str)>)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("case ") {
            cases.push((name, Vec::new()));
        } else if !line.is_empty() {
            cases.last_mut().expect("a script begins with a case").1.push((index + 1, line));
        }
    }
    assert!(!cases.is_empty());
    let mut failed = Vec::new();
    for (name, lines) in &cases {
        assert!(!lines.is_empty(), "case without content: {name}");
        if let Some(error) = STARTS.iter().find_map(|starts| play(lines, *starts).err()) {
            failed.push(format!("{name}\n  {error}"));
        }
    }
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            script(include_str!(concat!("scripts/", stringify!($name), ".txt")));
        }
    )* };
}

scripts! {
    rfc9293_segments
    rfc9293_closing
    rfc9293_windows
    rfc5961_challenges
    rfc7323_scaling_and_timestamps
    rfc2018_sack
    rfc5681_acknowledgements
    rfc6298_timeouts
    recovery
    sending
    keepalive_and_user_timeout
    rfc3168_marks
    path_mtu
    moves
}

#[test]
#[should_panic(expected = "1 of 1 cases")]
fn a_case_can_fail() {
    script("case wrong\nwith mss 1000\n0 send 10\n0 > P. 0:11\n");
}

#[test]
#[should_panic(expected = "not expected")]
fn what_is_not_written_must_not_be_sent() {
    script("case wrong\nwith mss 1000\n0 send 10\n0 quiet\n");
}
