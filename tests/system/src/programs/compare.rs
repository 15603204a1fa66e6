//! The runs that make a row of the page, and what they have in common.

use super::run::{End, Outcome, RunMode, once};
use super::seen::{Look, Seen};
use crate::catalog::Program;
use anyhow::{Context, Result, bail};
use std::sync::Mutex;
use std::time::Duration;

/// Runs of each kind whose busy part is timed; the shortest counts.
const TIMED: usize = 2;
/// The most such runs where the shortest under Sojourn is longer than plainly.
const TIMED_MAX: usize = 5;
/// The part of the plain time by which a program may be slower.
const TOLERANCE: f64 = 0.03;

/// The result of a run compared with the plain one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The same output and status, and no process left.
    Same,
    /// Different once; other runs were the same.
    Unsure(String),
    /// Different in words.
    Differs(String),
}

/// A run that was compared with the plain one.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The run.
    pub outcome: Outcome,
    /// What the comparison gave.
    pub verdict: Verdict,
}

/// The shortest times of a script's busy part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Busy {
    /// Without Sojourn.
    pub plain: Duration,
    /// With default settings.
    pub with: Duration,
}

impl Busy {
    /// Returns the plain time as a multiple of that under Sojourn: above 1 it is faster.
    #[must_use]
    pub fn gain(self) -> f64 {
        self.plain.as_secs_f64() / self.with.as_secs_f64().max(1e-6)
    }

    /// Returns true if the program is slower than it may be.
    #[must_use]
    pub fn is_harmed(self) -> bool {
        self.with.as_secs_f64() > self.plain.as_secs_f64() * (1.0 + TOLERANCE)
    }
}

/// A program and its runs.
#[derive(Clone, Debug)]
pub struct Row {
    /// The program.
    pub program: Program,
    /// The plain run.
    pub plain: Outcome,
    /// The run with default settings.
    pub default: Compared,
    /// The run with eager moves.
    pub eager: Compared,
    /// Times of the busy part, if the script has one.
    pub busy: Option<Busy>,
    /// What a run showed that looked for reasons; only if nothing moved by default.
    pub stays: Seen,
}

impl Row {
    /// Returns true if no run differed.
    #[must_use]
    pub fn is_same(&self) -> bool {
        [&self.default, &self.eager].iter().all(|run| run.verdict == Verdict::Same)
    }
}

/// Returns the rows of all programs, in their order; runs `jobs` programs at a time. `tell` is
/// called with each row.
///
/// # Errors
/// If a run is not possible.
pub fn compare_all(all: Vec<Program>, jobs: usize, tell: impl Fn(&Row) + Sync) -> Result<Vec<Row>> {
    let count = all.len();
    let left = Mutex::new(all.into_iter().enumerate());
    let rows = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = left.lock().ok().and_then(|mut left| left.next());
            let Some((number, program)) = next else { return Ok(()) };
            let (name, about) = (program.name.clone(), program.about.clone());
            eprintln!("── {} of {count}: {name}: {about}", number + 1);
            let row = compare(program).with_context(|| name.clone())?;
            tell(&row);
            if let Ok(mut rows) = rows.lock() {
                rows.push((number, row));
            }
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        all.into_iter()
            .try_for_each(|job| job.join().unwrap_or_else(|_| bail!("a job has panicked")))
    })?;
    let mut rows = rows.into_inner().unwrap_or_default();
    rows.sort_by_key(|(number, _)| *number);
    Ok(rows.into_iter().map(|(_, row)| row).collect())
}

fn compare(program: Program) -> Result<Row> {
    let plain = once(&program, RunMode::Plain, Look::Programs)?;
    let mut default = against(&program, &plain, RunMode::Default)?;
    let eager = against(&program, &plain, RunMode::Eager)?;
    let is_timed = !plain.busy.is_zero() && default.verdict == Verdict::Same;
    let busy = if is_timed { Some(timed(&program, &plain, &mut default)?) } else { None };
    let stays = match (default.outcome.streams, program.note.is_empty()) {
        (0, true) => once(&program, RunMode::Default, Look::Reasons)?.seen,
        _ => Seen::default(),
    };
    Ok(Row { program, plain, default, eager, busy, stays })
}

/// Compares a run with the plain one. A run that differs is made once more.
fn against(program: &Program, plain: &Outcome, way: RunMode) -> Result<Compared> {
    let outcome = once(program, way, Look::Programs)?;
    let Some(first) = difference(plain, &outcome) else {
        return Ok(Compared { outcome, verdict: Verdict::Same });
    };
    eprintln!("   {way:?}: {first}; once more");
    let outcome = once(program, way, Look::Programs)?;
    let verdict = match difference(plain, &outcome) {
        None => Verdict::Unsure(first),
        Some(again) => Verdict::Differs(again),
    };
    Ok(Compared { outcome, verdict })
}

/// Times the busy part in runs that nobody watches, plain ones and others by turns. They have to
/// be the same, too.
fn timed(program: &Program, plain: &Outcome, default: &mut Compared) -> Result<Busy> {
    let mut busy = Busy { plain: Duration::MAX, with: Duration::MAX };
    for round in 0..TIMED_MAX {
        if round >= TIMED && !busy.is_harmed() {
            break;
        }
        busy.plain = busy.plain.min(once(program, RunMode::Plain, Look::Away)?.busy);
        let with = once(program, RunMode::Default, Look::Away)?;
        busy.with = busy.with.min(with.busy);
        if let Some(what) = difference(plain, &with) {
            default.verdict = Verdict::Unsure(what);
        }
    }
    Ok(busy)
}

/// Describes the first difference in a few words; `None` if the runs are the same.
fn difference(plain: &Outcome, with: &Outcome) -> Option<String> {
    let (plain_said, output) = match (&plain.end, &with.end) {
        (End::Hung, _) => return Some("hangs plainly".into()),
        (_, End::Hung) => return Some("hangs".into()),
        (End::Said(plain), End::Said(output)) => (plain, output),
    };
    if !plain_said.ends_with("status 0") {
        let last: Vec<&str> = plain_said.lines().rev().take(4).collect();
        return Some(format!(
            "fails plainly: {}",
            last.into_iter().rev().collect::<Vec<_>>().join(" / ")
        ));
    }
    if plain_said != output {
        let mut pairs = plain_said.lines().zip(output.lines());
        let (plain, output) =
            pairs.find(|(plain, output)| plain != output).unwrap_or(("", "more or less lines"));
        return Some(format!("says {output:?}, plainly {plain:?}"));
    }
    let left = with.left_behind;
    (left > plain.left_behind).then(|| format!("leaves {left} processes behind"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_slower_is_no_harm() {
        let busy = |plain, with| Busy {
            plain: Duration::from_millis(plain),
            with: Duration::from_millis(with),
        };
        assert!(!busy(1000, 1029).is_harmed() && busy(1000, 1031).is_harmed());
        assert!((busy(1000, 500).gain() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_difference_is_told_in_words() {
        let outcome = |text: &str, left_behind| Outcome {
            end: End::Said(text.into()),
            took: Duration::ZERO,
            busy: Duration::ZERO,
            streams: 0,
            seen: Seen::default(),
            left_behind,
        };
        let plain = outcome("a\nb\nstatus 0", 0);
        assert_eq!(difference(&plain, &plain), None);
        let other = difference(&plain, &outcome("a\nc\nstatus 0", 0)).unwrap_or_default();
        assert_eq!(other, "says \"c\", plainly \"b\"");
        let left = difference(&plain, &outcome("a\nb\nstatus 0", 2)).unwrap_or_default();
        assert_eq!(left, "leaves 2 processes behind");
        let failed = outcome("a\nstatus 1", 0);
        assert!(difference(&failed, &failed).is_some());
    }
}
