//! Tests of the conversion of samples to cells.

use super::*;
use crate::local::row::Sample;
use anyhow::Result;

struct Nothing;

impl Row for Nothing {
    fn name(&self) -> String {
        "nothing".into()
    }

    fn group(&self) -> &'static str {
        "none"
    }

    fn ways(&self) -> &'static [Stacks] {
        &[Stacks::Kernel, Stacks::Client]
    }

    fn turn(&self, _: &World, _: Stacks, _: Duration) -> Result<Vec<Measured>> {
        Ok(Vec::new())
    }
}

fn measured(value: f64, wait: Wait, away: Option<f64>) -> Measured {
    Measured { sample: Sample::new("case", Unit::Ns, value, 1.0), wait, away }
}

fn cells(samples: Vec<Measured>, error: Option<&str>) -> Vec<Cell> {
    let error = error.map(str::to_owned);
    Lane { way: Stacks::Client, samples, returned: Returns::new(), error }.cells(&Nothing)
}

#[test]
fn columns_are_apart_and_figures_are_medians() {
    let of = |value, wait| measured(value, wait, Some(1.0));
    let all = cells(
        vec![
            of(1.0, Wait::Blocking),
            of(9.0, Wait::Spinning),
            of(5.0, Wait::Blocking),
            of(2.0, Wait::Blocking),
        ],
        None,
    );
    let figures: Vec<_> = all.iter().map(|cell| (cell.wait, cell.value)).collect();
    assert_eq!(figures, [(Wait::Blocking, 2.0), (Wait::Spinning, 9.0)]);
}

#[test]
fn one_round_in_the_kernel_spoils_the_figure() {
    let of = |away| measured(1.0, Wait::Default, Some(away));
    assert!(cells(vec![of(1.0), of(1.0)], None)[0].counts());
    assert!(!cells(vec![of(1.0), of(0.5)], None)[0].counts());
}

#[test]
fn what_failed_is_a_cell_with_the_reason() {
    let all = cells(Vec::new(), Some("no such program"));
    assert_eq!(all[0].error.as_deref(), Some("no such program"));
    assert!(!all[0].counts());
}
