//! The two drawings of a run: the advantage of each case over plain, and throughput by the number
//! of sessions.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::measure::Cell;
use super::targets::{advantage, value};
use super::way::RunMode;

const WAYS: [(RunMode, RGBColor); 3] = [
    (RunMode::Sockmap, RGBColor(200, 140, 60)),
    (RunMode::Sojourn, RGBColor(40, 110, 190)),
    (RunMode::Asleep, RGBColor(140, 180, 220)),
];
const SESSIONS: [u32; 5] = [1, 10, 100, 1000, 10_000];

/// Draws both next to the figures. A drawing without data is left out.
pub(super) fn all(cells: &[Cell], stem: &Path) -> Result<()> {
    let name = stem.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let path = |what: &str| stem.with_file_name(format!("{name}-{what}.svg"));
    let bars = bars(cells);
    if !bars.is_empty() {
        advantages(&bars, &path("advantage"))?;
        println!("drawing: {}", path("advantage").display());
    }
    if value(cells, "sessions-10", RunMode::Plain).is_some() {
        sessions(cells, &path("sessions"))?;
        println!("drawing: {}", path("sessions").display());
    }
    Ok(())
}

/// A bar of the first drawing.
struct Bar {
    case: String,
    /// The index of its way in `WAYS`.
    way: usize,
    /// The advantage over plain.
    times: f64,
}

fn bars(cells: &[Cell]) -> Vec<Bar> {
    let bar = |cell: &Cell| {
        let way = WAYS.iter().position(|(way, _)| *way == cell.way)?;
        let plain = value(cells, &cell.case, RunMode::Plain)?;
        let own = value(cells, &cell.case, cell.way)?;
        Some(Bar { case: cell.case.clone(), way, times: advantage(cell.unit, own, plain) })
    };
    let mut bars: Vec<Bar> = cells.iter().filter_map(bar).collect();
    // The cells of a row are ordered by way; its bars are ordered by case.
    let place = |case: &str| cells.iter().position(|cell| cell.case == case);
    bars.sort_by_key(|bar| place(&bar.case));
    bars
}

/// Height of one bar, in pixels.
const BAR: u32 = 9;

fn advantages(bars: &[Bar], path: &Path) -> Result<()> {
    let height = 90 + BAR * bars.len() as u32;
    let area = SVGBackend::new(path, (900, height)).into_drawing_area();
    let wrong = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| wrong(&error))?;
    let largest = bars.iter().map(|bar| bar.times).fold(2.0, f64::max) * 1.1;
    let smallest = bars.iter().map(|bar| bar.times).fold(0.8, f64::min) * 0.9;
    let count = bars.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption("times as good as plain (logarithmic)", ("sans-serif", 18))
        .margin(10)
        .margin_left(220)
        .x_label_area_size(30)
        .build_cartesian_2d((smallest..largest).log_scale(), 0.0..count)
        .map_err(|error| wrong(&error))?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .draw()
        .map_err(|error| wrong(&error))?;
    let mut last = "";
    for (place, Bar { case, way, times }) in bars.iter().enumerate() {
        let (top, color) = (count - place as f64, WAYS[*way].1);
        let bar = Rectangle::new([(1.0, top - 0.9), (*times, top)], color.filled());
        chart.draw_series([bar]).map_err(|error| wrong(&error))?;
        if case != last {
            let y = 36 + (place as f64 * f64::from(height - 76) / count) as i32;
            let text = Text::new(case.clone(), (8, y), ("sans-serif", 11));
            area.draw(&text).map_err(|error| wrong(&error))?;
            last = case;
        }
    }
    for (place, (way, color)) in WAYS.iter().enumerate() {
        let x = 500 + 110 * place as i32;
        let bottom = height as i32 - 14;
        let mark = Rectangle::new([(x, bottom), (x + 10, bottom + 10)], color.filled());
        area.draw(&mark).map_err(|error| wrong(&error))?;
        let text = Text::new(way.title(), (x + 14, bottom), ("sans-serif", 11));
        area.draw(&text).map_err(|error| wrong(&error))?;
    }
    area.present().map_err(|error| wrong(&error))
}

fn sessions(cells: &[Cell], path: &Path) -> Result<()> {
    let area = SVGBackend::new(path, (700, 420)).into_drawing_area();
    let wrong = |error: &dyn std::fmt::Display| anyhow!("{}: {error}", path.display());
    area.fill(&WHITE).map_err(|error| wrong(&error))?;
    let rate = |sessions: u32, way: RunMode| value(cells, &format!("sessions-{sessions}"), way);
    let all = [(RunMode::Plain, BLACK)].into_iter().chain(WAYS);
    let points = |way: RunMode| -> Vec<(f64, f64)> {
        let point = |&count: &u32| Some((f64::from(count), rate(count, way)? / 1e3));
        SESSIONS.iter().filter_map(point).collect()
    };
    let lines: Vec<_> = all.map(|(way, color)| (color, way, points(way))).collect();
    let largest = lines.iter().flat_map(|line| &line.2).map(|point| point.1).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&area)
        .caption("requests a second (thousands) by sessions", ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d((1.0..10_000.0).log_scale(), 0.0..largest * 1.1)
        .map_err(|error| wrong(&error))?;
    chart.configure_mesh().draw().map_err(|error| wrong(&error))?;
    for (color, way, points) in lines.into_iter().filter(|line| !line.2.is_empty()) {
        let line = LineSeries::new(points, color.stroke_width(2));
        let drawn = chart.draw_series(line).map_err(|error| wrong(&error))?;
        drawn
            .label(way.title())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2)));
    }
    let mut labels = chart.configure_series_labels();
    labels.border_style(BLACK).background_style(WHITE).draw().map_err(|error| wrong(&error))?;
    area.present().map_err(|error| wrong(&error))
}
