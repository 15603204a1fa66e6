//! The server's messages on its standard error, by importance.
//!
//! There is one line for each event of note. An offer that goes well is mentioned at `debug` only.
//! Not here: the users' view of sessions, which is the `admin` interface.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// The server cannot do what it is for.
    Error,
    /// Something is wrong with one client.
    Warn,
    /// Coming and going of the server.
    Info,
    /// Coming and going of clients, refusals.
    Debug,
}

static MOST: AtomicU8 = AtomicU8::new(Level::Info as u8);

impl std::str::FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "error" => Ok(Self::Error),
            "warn" => Ok(Self::Warn),
            "info" => Ok(Self::Info),
            "debug" => Ok(Self::Debug),
            _ => Err("one of error, warn, info, debug".into()),
        }
    }
}

/// Suppresses messages that are less important than `level`, from now on.
pub fn set(level: Level) {
    MOST.store(level as u8, Ordering::Relaxed);
}

/// Warnings written within [`WINDOW`], at most. Clients bring them about as often as they like, and
/// whoever collects the server's messages would lose others.
const WARNINGS_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(1);

/// The warnings of some time.
#[derive(Debug)]
struct Warnings {
    since: Option<Instant>,
    written: u32,
    left_out: u32,
}

static WARNINGS: Mutex<Warnings> = Mutex::new(Warnings { since: None, written: 0, left_out: 0 });

impl Warnings {
    /// Counts a warning. Returns `None` if it is left out, else how many were left out before.
    fn take(&mut self, now: Instant) -> Option<u32> {
        let is_over = self.since.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW);
        if is_over {
            (self.since, self.written) = (Some(now), 0);
        }
        if self.written >= WARNINGS_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(core::mem::take(&mut self.left_out))
    }
}

/// Writes a message. Of many warnings at once the first ones are written.
pub fn say(level: Level, what: Arguments<'_>) {
    if level as u8 > MOST.load(Ordering::Relaxed) {
        return;
    }
    if level == Level::Warn {
        let taken = WARNINGS.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        match taken {
            None => return,
            Some(0) => {}
            Some(count) => write(level, format_args!("{count} warnings were left out")),
        }
    }
    write(level, what);
}

fn write(level: Level, what: Arguments<'_>) {
    let word = match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
    };
    // In one piece, so that lines of several threads do not mix. If nobody reads the line, there is
    // nobody to tell that either.
    let _ = std::io::stderr().write_all(line_of(word, &what.to_string()).as_bytes());
}

/// Returns one line. Names that clients give may be in it: they begin no other line, and do not
/// control the terminal.
fn line_of(word: &str, what: &str) -> String {
    let what: String = what.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("sojournd: {word}: {what}\n")
}

#[cfg(test)]
mod tests {
    use super::{WARNINGS_MAX, WINDOW, Warnings};
    use std::time::Instant;

    #[test]
    fn of_many_warnings_the_first_are_written_and_the_others_counted() {
        let mut warnings = Warnings { since: None, written: 0, left_out: 0 };
        let begun = Instant::now();
        let count = |warnings: &mut Warnings, at| {
            (0..1000).filter(|_| warnings.take(at).is_some()).count() as u32
        };
        assert_eq!(count(&mut warnings, begun), WARNINGS_MAX);
        assert_eq!(warnings.take(begun + WINDOW / 2), None);
        let left_out = 1000 - WARNINGS_MAX + 1;
        assert_eq!(warnings.take(begun + WINDOW), Some(left_out));
        assert_eq!(warnings.take(begun + WINDOW), Some(0), "told once");
    }

    #[test]
    fn a_message_is_one_line() {
        let line = super::line_of("info", "a\nsojournd: error: b\u{1b}[2J");
        assert_eq!(line, "sojournd: info: a?sojournd: error: b?[2J\n");
    }
}
