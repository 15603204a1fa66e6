//! What was done and found: counted, as a table, as JSON.
//!
//! Not who counts (`episode`).

use super::kind::{ALL, Kind};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// What came of one kind of disturbance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// How often.
    pub(super) count: u64,
    /// Sessions that were there when it came, and of them those that were away.
    pub(super) sessions: u64,
    pub(super) away: u64,
    /// Streams that were made, and bytes that were checked, from then until the next one.
    pub(super) moves: u64,
    pub(super) bytes: u64,
    /// Faults that were found until the next one.
    pub(super) faults: u64,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The episode's seed.
    pub(super) seed: u64,
    /// The disturbance after which it was seen.
    pub(super) after: Kind,
    /// What was going on, and what is wrong.
    pub(super) what: String,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    pub(super) rows: BTreeMap<Kind, Row>,
    pub(super) faults: Vec<Fault>,
    pub(super) episodes: u64,
    /// Sessions with another host that ended with a server that was killed while it had them in its
    /// hands, as `docs/understand/moves.md` says: what and where.
    pub(super) lost: Vec<String>,
    /// Sessions that were ended by the end of one of their programs, as they had to be.
    pub(super) cut: u64,
    /// Sessions with every byte of both directions, to their end.
    pub(super) whole: u64,
    /// Servers that have ended by themselves for want of memory.
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

    /// Adds what another one has counted.
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

    /// One line for who waits.
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

    /// The table, in Markdown, and the faults below.
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
            let Fault { seed, after, what } = fault;
            let _ = writeln!(text, "FAULT, seed {seed}, after \"{}\": {what}", after.name());
        }
        text
    }

    /// The same for programs.
    pub(super) fn json(&self) -> Value {
        let row = |kind: &Kind| {
            let row = self.rows.get(kind)?;
            Some(json!({
                "disturbance": kind.name(), "times": row.count, "sessions": row.sessions,
                "away": row.away, "moves": row.moves, "bytes": row.bytes, "faults": row.faults,
            }))
        };
        let fault = |fault: &Fault| json!({"seed": fault.seed, "after": fault.after.name(), "what": fault.what});
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
        other.faults.push(Fault { seed: 7, after: Kind::Recall, what });
        one.add(other);
        assert_eq!((one.sum().count, one.sum().bytes), (6, 5_000_000));
        let table = one.table();
        assert!(table.contains("| all sessions sent home once | 6 | 0 | 0 | 0 | 5.0 | 0 |"));
        assert!(table.contains("FAULT, seed 7"), "{table}");
        assert_eq!(one.json()["faults"][0]["seed"], 7);
    }
}
