//! Drawings of the page: bars of ratios and curves by size, both on logarithmic scales. Pure: data
//! in, SVG text out. Colours are classes of the page's style sheet, which has a dark mode.

use std::fmt::Write as _;

use super::model::{Curve, Line, Point, Section, Side};
use crate::table::{bytes, duration};

const WIDTH: f64 = 760.0;
/// The left and right ends of the bars' scale (pixels).
const SCALE: (f64, f64) = (270.0, 690.0);
/// The height of a bar, and the gap between two rows (pixels).
const BAR: f64 = 13.0;
const GAP: f64 = 9.0;
/// The margins above and below the drawing (pixels).
const TOP: f64 = 24.0;
const BOTTOM: f64 = 24.0;

/// Escapes text for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A logarithmic scale.
struct Scale {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let part = (value / self.least).ln() / (self.most / self.least).ln();
        self.from + part * (self.to - self.from)
    }

    /// Returns round values on the scale, few enough that their labels do not overlap.
    fn ticks(&self) -> Vec<f64> {
        let decades = (self.most / self.least).log10();
        let steps: &[f64] = if decades > 2.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let mut found = Vec::new();
        for decade in -4_i32..=12 {
            let values = steps.iter().map(|step| step * 10_f64.powi(decade));
            found.extend(values.filter(|value| (self.least..=self.most).contains(value)));
        }
        found
    }
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
         width=\"{WIDTH}\" height=\"{height:.0}\" role=\"img\">\n<title>{}</title>\n",
        escape(title)
    )
}

/// Formats a number with three digits.
fn short(value: f64) -> String {
    match value {
        v if v >= 99.5 => format!("{v:.0}"),
        v if v >= 9.95 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// The ratio of one side's figure.
struct SideRatio {
    side: Side,
    ratio: f64,
}

/// Draws the ratios of one measure: for each line a bar of each side, from 1.
pub(crate) fn bars(section: &Section, measure: usize) -> String {
    let of = |line: &Line| -> Vec<SideRatio> {
        let ratio = |side| Some(SideRatio { side, ratio: section.ratio(line, side, measure)? });
        Side::ALL.into_iter().filter_map(ratio).collect()
    };
    let rows: Vec<(&Line, Vec<SideRatio>)> = section
        .lines
        .iter()
        .map(|line| (line, of(line)))
        .filter(|(_, all)| !all.is_empty())
        .collect();
    let values = || rows.iter().flat_map(|(_, all)| all.iter().map(|one| one.ratio));
    let most = values().fold(2.0, f64::max) * 1.1;
    let least = values().fold(0.8, f64::min) / 1.1;
    let scale = Scale { least, most, from: SCALE.0, to: SCALE.1 };
    let count: usize = rows.iter().map(|(_, all)| all.len()).sum();
    let height = TOP + BOTTOM + count as f64 * BAR + rows.len() as f64 * GAP;
    let name = section.measures.get(measure).map_or("", |one| one.name.as_str());
    let mut text = open(height, &format!("{name}: times the base row"));
    for tick in scale.ticks() {
        let (x, class) = (scale.at(tick), if tick == 1.0 { "one" } else { "grid" });
        let bottom = height - BOTTOM;
        let _ = writeln!(text, "<path class=\"{class}\" d=\"M{x:.1} {TOP} V{bottom:.0}\"/>");
        let _ = writeln!(
            text,
            "<text class=\"s\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{tick}</text>",
            bottom + 15.0
        );
    }
    let mut y = TOP + GAP / 2.0;
    for (line, all) in &rows {
        text.push_str(&row(line, all, y, &scale));
        y += all.len() as f64 * BAR + GAP;
    }
    text + "</svg>\n"
}

/// Draws the bars as a file of its own, with its own style sheet.
pub(crate) fn file(section: &Section, measure: usize) -> String {
    let style = format!("</title>\n<style>\n{}</style>\n", include_str!("page.css"));
    bars(section, measure).replacen("</title>\n", &style, 1)
}

fn row(line: &Line, all: &[SideRatio], y: f64, scale: &Scale) -> String {
    let middle = y + all.len() as f64 * BAR / 2.0 + 4.0;
    // Names are cut to the room at the left of the scale.
    let mut name: String = line.name.chars().take(36).collect();
    if name.len() < line.name.len() {
        name.push('…');
    }
    let mut text = format!(
        "<text x=\"{:.0}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>\n",
        SCALE.0 - 8.0,
        escape(&name)
    );
    for (at, SideRatio { side, ratio }) in all.iter().enumerate() {
        let (from, to) = (scale.at(ratio.min(1.0)), scale.at(ratio.max(1.0)));
        let top = y + at as f64 * BAR;
        let class = class(*side);
        let _ = writeln!(
            text,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.0}\"/>",
            (to - from).max(2.0),
            BAR - 2.0
        );
        let _ = writeln!(
            text,
            "<text class=\"s\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            to + 5.0,
            top + BAR - 3.0,
            short(*ratio)
        );
    }
    text
}

/// Returns the class of a side in the style sheet.
pub(crate) fn class(side: Side) -> &'static str {
    match side {
        Side::Published => "published",
        Side::Sleeping => "sleeping",
        Side::Spinning => "spinning",
    }
}

/// The height of a drawing of curves, and its plane (pixels).
const CURVES: f64 = 380.0;
const PLANE: ((f64, f64), (f64, f64)) = ((70.0, 590.0), (20.0, 340.0));

/// Draws nanoseconds by size.
pub(crate) fn curves(section: &Section) -> String {
    let points = || section.curves.iter().flat_map(|curve| curve.points.iter());
    let range = |pick: fn(&Point) -> f64| {
        let least = points().map(pick).fold(f64::INFINITY, f64::min);
        (least, points().map(pick).fold(least * 2.0, f64::max))
    };
    let ((left, right), (top, bottom)) = PLANE;
    let ((x0, x1), (y0, y1)) = (range(|point| point.bytes), range(|point| point.ns));
    let x = Scale { least: x0, most: x1, from: left, to: right };
    let y = Scale { least: y0 / 1.2, most: y1 * 1.2, from: bottom, to: top };
    let mut text = open(CURVES, "Nanoseconds by bytes");
    for tick in y.ticks() {
        let at = y.at(tick);
        let _ = writeln!(text, "<path class=\"grid\" d=\"M{left} {at:.1} H{right}\"/>");
        let label = duration(tick).replace(".0 ", " ").replace(".00 ", " ").replace("us", "µs");
        let _ = writeln!(
            text,
            "<text class=\"s\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    for power in (4..=20).step_by(4) {
        let size = 1_usize << power;
        if (x0..=x1).contains(&(size as f64)) {
            let at = x.at(size as f64);
            let _ = writeln!(text, "<path class=\"grid\" d=\"M{at:.1} {top} V{bottom}\"/>");
            let _ = writeln!(
                text,
                "<text class=\"s\" x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
                bottom + 16.0,
                bytes(size)
            );
        }
    }
    if let Some(crossing) = &section.crossing {
        let at = x.at(crossing.bytes);
        let _ = writeln!(text, "<path class=\"mark\" d=\"M{at:.1} {top} V{bottom}\"/>");
    }
    for (number, curve) in section.curves.iter().enumerate() {
        text.push_str(&drawn(curve, number, &x, &y));
    }
    text + "</svg>\n"
}

fn drawn(curve: &Curve, number: usize, x: &Scale, y: &Scale) -> String {
    let mut path = String::new();
    for (at, point) in curve.points.iter().enumerate() {
        let end = (x.at(point.bytes), y.at(point.ns));
        let _ = write!(path, "{}{:.1} {:.1} ", if at == 0 { 'M' } else { 'L' }, end.0, end.1);
    }
    // Names are in a column of their own, because curves end close to one another.
    let line = PLANE.1.0 + 14.0 + number as f64 * 20.0;
    let from = PLANE.0.1 + 14.0;
    format!(
        "<path class=\"curve c{number}\" d=\"{}\"/>\n\
         <path class=\"curve c{number}\" d=\"M{from:.0} {line:.0} h18\"/>\n\
         <text x=\"{:.0}\" y=\"{:.0}\">{}</text>\n",
        path.trim_end(),
        from + 24.0,
        line + 4.0,
        escape(&curve.name)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_logarithmic_and_its_ticks_are_few() {
        let scale = Scale { least: 1.0, most: 100.0, from: 0.0, to: 10.0 };
        assert!((scale.at(10.0) - 5.0).abs() < 1e-9);
        assert_eq!(scale.ticks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let wide = Scale { most: 1e4, ..scale };
        assert_eq!(wide.ticks(), [1.0, 10.0, 100.0, 1000.0, 10_000.0]);
    }

    #[test]
    fn text_cannot_become_a_tag() {
        assert_eq!(escape("a<b & \"c\">"), "a&lt;b &amp; &quot;c&quot;&gt;");
    }
}
