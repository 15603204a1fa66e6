//! The targets for stubs, and their judgement from the cells of one run.

use super::cases::Case;
use super::codec::{Kind, Language};
use super::measure::Cell;
use crate::targets::TargetResult;

/// Judges all targets.
pub(super) fn judge(cells: &[Cell]) -> Vec<TargetResult> {
    let mut targets = Vec::new();
    for case in Case::ALL {
        for language in [Language::Rust, Language::C] {
            targets.push(beside_hand(cells, case, language));
        }
    }
    for case in Case::ALL {
        for language in [Language::Rust, Language::C] {
            targets.push(beside_rpcgen(cells, case, language));
        }
    }
    let mut rivals: Vec<&str> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.kind == Kind::Rival) {
        if !rivals.contains(&cell.row.as_str()) {
            rivals.push(&cell.row);
        }
    }
    targets.extend(rivals.into_iter().map(|rival| beside_rival(cells, rival)));
    targets
}

fn find(cells: &[Cell], case: Case, fits: impl Fn(&Cell) -> bool) -> Option<f64> {
    let found = cells.iter().filter(|cell| cell.case == case && fits(cell)).map(|cell| cell.ns);
    found.min_by(f64::total_cmp)
}

fn beside_hand(cells: &[Cell], case: Case, language: Language) -> TargetResult {
    let target = format!("{}, {language:?}: at most 1.10 x hand-coded", case.title());
    let of = |kind| find(cells, case, |cell| cell.kind == kind && cell.language == language);
    TargetResult::at_most(target, of(Kind::Ours), of(Kind::Hand), 1.10)
}

fn beside_rpcgen(cells: &[Cell], case: Case, language: Language) -> TargetResult {
    let target = format!("{}, {language:?}: at least 4 x faster than rpcgen", case.title());
    let ours = find(cells, case, |cell| cell.kind == Kind::Ours && cell.language == language);
    TargetResult::at_least(target, find(cells, case, |cell| cell.kind == Kind::Rpcgen), ours, 4.0)
}

fn beside_rival(cells: &[Cell], rival: &str) -> TargetResult {
    let target = format!("faster than {rival}, in every case");
    let ratio = |case: Case| {
        let ours = find(cells, case, |c| c.kind == Kind::Ours && c.language == Language::Rust)?;
        let theirs = find(cells, case, |cell| cell.row == rival)?;
        Some((theirs / ours, case))
    };
    let ratios: Vec<(f64, Case)> = Case::ALL.into_iter().filter_map(ratio).collect();
    let worst = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0));
    let best = ratios.iter().max_by(|a, b| a.0.total_cmp(&b.0));
    match (worst, best) {
        (Some(worst), Some(best)) => TargetResult {
            target,
            measured: format!(
                "{:.2} ({}) to {:.2} ({}) times as fast",
                worst.0,
                worst.1.title(),
                best.0,
                best.1.title()
            ),
            reached: Some(worst.0 > 1.0),
        },
        _ => TargetResult { target, measured: "not measured".into(), reached: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(row: &str, kind: Kind, language: Language, ns: f64) -> Cell {
        let case = Case::Paper;
        Cell { row: row.into(), kind, language, case, ns, p50_ns: ns, p99_ns: ns }
    }

    #[test]
    fn languages_are_not_mixed_beside_hand() {
        let cells = [
            cell("hand", Kind::Hand, Language::Rust, 10.0),
            cell("hand", Kind::Hand, Language::C, 5.0),
            cell("ours", Kind::Ours, Language::Rust, 10.5),
            cell("ours", Kind::Ours, Language::C, 6.0),
            cell("rpcgen", Kind::Rpcgen, Language::C, 41.0),
        ];
        let paper = Case::Paper;
        assert_eq!(beside_hand(&cells, paper, Language::Rust).reached, Some(true));
        assert_eq!(beside_hand(&cells, paper, Language::C).reached, Some(false));
        assert_eq!(beside_rpcgen(&cells, paper, Language::C).reached, Some(true));
        assert_eq!(beside_rpcgen(&cells, paper, Language::Rust).reached, Some(false));
        assert_eq!(beside_rpcgen(&cells, Case::Tree, Language::C).reached, None);
    }
}
