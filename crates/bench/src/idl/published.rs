//! The published figures: Reuther, Uhlig, Aigner, "Component Interfaces in a Microkernel-based
//! System" (2000), table 1, processor cycles to marshal the paper's function. Only ratios can be
//! compared with those of today's processors.

use anyhow::{Context as _, Result};
use serde::Serialize;

/// The table, tab-separated, below a line that names its source and a line that names its columns.
const TABLE: &str = include_str!("../../data/fidl_2000.tsv");

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Published {
    /// The compiler.
    pub(crate) system: String,
    /// Cycles to marshal.
    pub(crate) cycles: f64,
    /// Cycles to marshal over those of hand-coded stubs.
    pub(crate) times_hand: f64,
}

/// Parses all lines, in the paper's order.
pub(super) fn table() -> Result<Vec<Published>> {
    let parse = |line: &str| -> Result<(String, f64)> {
        let (system, cycles) = line.split_once('\t').context("a line without a tab")?;
        Ok((system.into(), cycles.trim().parse()?))
    };
    let lines = TABLE.lines().skip(2).map(parse).collect::<Result<Vec<_>>>()?;
    let hand = lines.iter().find(|(system, _)| system == "hand coded");
    let hand = hand.context("no line of hand-coded stubs")?.1;
    let line = |(system, cycles)| Published { system, cycles, times_hand: cycles / hand };
    Ok(lines.into_iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_paper_says_what_it_says() {
        let table = super::table().unwrap();
        let ratio = |name: &str| table.iter().find(|p| p.system == name).unwrap().times_hand;
        assert!((ratio("rpcgen") - 20.34).abs() < 0.01);
        assert!((ratio("FIDL") - 1.54).abs() < 0.01);
    }
}
