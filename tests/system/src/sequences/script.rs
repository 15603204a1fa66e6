//! A script: the sessions, and the steps of the actors, as lines of text that `c/sequences` reads.

use std::fmt;

/// A script. Lines that begin with `#` are remarks, which are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The kinds of the sessions, by number: session 0 is in slot 0 of both actors.
    pub sessions: Vec<String>,
    /// The steps: actor, call, arguments.
    pub steps: Vec<String>,
}

impl Script {
    /// Reads a script.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut script = Self::default();
        for line in text.lines().map(str::trim) {
            match line.strip_prefix("session ") {
                Some(kind) => script.sessions.push(kind.to_owned()),
                None if line.is_empty() || line.starts_with('#') => {}
                None => script.steps.push(line.to_owned()),
            }
        }
        script
    }

    /// Returns the script without the steps of which `is_kept` says false.
    #[must_use]
    pub fn with_steps(&self, is_kept: impl Fn(usize) -> bool) -> Self {
        let steps = self.steps.iter().enumerate().filter(|(at, _)| is_kept(*at));
        let steps = steps.map(|(_, step)| step.clone()).collect();
        Self { sessions: self.sessions.clone(), steps }
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sessions.iter().try_for_each(|kind| writeln!(f, "session {kind}"))?;
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
