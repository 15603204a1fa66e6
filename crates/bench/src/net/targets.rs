//! The targets for sessions between two hosts, and their judgement from the cells of one run.

use std::fmt;

use super::measure::Cell;
use super::rows::USUAL_GAP;
use super::way::{Stacks, Wait};
use crate::local::targets::advantage;
use crate::table::duration;
use crate::targets::TargetResult;

/// The condition on a figure, relative to the kernel's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Target {
    /// At most this multiple.
    AtMost(f64),
    /// At least this multiple.
    AtLeast(f64),
    /// At most this many nanoseconds more.
    MoreBy(f64),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(limit) => write!(f, "<= {limit:.2}"),
            Self::AtLeast(limit) => write!(f, ">= {limit:.2}"),
            Self::MoreBy(limit) => write!(f, "+ {}", duration(*limit)),
        }
    }
}

/// The largest multiples of the kernel's time that a round trip may take.
struct Limits {
    /// Of the spinning kernel's.
    spinning: f64,
    /// Of the blocking kernel's.
    blocking: f64,
}

fn limits(way: Stacks) -> Limits {
    match way {
        Stacks::Port => Limits { spinning: 1.0, blocking: 0.2 },
        _ => Limits { spinning: 0.75, blocking: 0.15 },
    }
}

/// Returns the target of a figure against the kernel's in the same way of waiting, if there is one.
pub(super) fn target(cell: &Cell) -> Option<Target> {
    if !cell.way.is_ours() || cell.way.is_compared() {
        return None;
    }
    match (cell.row.as_str(), cell.wait) {
        ("bulk-out" | "bulk-in", _) => Some(Target::AtLeast(1.2)),
        ("loss-1%", _) => Some(Target::AtLeast(0.95)),
        ("stall", _) if cell.case == USUAL_GAP => Some(Target::MoreBy(1e6)),
        ("redis-c50", _) => Some(Target::AtLeast(1.5)),
        (_, Wait::Settled) => Some(Target::AtLeast(0.97)),
        (_, Wait::Spinning) => Some(Target::AtMost(limits(cell.way).spinning)),
        _ => None,
    }
}

/// Returns the figure of a case, if it counts.
fn value(cells: &[Cell], case: &str, way: Stacks, wait: Wait) -> Option<f64> {
    let fits = |cell: &&Cell| cell.case == case && cell.way == way && cell.wait == wait;
    cells.iter().find(fits).filter(|cell| cell.counts()).map(|cell| cell.value)
}

/// Judges all targets.
pub(super) fn judge(cells: &[Cell]) -> Vec<TargetResult> {
    let mut targets = Vec::new();
    for cell in cells {
        let Some(target) = target(cell) else { continue };
        let ours = value(cells, &cell.case, cell.way, cell.wait);
        let of = |wait| value(cells, &cell.case, Stacks::Kernel, wait);
        let name = format!("{}, {}", cell.case, cell.way.title());
        match target {
            Target::AtMost(limit) => {
                let text = |waits, limit| format!("{name}: at most {limit:.2} x {waits} kernel");
                let spinning = text("spinning", limit);
                targets.push(TargetResult::at_most(spinning, ours, of(Wait::Spinning), limit));
                let limit = limits(cell.way).blocking;
                let blocking = text("blocking", limit);
                targets.push(TargetResult::at_most(blocking, ours, of(Wait::Blocking), limit));
            }
            Target::AtLeast(limit) => {
                let text = format!("{name}: at least {limit:.2} x kernel");
                targets.push(TargetResult::at_least(text, ours, of(cell.wait), limit));
            }
            Target::MoreBy(limit) => {
                let target = format!("{name}: at most {} more than kernel", duration(limit));
                let more = ours.zip(of(cell.wait)).map(|(ours, theirs)| (ours - theirs).max(0.0));
                let measured = more.map_or("not measured".into(), duration);
                targets.push(TargetResult {
                    target,
                    measured,
                    reached: more.map(|more| more <= limit),
                });
            }
        }
    }
    targets.extend([Stacks::Smoltcp, Stacks::Gvisor].map(|rival| beaten(cells, rival)));
    targets
}

/// Judges the target that Sojourn on the client's side is better wherever the rival on that side
/// was measured.
fn beaten(cells: &[Cell], rival: Stacks) -> TargetResult {
    let target = format!("better than {} everywhere", rival.title());
    let theirs = cells.iter().filter(|cell| cell.way == rival && cell.counts());
    let ratio = |cell: &Cell| {
        let ours = value(cells, &cell.case, Stacks::Client, cell.wait)?;
        Some((advantage(cell.unit, ours, cell.value), format!("{}, {:?}", cell.case, cell.wait)))
    };
    let mut ratios: Vec<(f64, String)> = theirs.filter_map(ratio).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(worst), Some(best)) = (ratios.first(), ratios.last()) else {
        return TargetResult { target, measured: "not measured".into(), reached: None };
    };
    let better = ratios.iter().filter(|(ratio, _)| *ratio > 1.0).count();
    let measured = format!(
        "{:.2} ({}) to {:.2} ({}) times as good, {better} of {} cases",
        worst.0,
        worst.1,
        best.0,
        best.1,
        ratios.len()
    );
    TargetResult { target, measured, reached: Some(worst.0 > 1.0) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::row::Unit;

    fn cell(row: &str, way: Stacks, wait: Wait, unit: Unit, value: f64) -> Cell {
        Cell {
            group: "group".into(),
            row: row.into(),
            case: row.into(),
            way,
            wait,
            unit,
            value,
            values: vec![value],
            times: None,
            rate: None,
            cpu_ns: None,
            away: way.is_ours().then_some(1.0),
            returned: std::collections::BTreeMap::new(),
            error: None,
        }
    }

    #[test]
    fn a_spinning_round_trip_is_judged_twice() {
        let of = |way, wait, value| cell("tcp-rtt-1", way, wait, Unit::Ns, value);
        let cells = [
            of(Stacks::Kernel, Wait::Blocking, 100.0),
            of(Stacks::Kernel, Wait::Spinning, 20.0),
            of(Stacks::Client, Wait::Blocking, 90.0),
            of(Stacks::Client, Wait::Spinning, 15.0),
            of(Stacks::Port, Wait::Spinning, 19.0),
        ];
        let verdicts: Vec<_> = judge(&cells).iter().map(|one| one.reached).collect();
        assert_eq!(verdicts, [Some(true), Some(true), Some(true), Some(true), None, None]);
    }

    #[test]
    fn a_move_may_take_a_millisecond() {
        let of = |way, value| {
            let case = USUAL_GAP.into();
            Cell { case, ..cell("stall", way, Wait::Default, Unit::Ns, value) }
        };
        let verdict = |ours| judge(&[of(Stacks::Kernel, 5e5), of(Stacks::Client, ours)])[0].reached;
        assert_eq!([1e5, 1.5e6, 1.6e6].map(verdict), [Some(true), Some(true), Some(false)]);
    }

    #[test]
    fn what_was_not_away_reaches_nothing() {
        let mut ours = cell("bulk-out", Stacks::Client, Wait::Default, Unit::BytesPerS, 9.0);
        let kernel = cell("bulk-out", Stacks::Kernel, Wait::Default, Unit::BytesPerS, 1.0);
        assert_eq!(judge(&[kernel.clone(), ours.clone()])[0].reached, Some(true));
        ours.away = Some(0.5);
        assert_eq!(judge(&[kernel, ours])[0].reached, None);
    }

    #[test]
    fn a_rival_that_wins_once_is_not_beaten() {
        let of = |row, way, value| cell(row, way, Wait::Blocking, Unit::Ns, value);
        let cells = [
            of("a", Stacks::Client, 10.0),
            of("a", Stacks::Smoltcp, 20.0),
            of("b", Stacks::Client, 10.0),
            of("b", Stacks::Smoltcp, 9.0),
        ];
        let verdict = beaten(&cells, Stacks::Smoltcp);
        assert_eq!(verdict.reached, Some(false));
        assert!(verdict.measured.contains("1 of 2"), "{}", verdict.measured);
    }
}
