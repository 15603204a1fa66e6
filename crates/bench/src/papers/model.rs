//! The data of the page and of the JSON file: tables of papers with today's rows beside the
//! published ones.
//!
//! Not here: the measurements (`fidl`, `pipes` and the others), the layout (`html`).

use serde::Serialize;

use crate::machine::Machine;

/// The result of a run of `papers`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// The run was a short test: its figures mean nothing.
    pub(crate) quick: bool,
    /// Load average of the last minute when the run ended.
    pub(crate) load_after: f64,
    /// The duration of the run (s).
    pub(crate) seconds: f64,
    pub(crate) sections: Vec<Section>,
}

/// The unit of a figure of today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes a second.
    BytesPerS,
    /// Processor cycles.
    Cycles,
    /// Processor cycles divided by instructions.
    PerInstruction,
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
}

/// A column of a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measure {
    pub(crate) name: String,
    /// The unit of the published figures.
    pub(crate) published_unit: &'static str,
    /// The unit of today's figures.
    pub(crate) unit: Unit,
}

impl Measure {
    pub(crate) fn new(name: impl Into<String>, published_unit: &'static str, unit: Unit) -> Self {
        Self { name: name.into(), published_unit, unit }
    }
}

/// Today's figures, by the kind of waiting.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Today {
    /// One figure for each measure; empty if this kind of waiting was not measured.
    pub(crate) sleeping: Vec<Option<f64>>,
    pub(crate) spinning: Vec<Option<f64>>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// The paper's name of the row; for a row without a published one, a description.
    pub(crate) name: String,
    /// One figure for each measure; empty for a row without a published one.
    pub(crate) published: Vec<Option<f64>>,
    /// `None`: today has no counterpart, or it was not measured; the sentence tells which.
    pub(crate) today: Option<Today>,
    /// A sentence on the row's counterpart today.
    pub(crate) says: String,
    /// The index of the line that the ratios of this line refer to.
    pub(crate) base: usize,
}

/// A point of a curve; in JSON a pair.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(into = "[f64; 2]")]
pub(crate) struct Point {
    pub(crate) bytes: f64,
    pub(crate) ns: f64,
}

impl From<Point> for [f64; 2] {
    fn from(point: Point) -> Self {
        [point.bytes, point.ns]
    }
}

/// A curve.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<Point>,
}

/// Where two curves cross; in JSON a pair.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "(f64, String)")]
pub(crate) struct Crossing {
    pub(crate) bytes: f64,
    /// A sentence on it.
    pub(crate) says: String,
}

impl From<Crossing> for (f64, String) {
    fn from(crossing: Crossing) -> Self {
        (crossing.bytes, crossing.says)
    }
}

/// The result of a run.
pub(crate) struct Summary {
    /// In a sentence.
    pub(crate) answer: String,
    /// In a clause.
    pub(crate) gist: String,
}

/// A table of a paper.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Section {
    /// The key in `--table` and in links.
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    /// The paper with the published figures.
    pub(crate) paper: &'static str,
    /// The result of the run, in a sentence.
    pub(crate) answer: String,
    /// The result in a clause, for the summary.
    pub(crate) gist: String,
    /// The method of today's measurements.
    pub(crate) how: String,
    pub(crate) measures: Vec<Measure>,
    pub(crate) lines: Vec<Line>,
    /// Curves beside the table, by transferred bytes.
    pub(crate) curves: Vec<Curve>,
    pub(crate) crossing: Option<Crossing>,
    /// Today's figures are of work without waiting; they are in `spinning`.
    pub(crate) is_unwaited: bool,
    /// Measurements that failed, with the reason.
    pub(crate) notes: Vec<String>,
}

impl Section {
    /// Completes the section by what its figures say.
    pub(crate) fn summarised(mut self, summary: fn(&Self) -> Summary) -> Self {
        let Summary { answer, gist } = summary(&self);
        (self.answer, self.gist) = (answer, gist);
        self
    }
}

/// One of a line's three rows of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Published,
    Sleeping,
    Spinning,
}

impl Side {
    pub(crate) const ALL: [Self; 3] = [Self::Published, Self::Sleeping, Self::Spinning];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Sleeping => "today, sleeping",
            Self::Spinning => "today, spinning",
        }
    }
}

impl Line {
    /// Returns all figures of one side.
    pub(crate) fn figures(&self, side: Side) -> &[Option<f64>] {
        match (side, &self.today) {
            (Side::Published, _) => &self.published,
            (Side::Sleeping, Some(today)) => &today.sleeping,
            (Side::Spinning, Some(today)) => &today.spinning,
            (_, None) => &[],
        }
    }

    /// Returns one figure; `None` if it was not measured.
    pub(crate) fn figure(&self, side: Side, measure: usize) -> Option<f64> {
        self.figures(side).get(measure).copied().flatten().filter(|value| *value > 0.0)
    }
}

impl Section {
    /// Returns the ratio of a figure to that of the line's base, of the same side.
    pub(crate) fn ratio(&self, line: &Line, side: Side, measure: usize) -> Option<f64> {
        let base = self.lines.get(line.base)?.figure(side, measure)?;
        Some(line.figure(side, measure)? / base)
    }

    /// Returns the ratio of a line by its index.
    pub(crate) fn ratio_at(&self, line: usize, side: Side, measure: usize) -> Option<f64> {
        self.ratio(self.lines.get(line)?, side, measure)
    }
}

/// Formats a ratio for sentences.
pub(crate) fn times(ratio: Option<f64>) -> String {
    match ratio {
        None => "(not measured)".into(),
        Some(ratio) if ratio >= 99.5 => format!("{ratio:.0}"),
        Some(ratio) if ratio >= 9.95 => format!("{ratio:.1}"),
        Some(ratio) => format!("{ratio:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_base_of_the_same_side() {
        let line = |published, ns, base| Line {
            name: String::new(),
            published: vec![published],
            today: Some(Today { sleeping: vec![Some(ns)], spinning: Vec::new() }),
            says: String::new(),
            base,
        };
        let lines = vec![line(Some(2.0), 10.0, 0), line(Some(3.0), 40.0, 0), line(None, 5.0, 1)];
        let section = Section { lines, ..Section::default() };
        assert_eq!(section.ratio_at(1, Side::Published, 0), Some(1.5));
        assert_eq!(section.ratio_at(1, Side::Sleeping, 0), Some(4.0));
        assert_eq!(section.ratio_at(1, Side::Spinning, 0), None);
        assert_eq!(section.ratio_at(2, Side::Published, 0), None);
        assert_eq!(section.ratio_at(2, Side::Sleeping, 0), Some(0.125));
    }

    #[test]
    fn points_and_crossings_are_pairs_in_json() {
        let point = Point { bytes: 16.0, ns: 2.5 };
        assert_eq!(serde_json::to_string(&point).unwrap(), "[16.0,2.5]");
        let crossing = Crossing { bytes: 64.0, says: "so".into() };
        assert_eq!(serde_json::to_string(&crossing).unwrap(), "[64.0,\"so\"]");
    }
}
