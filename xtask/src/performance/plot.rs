//! Drawing of the page of performance figures: a bar for each case, on a logarithmic scale.
//!
//! The drawing is an SVG with its own background and colours, for light and dark pages, because a
//! code host shows it as an image, which inherits no style of the page. Bars to the right are
//! better than plain, bars to the left worse.

use std::fmt::Write as _;

/// Bar of one case.
pub(super) struct Bar {
    /// Name of the case for readers.
    pub(super) label: String,
    /// Ratio to the plain run; above 1 is better.
    pub(super) times: f64,
}

/// Bars that belong together.
pub(super) struct BarGroup {
    pub(super) name: &'static str,
    pub(super) bars: Vec<Bar>,
}

const WIDTH: f64 = 760.0;
/// Left and right end of the scale (pixels).
const SCALE: (f64, f64) = (300.0, 720.0);
/// Height of a bar with the space below it (pixels); `HEAD` is the height of a group's name.
const BAR: f64 = 24.0;
const HEAD: f64 = 34.0;

const STYLE: &str = "\
    .card { fill: #fdfdfc; stroke: #c9ccd1; } .grid { stroke: #d9dce1; }
    .one { stroke: #5c6b7f; stroke-width: 1.5; }
    .t { fill: #1d2530; } .s { fill: #4b5665; font-size: 12px; }
    .better { fill: #3b8a4a; } .worse { fill: #c2662d; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #161b22; stroke: #3a424d; } .grid { stroke: #2c343f; }
      .one { stroke: #8393a8; } .t { fill: #e8ecf1; } .s { fill: #a9b4c2; }
      .better { fill: #5fc074; } .worse { fill: #e08a50; }
    }";

/// Returns the drawing as the text of an SVG file.
pub(super) fn draw(groups: &[BarGroup]) -> String {
    let bars = || groups.iter().flat_map(|group| &group.bars);
    let most = bars().map(|bar| bar.times).fold(2.0, f64::max) * 1.15;
    let least = bars().map(|bar| bar.times).fold(0.5, f64::min) / 1.1;
    let x = |times: f64| {
        let part = (times / least).ln() / (most / least).ln();
        SCALE.0 + part * (SCALE.1 - SCALE.0)
    };
    let height = 62.0 + groups.len() as f64 * HEAD + bars().count() as f64 * BAR;
    let mut text = head(height);
    for step in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
        if (least..most).contains(&step) {
            let (class, bottom) = (if step == 1.0 { "one" } else { "grid" }, height - 30.0);
            let at = x(step);
            let _ = writeln!(text, "  <path class=\"{class}\" d=\"M{at:.1} 40 V{bottom}\"/>");
            let _ = writeln!(
                text,
                "  <text class=\"s\" x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{step}</text>",
                height - 14.0
            );
        }
    }
    let mut y = 40.0;
    for BarGroup { name, bars } in groups {
        let _ = writeln!(
            text,
            "  <text class=\"s\" x=\"16\" y=\"{:.0}\" font-weight=\"700\">{name}</text>",
            y + 20.0
        );
        y += HEAD;
        for bar in bars {
            text.push_str(&drawn(bar, y, &x));
            y += BAR;
        }
    }
    text.push_str("</svg>\n");
    text
}

fn head(height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-labelledby=\"title\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" font-size=\"13\">\n  \
         <title id=\"title\">How many times as good as without Sojourn</title>\n  <style>\n{STYLE}\n  </style>\n  \
         <rect class=\"card\" x=\"1\" y=\"1\" width=\"{}\" height=\"{}\" rx=\"10\"/>\n  \
         <text class=\"t\" x=\"16\" y=\"27\">How many times as good as without Sojourn; left of 1 is worse (logarithmic)</text>\n",
        WIDTH - 2.0,
        height - 2.0
    )
}

fn drawn(bar: &Bar, y: f64, x: &dyn Fn(f64) -> f64) -> String {
    let (from, to) = (x(bar.times.min(1.0)), x(bar.times.max(1.0)));
    let class = if bar.times < 1.0 { "worse" } else { "better" };
    let middle = y + 12.0;
    // The number stands behind the end of the bar, where it covers nothing.
    let label = bar.label.replace('&', "&amp;").replace('<', "&lt;");
    let mut text = format!(
        "  <text class=\"t\" x=\"284\" y=\"{:.0}\" text-anchor=\"end\">{label}</text>\n",
        middle + 1.0
    );
    let width = (to - from).max(1.5);
    let _ = writeln!(
        text,
        "  <rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"14\" rx=\"2\"/>",
        middle - 11.0
    );
    let number =
        if bar.times >= 9.95 { format!("{:.0}", bar.times) } else { format!("{:.2}", bar.times) };
    let _ = writeln!(
        text,
        "  <text class=\"s\" x=\"{:.1}\" y=\"{:.0}\">{number}</text>",
        to + 6.0,
        middle + 1.0
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_bar_on_its_side_of_one() {
        let bar = |label: &str, times| Bar { label: label.into(), times };
        let group = |name, bar| BarGroup { name, bars: vec![bar] };
        let groups = [group("one", bar("a & b", 4.0)), group("two", bar("c", 0.6))];
        let text = draw(&groups);
        assert!(text.contains("a &amp; b</text>") && text.contains(">0.60</text>"), "{text}");
        assert_eq!(text.matches("class=\"better\"").count(), 1);
        assert_eq!(text.matches("class=\"worse\"").count(), 1);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }
}
