//! The targets for the IPC, and their judgement from the cells of one run.

use super::measure::{Cell, ITEM, of_mode};
use super::report::{fastest, megabytes_per_s};
use super::row::{Kind, Mode};
use crate::table::bytes;
use crate::targets::TargetResult;

/// Sizes that count as a short call: an empty request, and one that fills most of a message's own
/// lines.
const SHORT: [usize; 2] = [0, 64];

/// Judges all targets.
pub(super) fn judge(round_trips: &[Cell], bandwidth: &[Cell]) -> Vec<TargetResult> {
    let mut targets = short_calls(round_trips);
    targets.extend(large_items(bandwidth));
    targets.extend(rivals(round_trips));
    targets
}

fn short_calls(cells: &[Cell]) -> Vec<TargetResult> {
    let judge = |mode: Mode, size: usize| {
        let (limit, floor) = match mode {
            Mode::SpinTwo => (2.0, "cache-line ping-pong"),
            _ => (1.15, "bare futex ping-pong"),
        };
        let target = format!("call of {size} B, {}: at most {limit:.2} x {floor}", mode.title());
        let ours = fastest(of_mode(cells, mode), Kind::Ours, size);
        TargetResult::at_most(target, ours, fastest(of_mode(cells, mode), Kind::Floor, 0), limit)
    };
    Mode::ALL.into_iter().flat_map(|mode| SHORT.map(|size| judge(mode, size))).collect()
}

fn large_items(cells: &[Cell]) -> Vec<TargetResult> {
    let best = |mode: Mode, one_way: bool, fits: &dyn Fn(&Cell) -> bool| {
        let cells = of_mode(cells, mode).filter(|c| c.one_way == one_way && c.ns > 0.0 && fits(c));
        cells.map(megabytes_per_s).max_by(f64::total_cmp)
    };
    let judge = |mode: Mode, one_way: bool| {
        let how = if one_way { "one way" } else { "as calls" };
        let target = format!(
            "{} KiB items {how}, {}: at least 3 x a pipe's bandwidth",
            ITEM >> 10,
            mode.title()
        );
        let ours = best(mode, one_way, &|cell| cell.kind == Kind::Ours);
        let pipe = best(mode, one_way, &|cell| cell.row.starts_with("pipe"));
        TargetResult::at_least(target, ours, pipe, 3.0)
    };
    let both = |mode| [true, false].map(|one_way| judge(mode, one_way));
    Mode::ALL.into_iter().flat_map(both).collect()
}

/// A placement of both sides, with its modes.
struct PlacementModes {
    title: &'static str,
    modes: &'static [Mode],
}

/// Within one placement, each rival is judged in its fastest mode.
const PLACES: [PlacementModes; 2] = [
    PlacementModes { title: "two processors", modes: &[Mode::SpinTwo, Mode::BlockTwo] },
    PlacementModes { title: "same processor", modes: &[Mode::BlockOne] },
];

/// Compares each rival, in its own best mode at each size, with Sojourn in its best mode at that
/// size.
fn rivals(cells: &[Cell]) -> Vec<TargetResult> {
    let mut names: Vec<(&str, Kind)> = Vec::new();
    for cell in cells {
        let rival = matches!(cell.kind, Kind::Rival | Kind::RivalInPlace);
        if rival && !names.iter().any(|(name, _)| *name == cell.row) {
            names.push((&cell.row, cell.kind));
        }
    }
    let both = |(name, kind)| PLACES.map(|place| beside(cells, name, kind, &place));
    names.into_iter().flat_map(both).collect()
}

fn beside(cells: &[Cell], name: &str, kind: Kind, place: &PlacementModes) -> TargetResult {
    let target = format!("faster than {name} in its own best mode, {}", place.title);
    let ours = if kind == Kind::RivalInPlace { Kind::OursInPlace } else { Kind::Ours };
    let here = |cell: &&Cell| place.modes.contains(&cell.mode) && cell.ns > 0.0;
    let theirs = |cell: &&Cell| cell.row == name && here(cell);
    let mut sizes: Vec<usize> = cells.iter().filter(theirs).map(|cell| cell.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let ratio = |&size: &usize| {
        let own = fastest(cells.iter().filter(here), ours, size)?;
        let rival = cells.iter().filter(theirs).filter(|cell| cell.size == size);
        let rival = rival.map(|cell| cell.ns).min_by(f64::total_cmp)?;
        Some((rival / own, size))
    };
    let ratios: Vec<(f64, usize)> = sizes.iter().filter_map(ratio).collect();
    let worst = ratios.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0));
    let best = ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0));
    match (worst, best) {
        (Some(worst), Some(best)) => TargetResult {
            target,
            measured: format!(
                "{:.2} (at {}) to {:.2} (at {}) times as fast, {} of {} sizes",
                worst.0,
                bytes(worst.1),
                best.0,
                bytes(best.1),
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

    fn cell(row: &str, kind: Kind, mode: Mode, size: usize, ns: f64) -> Cell {
        Cell {
            row: row.into(),
            kind,
            mode,
            size,
            one_way: false,
            ns,
            p50_ns: ns,
            p99_ns: ns,
            cpu_ns: ns,
            rounds: 1,
            error: None,
        }
    }

    #[test]
    fn a_rival_counts_in_its_own_best_mode() {
        let cells = [
            cell("sojourn", Kind::Ours, Mode::SpinTwo, 0, 200.0),
            cell("sojourn", Kind::Ours, Mode::BlockOne, 0, 5000.0),
            cell("slow", Kind::Rival, Mode::SpinTwo, 0, 9000.0),
            cell("slow", Kind::Rival, Mode::BlockTwo, 0, 400.0),
            cell("slow", Kind::Rival, Mode::BlockOne, 0, 4000.0),
            cell("fast", Kind::Rival, Mode::SpinTwo, 0, 100.0),
        ];
        let verdicts: Vec<_> = rivals(&cells).into_iter().map(|r| r.reached).collect();
        assert!(rivals(&cells)[0].measured.starts_with("2.00"));
        assert_eq!(verdicts, [Some(true), Some(false), Some(false), None]);
    }

    #[test]
    fn the_floor_is_that_of_the_same_mode() {
        let cells = [
            cell("floor: ping-pong", Kind::Floor, Mode::SpinTwo, 0, 100.0),
            cell("floor: ping-pong", Kind::Floor, Mode::BlockOne, 0, 4000.0),
            cell("sojourn", Kind::Ours, Mode::SpinTwo, 0, 250.0),
            cell("sojourn", Kind::Ours, Mode::BlockOne, 0, 4400.0),
        ];
        let verdict = |title: &str| {
            let targets = short_calls(&cells);
            let found =
                targets.iter().find(|r| r.target.contains(title) && r.target.contains(" 0 B"));
            found.unwrap().reached
        };
        assert_eq!(verdict("spinning, two"), Some(false));
        assert_eq!(verdict("blocking, same"), Some(true));
        assert_eq!(verdict("blocking, two"), None);
    }
}
