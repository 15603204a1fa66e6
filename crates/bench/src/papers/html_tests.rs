//! Compares the page of a synthetic report with a reviewed file. After an intended change, run with
//! `SOJOURN_BLESS=1` and review the difference.

use super::*;
use crate::machine::Machine;
use crate::papers::model::{Crossing, Curve, Point, Today};

const GOLDEN: &str = "src/papers/golden.html";

fn line(name: &str, published: [Option<f64>; 2], today: Option<Today>, says: &str) -> Line {
    Line { name: name.into(), published: published.into(), today, says: says.into(), base: 0 }
}

fn report() -> Report {
    let today = |ns, rate| Today {
        sleeping: vec![Some(ns), Some(rate)],
        spinning: vec![Some(ns / 10.0), None],
    };
    let pipes = Section {
        key: "pipes",
        title: "Pipes & more",
        paper: "A paper <of 1997>.",
        answer: "It takes 0.50 times as long.".into(),
        gist: "half as long (1.10)".into(),
        how: "By ping-pong.".into(),
        measures: vec![
            Measure::new("latency", "µs", Unit::Ns),
            Measure::new("throughput", "MB/s", Unit::BytesPerS),
        ],
        lines: vec![
            line("kernel", [Some(29.0), Some(41.0)], Some(today(8_000.0, 2e9)), "The base."),
            line("stream", [Some(32.0), None], Some(today(4_000.0, 9e8)), "Ours."),
            line("server", [Some(850.0), Some(5.0)], None, "Not built yet."),
        ],
        notes: vec!["one row failed: no such file".into()],
        ..Section::default()
    };
    let points = |ns: [f64; 2]| {
        [16.0, 65536.0].into_iter().zip(ns).map(|(bytes, ns)| Point { bytes, ns }).collect()
    };
    let stubs = Section {
        key: "fidl",
        title: "Stubs",
        paper: "Another.",
        answer: "Referring wins.".into(),
        how: "In memory.".into(),
        measures: vec![Measure::new("call", "cycles", Unit::Cycles)],
        lines: vec![line("hand", [Some(161.0), None], None, "No equal.")],
        curves: vec![
            Curve { name: "memcpy".into(), points: points([100.0, 5000.0]) },
            Curve { name: "reference".into(), points: points([200.0, 3000.0]) },
        ],
        crossing: Some(Crossing { bytes: 4096.0, says: "they cross".into() }),
        ..Section::default()
    };
    let machine = Machine {
        processor: "A processor".into(),
        processors: 2,
        kernel: "6.18".into(),
        load: 0.1,
        rivals: true,
    };
    let sections = vec![stubs, pipes];
    Report { machine, quick: false, load_after: 0.9, seconds: 421.3, sections }
}

#[test]
fn the_page_is_as_it_was_looked_at() {
    let page = page(&report());
    if std::env::var_os("SOJOURN_BLESS").is_some() {
        std::fs::write(GOLDEN, &page).unwrap();
    }
    let golden = std::fs::read_to_string(GOLDEN).unwrap();
    let differs = page.lines().zip(golden.lines()).find(|(now, then)| now != then);
    assert!(page == golden, "SOJOURN_BLESS=1 writes it anew; first difference: {differs:?}");
}

#[test]
fn rows_without_an_equal_have_no_figure_of_today() {
    let page = page(&report());
    let (_, row) = page.split_once(">server</th>").unwrap();
    let (row, _) = row.split_once("</tbody>").unwrap();
    assert!(row.contains("Not built yet.") && !row.contains("today,"), "{row}");
}

#[test]
fn a_quick_run_says_that_it_means_nothing() {
    let quick = Report { quick: true, ..report() };
    assert!(page(&quick).contains("the figures mean nothing"));
    assert!(!page(&report()).contains("the figures mean nothing"));
}

/// The page fetches nothing: it has no scripts, and no address but that of the SVG name space.
#[test]
fn the_page_needs_nothing_else() {
    let page = page(&report());
    let foreign = page.matches("http").count() - page.matches("http://www.w3.org/2000/svg").count();
    assert_eq!((foreign, page.contains("<script"), page.contains("<link")), (0, false, false));
}
