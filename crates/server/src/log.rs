//! The server's messages on its standard error, by importance.
//!
//! There is one line for each event of note. An offer that goes well is mentioned at `debug` only.
//! Not here: the users' view of sessions, which is the `admin` interface.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::atomic::{AtomicU8, Ordering};

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

/// Writes a message.
pub fn say(level: Level, what: Arguments<'_>) {
    if level as u8 > MOST.load(Ordering::Relaxed) {
        return;
    }
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
    #[test]
    fn a_message_is_one_line() {
        let line = super::line_of("info", "a\nsojournd: error: b\u{1b}[2J");
        assert_eq!(line, "sojournd: info: a?sojournd: error: b?[2J\n");
    }
}
