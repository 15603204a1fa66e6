//! The page: one HTML file without references to other files. Pure: a report in, text out.
//!
//! The summary comes first, then a section for each table. A row of a paper has a line for the
//! published figures and a line for each of today's kinds of waiting. Each cell has the ratio to
//! the base row of the same line, and below it the figure. Not here: drawings (`plot`), figures
//! (`model`).

use std::fmt::Write as _;

use super::model::{Line, Measure, Report, Section, Side, Unit, times};
use super::plot::{bars, class, curves, escape};
use crate::table::{bytes, duration};

const STYLE: &str = include_str!("page.css");

/// Formats the page.
pub(crate) fn page(report: &Report) -> String {
    let mut text = head(report);
    for section in &report.sections {
        text.push_str(&drawn(section));
    }
    text + "</body>\n</html>\n"
}

fn head(report: &Report) -> String {
    let machine = &report.machine;
    let gists = report.sections.iter().map(|one| one.gist.as_str());
    let gists: Vec<&str> = gists.filter(|gist| !gist.is_empty()).collect();
    let links: String = report
        .sections
        .iter()
        .map(|one| format!("<a href=\"#{}\">{}</a>\n", one.key, escape(one.title)))
        .collect();
    let warning = match report.quick {
        true => "<p class=\"warn\">A quick run: the figures mean nothing.</p>\n",
        false => "",
    };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>The papers’ tables, today</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>The papers’ tables, today</h1>\n{warning}\
         <p class=\"first\">Today, with what was published in brackets: {}.</p>\n\
         <p class=\"soft\">Measured on {}, {} processors, Linux {}; load {:.2} before, {:.2} after; \
         {:.0} s. Hardware of the 1990s cannot be compared with today’s: what compares is each row’s \
         <b>ratio to its own table’s base row</b> (shaded), published and measured. The sides take \
         turns within the run, and a figure is a median over rounds.</p>\n<nav>\n{links}</nav>\n",
        escape(&gists.join("; ")),
        escape(&machine.processor),
        machine.processors,
        escape(&machine.kernel),
        machine.load,
        report.load_after,
        report.seconds,
    )
}

fn drawn(section: &Section) -> String {
    let mut text = format!(
        "<section id=\"{}\">\n<h2>{}</h2>\n<p><b>{}</b></p>\n<p class=\"soft\">Published: {}</p>\n",
        section.key,
        escape(section.title),
        escape(&section.answer),
        escape(section.paper)
    );
    text.push_str(&table(section));
    let has_ratios = Side::ALL
        .iter()
        .any(|side| section.lines.iter().any(|line| section.ratio(line, *side, 0).is_some()));
    if let Some(measure) = section.measures.first().filter(|_| has_ratios) {
        let _ = write!(
            text,
            "<figure>\n{}<figcaption>{}: times the base row, logarithmic; grey published, {}.\
             </figcaption>\n</figure>\n",
            bars(section, 0),
            escape(&measure.name),
            if section.is_unwaited {
                "orange today"
            } else {
                "blue today sleeping, orange today spinning"
            }
        );
    }
    if !section.curves.is_empty() {
        let crossing = section.crossing.as_ref().map_or_else(String::new, |crossing| {
            format!(" Dashed, {}: {}.", bytes(crossing.bytes as usize), escape(&crossing.says))
        });
        let _ = write!(
            text,
            "<figure>\n{}<figcaption>Time of a whole call by bytes of its argument, both axes \
             logarithmic.{crossing}</figcaption>\n</figure>\n",
            curves(section)
        );
    }
    let notes: String = section
        .notes
        .iter()
        .map(|note| format!("<p class=\"soft\">{}</p>\n", escape(note)))
        .collect();
    let _ = write!(
        text,
        "{notes}<details>\n<summary>How today’s rows were measured</summary>\n<p>{}</p>\n\
         </details>\n</section>\n",
        escape(&section.how)
    );
    text
}

/// The most columns beside which a column of sentences has room; in wider tables the sentences are
/// below the names.
const WIDE: usize = 4;

fn table(section: &Section) -> String {
    let heads: String =
        section.measures.iter().map(|one| format!("<th>{}</th>", escape(&one.name))).collect();
    let is_wide = section.measures.len() > WIDE;
    let last = if is_wide { "" } else { "<th>what it is today</th>" };
    let class = if is_wide { " class=\"wide\"" } else { "" };
    let mut text = format!(
        "<div class=\"scroll\">\n<table{class}>\n<thead><tr><th>row</th><th></th>{heads}{last}\
         </tr></thead>\n"
    );
    for (number, line) in section.lines.iter().enumerate() {
        text.push_str(&rows(section, number, line));
    }
    text + "</table>\n</div>\n"
}

/// Formats a line of the table: a row for each side that has figures.
fn rows(section: &Section, number: usize, line: &Line) -> String {
    let has = |side: &Side| line.figures(*side).iter().any(Option::is_some);
    let mut sides: Vec<Side> = Side::ALL.into_iter().filter(has).collect();
    let is_empty = sides.is_empty();
    if is_empty {
        sides.push(Side::Published);
    }
    let count = sides.len();
    let base = if line.base == number { " class=\"base\"" } else { "" };
    let mut text = format!("<tbody{base}>\n");
    for (at, side) in sides.into_iter().enumerate() {
        let (mut begin, mut end) = (String::new(), String::new());
        let (name, says) = (escape(&line.name), escape(&line.says));
        if at == 0 && section.measures.len() > WIDE {
            begin = format!("<th rowspan=\"{count}\">{name}<p>{says}</p></th>");
        } else if at == 0 {
            begin = format!("<th rowspan=\"{count}\">{name}</th>");
            end = format!("<td class=\"says\" rowspan=\"{count}\">{says}</td>");
        }
        let cells: String =
            (0..section.measures.len()).map(|measure| cell(section, line, side, measure)).collect();
        let _ = writeln!(
            text,
            "<tr class=\"{}\">{begin}<td class=\"side\">{}</td>{cells}{end}</tr>",
            class(side),
            if is_empty { "not measured" } else { title(section, side) }
        );
    }
    text + "</tbody>\n"
}

fn title(section: &Section, side: Side) -> &'static str {
    if section.is_unwaited && side != Side::Published { "today" } else { side.title() }
}

fn cell(section: &Section, line: &Line, side: Side, measure: usize) -> String {
    let Some(value) = line.figure(side, measure) else { return "<td>–</td>".into() };
    let shown = figure(&section.measures[measure], side, value);
    match section.ratio(line, side, measure) {
        Some(ratio) => format!("<td>{}<small>{shown}</small></td>", times(Some(ratio))),
        None => format!("<td>–<small>{shown}</small></td>"),
    }
}

/// Formats a figure with its unit.
fn figure(measure: &Measure, side: Side, value: f64) -> String {
    if side == Side::Published {
        return format!("{value} {}", measure.published_unit);
    }
    match measure.unit {
        Unit::Ns => duration(value).replace("us", "µs"),
        Unit::BytesPerS if value >= 1e9 => format!("{:.2} GB/s", value / 1e9),
        Unit::BytesPerS => format!("{:.0} MB/s", value / 1e6),
        Unit::Cycles => format!("{value:.0} cycles"),
        Unit::PerInstruction => format!("{value:.3}"),
        Unit::Count => format!("{value:.0}"),
        Unit::Bytes => format!("{:.0} KiB", value / 1024.0),
    }
}

#[cfg(test)]
#[path = "html_tests.rs"]
mod tests;
