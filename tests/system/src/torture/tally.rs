//! The counters of disturbances and faults, as a table and as JSON.
//!
//! Not here: the counting (`episode`).

use super::kind::{ALL, Kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// The counters of one kind of disturbance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Number of disturbances.
    pub(super) count: u64,
    /// Number of sessions at the time of each; below, of those that were away.
    pub(super) sessions: u64,
    pub(super) away: u64,
    /// Number of streams made, and of bytes checked, until the next disturbance.
    pub(super) moves: u64,
    pub(super) bytes: u64,
    /// Number of faults found until the next disturbance.
    pub(super) faults: u64,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The seed of the episode.
    pub(super) seed: u64,
    /// The last disturbance before the fault was seen.
    pub(super) after: Kind,
    /// The fault, with the recent history.
    pub(super) what: String,
    /// The longest time in the episode for which the machine has stood still, or has not run this
    /// program. Time limits are exceeded then without a fault of Sojourn's: such a seed has to be
    /// run again, alone.
    pub(super) stood_still: Duration,
}

/// Times below this are a busy machine's, and not told.
const STOOD_STILL: Duration = Duration::from_secs(2);

impl Fault {
    pub(super) fn new(seed: u64, after: Kind, what: String) -> Self {
        Self { seed, after, what, stood_still: Duration::ZERO }
    }

    /// Returns true if the machine may be the only cause.
    pub(super) fn is_unsure(&self) -> bool {
        self.stood_still >= STOOD_STILL
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, stood_still, .. } = self;
        if self.is_unsure() {
            write!(f, "(the machine stood still for {stood_still:.1?}) ")?;
        }
        f.write_str(what)
    }
}

/// All counters.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) rows: BTreeMap<Kind, Row>,
    pub(super) faults: Vec<Fault>,
    pub(super) episodes: u64,
    /// Remote sessions that ended because a server was killed while it held them, which
    /// `docs/understand/moves.md` allows: description and seed.
    pub(super) lost: Vec<String>,
    /// Number of sessions that ended with one of their programs, as they had to.
    pub(super) cut: u64,
    /// Number of sessions that were checked to their last byte in both directions.
    pub(super) whole: u64,
    /// Number of servers that have ended by themselves for want of memory.
    pub(super) starved: u64,
}

impl Tally {
    pub(super) fn row(&mut self, kind: Kind) -> &mut Row {
        self.rows.entry(kind).or_default()
    }

    pub(super) fn sum(&self) -> Row {
        let mut sum = Row::default();
        for row in self.rows.values() {
            sum.count += row.count;
            sum.sessions += row.sessions;
            sum.away += row.away;
            sum.moves += row.moves;
            sum.bytes += row.bytes;
            sum.faults += row.faults;
        }
        sum
    }

    /// Adds the counters of another tally.
    pub(super) fn add(&mut self, other: Self) {
        for (kind, row) in other.rows {
            let own = self.row(kind);
            own.count += row.count;
            own.sessions += row.sessions;
            own.away += row.away;
            own.moves += row.moves;
            own.bytes += row.bytes;
            own.faults += row.faults;
        }
        self.faults.extend(other.faults);
        self.lost.extend(other.lost);
        self.episodes += other.episodes;
        self.cut += other.cut;
        self.whole += other.whole;
        self.starved += other.starved;
    }

    /// Returns a line of progress.
    pub(super) fn line(&self, now: Duration, of: Duration) -> String {
        let sum = self.sum();
        format!(
            "{:>5.0} of {:.0} s: {} episodes, {} disturbances, {} moves, {} MB checked, {} faults",
            now.as_secs_f64(),
            of.as_secs_f64(),
            self.episodes,
            sum.count,
            sum.moves,
            sum.bytes / 1_000_000,
            self.faults.len()
        )
    }

    /// Returns the table, in Markdown, and the faults below it.
    pub(super) fn table(&self) -> String {
        let mut text = String::from(
            "| disturbance | times | sessions there | of them away | moves after it | MB checked after it | faults |\n|---|--:|--:|--:|--:|--:|--:|\n",
        );
        let mut line = |name: &str, row: &Row| {
            let Row { count, sessions, away, moves, bytes, faults } = *row;
            let megabytes = bytes as f64 / 1e6;
            let _ = writeln!(
                text,
                "| {name} | {count} | {sessions} | {away} | {moves} | {megabytes:.1} | {faults} |"
            );
        };
        for kind in ALL {
            if let Some(row) = self.rows.get(&kind) {
                line(kind.name(), row);
            }
        }
        line("**all**", &self.sum());
        let _ = writeln!(
            text,
            "\n{} episodes; {} sessions were checked to their last byte, {} were ended by the end of one of their programs, {} were lost with a killed server; {} servers ended for want of memory.",
            self.episodes,
            self.whole,
            self.cut,
            self.lost.len(),
            self.starved
        );
        for lost in &self.lost {
            let _ = writeln!(text, "lost with a killed server: {lost}");
        }
        for fault in &self.faults {
            let Fault { seed, after, .. } = fault;
            let _ = writeln!(text, "FAULT, seed {seed}, after \"{}\": {fault}", after.name());
        }
        text
    }

    /// Returns the counters as JSON.
    pub(super) fn json(&self) -> Value {
        let row = |kind: &Kind| {
            let row = self.rows.get(kind)?;
            Some(json!({
                "disturbance": kind.name(), "times": row.count, "sessions": row.sessions,
                "away": row.away, "moves": row.moves, "bytes": row.bytes, "faults": row.faults,
            }))
        };
        let fault = |fault: &Fault| {
            json!({
                "seed": fault.seed, "after": fault.after.name(), "what": fault.what,
                "stood_still_ms": fault.stood_still.as_millis() as u64,
            })
        };
        json!({
            "version": 1, "episodes": self.episodes, "whole": self.whole, "cut": self.cut,
            "lost": self.lost, "starved": self.starved,
            "disturbances": ALL.iter().filter_map(row).collect::<Vec<_>>(),
            "faults": self.faults.iter().map(fault).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_in_the_table() {
        let mut one = Tally::default();
        one.row(Kind::Recall).count = 3;
        one.row(Kind::Recall).bytes = 2_500_000;
        let what = "a byte".into();
        let mut other = one.clone();
        other.faults.push(Fault::new(7, Kind::Recall, what));
        one.add(other);
        assert_eq!((one.sum().count, one.sum().bytes), (6, 5_000_000));
        let table = one.table();
        assert!(table.contains("| all sessions sent home once | 6 | 0 | 0 | 0 | 5.0 | 0 |"));
        assert!(table.contains("FAULT, seed 7, after \"all sessions sent home once\": a byte"));
        one.faults[0].stood_still = Duration::from_secs(31);
        assert!(one.table().contains("(the machine stood still for 31.0s) a byte"));
        assert_eq!(one.json()["faults"][0]["seed"], 7);
    }
}
