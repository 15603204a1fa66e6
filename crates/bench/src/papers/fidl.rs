//! The cost of stubs: *Component Interfaces in a Microkernel-based System* (2000), table 1 and
//! figure 5.

use super::model::{Crossing, Curve, Line, Measure, Point, Section, Side, Today, Unit, times};
use super::published::{FIDL_2000, read};
use crate::idl::{self, Paper};
use crate::os;

/// The paper's rows, today's row of each, and its sentence.
const ROWS: [(&str, Option<&str>, &str); 4] = [
    ("rpcgen", Some("rpcgen / XDR, C"), "rpcgen’s stubs, live: XDR into memory and back."),
    ("Flick", None, "Published only: Flick is not run today."),
    ("FIDL", Some("sojourn-idl, C"), "The stubs that sojourn-idl makes, in C."),
    ("hand coded", Some("hand-coded, C"), "Stubs in C written by hand for this one function."),
];

const HOW: &str = "The benchmark idl: a call of func([in] int a, [in] int b, [in, size_is(20)] char *c) is \
    marshalled, unmarshalled, carried out and answered in memory; all rows take turns, nobody waits for \
    anybody, so there is one figure. The paper counted the marshalling alone. Cycles are those of the \
    time-stamp counter. The figure: whole calls between two spinning processes by bytes of the argument, \
    copied byte by byte into the message, copied at once (memcpy), or referred to (a string item).";

/// The curves of the figure: the benchmark's name and the page's name of each.
const CURVES: [(&str, &str); 4] = [
    (idl::LOOPED, "loop"),
    (idl::COPIED, "memcpy"),
    (idl::REFERRED, "reference"),
    ("sojourn, grant (no copy)", "grant (no copy)"),
];

pub(crate) fn section(quick: bool) -> anyhow::Result<Section> {
    Ok(made(&idl::paper(quick)?, os::cycles_per_ns()))
}

/// Makes the section from its figures.
fn made(paper: &Paper, cycles_per_ns: f64) -> Section {
    let table = read(FIDL_2000);
    let cycles = |row: &str| {
        let found = paper.marshalling.iter().find(|cell| cell.row == row && cell.ns > 0.0);
        found.map(|cell| cell.ns * cycles_per_ns)
    };
    // Marshalling does not wait, so there is one figure for spinning and sleeping.
    let today = |row: &str| Today { sleeping: Vec::new(), spinning: vec![cycles(row)] };
    let base = ROWS.len() - 1;
    let line = |(name, row, says): (&str, Option<&str>, &str)| {
        let at = (0..table.len()).find(|at| table.word(*at, "idl_compiler") == name);
        let is_missing = row.is_some_and(|row| cycles(row).is_none());
        Line {
            name: name.to_owned(),
            published: vec![at.and_then(|at| table.number(at, "marshalling_cycles"))],
            today: row.map(today),
            says: if is_missing {
                format!("{says} Not built in this run.")
            } else {
                says.to_owned()
            },
            base,
        }
    };
    let mut lines: Vec<Line> = ROWS.into_iter().map(line).collect();
    let rust = lines.len();
    for (name, row, base, says) in [
        (
            "FIDL, in Rust (today only)",
            "sojourn-idl, Rust",
            rust + 1,
            "The stubs that sojourn-idl makes, in Rust; base: by hand in Rust.",
        ),
        (
            "hand coded, in Rust (today only)",
            "hand-coded, Rust",
            rust + 1,
            "Stubs in Rust written by hand.",
        ),
    ] {
        let (name, says, published) = (name.to_owned(), says.to_owned(), Vec::new());
        lines.push(Line { name, published, today: Some(today(row)), says, base });
    }
    let mut section = Section {
        key: "fidl",
        title: "FIDL 2000: the cost of stubs",
        paper: "Reuther, Uhlig, Aigner: Component Interfaces in a Microkernel-based System (2000), table 1 and figure 5.",
        how: HOW.to_owned(),
        measures: vec![Measure::new("a call marshalled", "cycles", Unit::Cycles)],
        lines,
        is_unwaited: true,
        curves: curves(paper),
        crossing: paper
            .crossover
            .map(|size| Crossing { bytes: size as f64, says: CROSSING.to_owned() }),
        ..Section::default()
    };
    section.answer = answer(&section, paper, rust);
    section.gist = format!(
        "generated stubs cost {} times hand-written ones (FIDL {})",
        times(section.ratio_at(2, Side::Spinning, 0)),
        times(section.ratio_at(2, Side::Published, 0)),
    );
    section
}

const CROSSING: &str = "from there on referring was never slower than memcpy";

fn curves(paper: &Paper) -> Vec<Curve> {
    let curve = |(row, name): (&str, &str)| {
        let cells = paper.calls.iter().filter(|cell| cell.style == row && cell.ns > 0.0);
        let points = cells.map(|cell| Point { bytes: cell.size as f64, ns: cell.ns });
        let points: Vec<Point> = points.collect();
        (!points.is_empty()).then(|| Curve { name: name.to_owned(), points })
    };
    CURVES.into_iter().filter_map(curve).collect()
}

fn answer(section: &Section, paper: &Paper, rust: usize) -> String {
    let of = |line, side| times(section.ratio_at(line, side, 0));
    let crossing = match paper.crossover {
        Some(size) => {
            format!("referring to an argument wins from {} on", crate::table::bytes(size))
        }
        None => "referring to an argument never won over copying it".to_owned(),
    };
    format!(
        "Generated stubs cost {} times hand-written ones in C and {} in Rust (FIDL: {}), rpcgen’s {} times \
         ({}); {crossing}.",
        of(2, Side::Spinning),
        of(rust, Side::Spinning),
        of(2, Side::Published),
        of(0, Side::Spinning),
        of(0, Side::Published),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_not_built_says_so() {
        let paper = Paper { marshalling: Vec::new(), calls: Vec::new(), crossover: None };
        let section = made(&paper, 2.0);
        assert!(section.lines[0].says.ends_with("Not built in this run."));
        assert!(section.lines[1].today.is_none());
        assert!((section.ratio_at(0, Side::Published, 0).unwrap() - 3275.0 / 161.0).abs() < 1e-9);
        assert!(section.answer.contains("never won"), "{}", section.answer);
    }
}
