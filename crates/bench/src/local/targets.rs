//! The targets for sessions on one host, and their judgement from the cells of one run.

use super::measure::Cell;
use super::row::Unit;
use super::way::RunMode;
use crate::targets::TargetResult;

/// Largest additional time of a program's start, in nanoseconds.
const START_UP: f64 = 5e6;

/// Returns the figure of a case in a way; `None` if it was not measured or failed.
pub(super) fn value(cells: &[Cell], case: &str, way: RunMode) -> Option<f64> {
    let fits = |cell: &&Cell| cell.case == case && cell.way == way && cell.error.is_none();
    cells.iter().find(fits).map(|cell| cell.value).filter(|value| *value > 0.0)
}

fn cases(cells: &[Cell]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.error.is_none()) {
        if !names.contains(&cell.case.as_str()) {
            names.push(&cell.case);
        }
    }
    names
}

/// Judges all targets.
pub(super) fn judge(cells: &[Cell]) -> Vec<TargetResult> {
    let at_most = |case: &str, way: RunMode, limit: f64| {
        let target = format!("{case}, {}: at most {limit:.2} x plain", way.title());
        TargetResult::at_most(
            target,
            value(cells, case, way),
            value(cells, case, RunMode::Plain),
            limit,
        )
    };
    let at_least = |case: &str, limit: f64| {
        let target = format!("{case}: at least {limit:.2} x plain");
        let plain = value(cells, case, RunMode::Plain);
        TargetResult::at_least(target, value(cells, case, RunMode::Sojourn), plain, limit)
    };
    let mut targets = Vec::new();
    for command in ["GET", "SET"] {
        targets.push(at_most(&format!("redis-c1 {command}"), RunMode::Sojourn, 0.25));
        targets.push(at_least(&format!("redis-c50 {command}"), 1.8));
    }
    for kind in ["tcp", "tcp6", "unix", "pipe"] {
        let case = |place: &str| format!("{kind}{place} ping-pong 1 B");
        targets.push(at_most(&case(""), RunMode::Sojourn, 0.1));
        targets.push(at_most(&case(""), RunMode::Asleep, 0.9));
        targets.push(at_most(&case("-pinned"), RunMode::Asleep, 0.9));
    }
    for (row, limit) in [("tcp", 3.0), ("tcp6", 3.0), ("pipe", 2.0)] {
        targets.push(at_least(&format!("{row} bulk"), limit));
        targets.push(at_least(&format!("{row}-pinned bulk"), limit));
    }
    targets.extend(["tcp", "unix", "pipe"].into_iter().flat_map(|kind| paces(cells, kind)));
    targets.extend(patterns(cells));
    targets.push(at_least("iperf3", 3.0));
    let real = cases(cells)
        .into_iter()
        .filter(|case| case.starts_with("pgbench") || case.starts_with("nginx"));
    targets.extend(real.map(|case| at_least(case, 1.3)));
    targets.push(at_least("connections", 0.97));
    targets.push(at_most("gzip", RunMode::Sojourn, 1.03));
    targets.push(at_most("dd", RunMode::Sojourn, 1.03));
    targets.push(start_up(cells));
    targets.push(sockmap(cells));
    targets
}

/// Judges calls at a pace: at every pace at most 3 % later than plain, and with at most 1.5 times
/// the processor time in the default way.
fn paces(cells: &[Cell], kind: &str) -> [TargetResult; 2] {
    let row = format!("{kind}-paces");
    let here = |way| cells.iter().filter(move |cell| cell.way == way && cell.error.is_none());
    let worst = |figure: fn(&Cell) -> Option<f64>| {
        let ours = here(RunMode::Sojourn).filter(|cell| cell.row == row);
        let ratio = |cell: &Cell| {
            let plain = here(RunMode::Plain).find(|plain| plain.case == cell.case)?;
            Some(figure(cell)? / figure(plain)?.max(1.0))
        };
        ours.filter_map(ratio).max_by(f64::total_cmp)
    };
    let time = worst(|cell| Some(cell.value));
    let processor_time = worst(|cell| cell.cpu_ns);
    [
        TargetResult::at_most(format!("{row}: at most 1.03 x plain at any"), time, Some(1.0), 1.03),
        TargetResult::at_most(
            format!("{row}: processor time at most 1.50 x plain at any"),
            processor_time,
            Some(1.0),
            1.5,
        ),
    ]
}

/// Judges the ways of real programs: each case at most 3 % slower than plain, waking or asleep.
fn patterns(cells: &[Cell]) -> Vec<TargetResult> {
    let is_one = |cell: &&Cell| super::rows::PATTERNS.contains(&cell.row.as_str());
    let ours = cells.iter().filter(|cell| cell.way.is_ours() && cell.error.is_none());
    let judge = |cell: &Cell| {
        let plain = value(cells, &cell.case, RunMode::Plain);
        let target = format!("{}, {}: ", cell.case, cell.way.title());
        match cell.unit.is_smaller_better() {
            true => TargetResult::at_most(
                target + "at most 1.03 x plain",
                Some(cell.value),
                plain,
                1.03,
            ),
            false => TargetResult::at_least(
                target + "at least 0.97 x plain",
                Some(cell.value),
                plain,
                0.97,
            ),
        }
    };
    ours.filter(is_one).map(judge).collect()
}

fn start_up(cells: &[Cell]) -> TargetResult {
    let target = "start-up of `true`: at most 5 ms more than plain".to_owned();
    let of = |way| value(cells, "start-up of `true`", way);
    match of(RunMode::Sojourn).zip(of(RunMode::Plain)) {
        Some((ours, plain)) => {
            let measured = format!("{:.2} ms more", (ours - plain) / 1e6);
            TargetResult { target, measured, reached: Some(ours - plain <= START_UP) }
        }
        None => TargetResult { target, measured: "not measured".into(), reached: None },
    }
}

/// Returns how many times `a` is as good as `b`.
pub(crate) fn advantage(unit: Unit, a: f64, b: f64) -> f64 {
    if unit.is_smaller_better() { b / a } else { a / b }
}

fn sockmap(cells: &[Cell]) -> TargetResult {
    let target = "better than sockmap everywhere".to_owned();
    let ratio = |case: &&str| {
        let unit = cells.iter().find(|cell| cell.case == *case)?.unit;
        let (ours, theirs) =
            (value(cells, case, RunMode::Sojourn)?, value(cells, case, RunMode::Sockmap)?);
        Some((advantage(unit, ours, theirs), (*case).to_owned()))
    };
    let names = cases(cells);
    let mut ratios: Vec<(f64, String)> = names.iter().filter_map(ratio).collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    match (ratios.first(), ratios.last()) {
        (Some(worst), Some(best)) => TargetResult {
            target,
            measured: format!(
                "{:.2} ({}) to {:.2} ({}) times as good, {} of {} cases",
                worst.0,
                worst.1,
                best.0,
                best.1,
                ratios.iter().filter(|(ratio, _)| *ratio > 1.0).count(),
                ratios.len()
            ),
            reached: Some(worst.0 > 1.0),
        },
        _ => TargetResult { target, measured: "not measured".into(), reached: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(case: &str, way: RunMode, unit: Unit, value: f64) -> Cell {
        Cell {
            row: case.into(),
            case: case.into(),
            way,
            unit,
            value,
            values: vec![value],
            times: None,
            rate: None,
            cpu_ns: None,
            moved: None,
            returned: std::collections::BTreeMap::new(),
            error: None,
        }
    }

    #[test]
    fn better_is_smaller_times_and_larger_rates() {
        let cells = [
            cell("a", RunMode::Sojourn, Unit::Ns, 10.0),
            cell("a", RunMode::Sockmap, Unit::Ns, 20.0),
            cell("b", RunMode::Sojourn, Unit::PerS, 10.0),
            cell("b", RunMode::Sockmap, Unit::PerS, 20.0),
        ];
        let verdict = sockmap(&cells);
        assert_eq!(verdict.reached, Some(false));
        assert!(verdict.measured.starts_with("0.50 (b) to 2.00 (a)"), "{}", verdict.measured);
    }

    #[test]
    fn a_start_is_judged_by_the_difference() {
        let name = "start-up of `true`";
        let of = |ours: f64| {
            let plain = cell(name, RunMode::Plain, Unit::Ns, 1e6);
            start_up(&[plain, cell(name, RunMode::Sojourn, Unit::Ns, ours)]).reached
        };
        assert_eq!((of(5.9e6), of(6.1e6)), (Some(true), Some(false)));
        assert_eq!(start_up(&[]).reached, None);
    }

    #[test]
    fn the_ways_of_real_programs_are_judged_in_each_way() {
        let cells = [
            cell("puma", RunMode::Plain, Unit::PerS, 100.0),
            cell("puma", RunMode::Sojourn, Unit::PerS, 98.0),
            cell("puma", RunMode::Asleep, Unit::PerS, 90.0),
            cell("zeromq", RunMode::Plain, Unit::Ns, 100.0),
            cell("zeromq", RunMode::Sojourn, Unit::Ns, 104.0),
        ];
        let found: Vec<_> = patterns(&cells).into_iter().map(|one| one.reached).collect();
        assert_eq!(found, [Some(true), Some(false), Some(false)]);
    }

    #[test]
    fn what_failed_is_no_success() {
        let mut ours = cell("connections", RunMode::Sojourn, Unit::PerS, 2.0);
        ours.error = Some("late".into());
        let cells = [cell("connections", RunMode::Plain, Unit::PerS, 1.0), ours];
        let found = judge(&cells).into_iter().find(|one| one.target.starts_with("connections"));
        assert_eq!(found.unwrap().reached, None);
    }
}
