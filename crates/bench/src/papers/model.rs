//! What the page shows, as data: tables of papers with today's rows beside the published ones. It
//! is also the JSON file.
//!
//! Not here: where figures come from (`fidl`, `pipes` and the others), how they look (`html`).

use serde::Serialize;

use crate::machine::Machine;

/// What a run of `papers` found out.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    /// Figures mean nothing.
    pub(crate) quick: bool,
    /// Load average of the last minute when the run ended.
    pub(crate) load_after: f64,
    /// How long the run took.
    pub(crate) seconds: f64,
    pub(crate) sections: Vec<Section>,
}

/// What a figure of today is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes a second.
    BytesPerS,
    /// Processor cycles.
    Cycles,
}

/// A column of a table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measure {
    pub(crate) name: String,
    /// Of the published figures.
    pub(crate) published_unit: &'static str,
    /// Of today's.
    pub(crate) unit: Unit,
}

impl Measure {
    pub(crate) fn new(name: impl Into<String>, published_unit: &'static str, unit: Unit) -> Self {
        Self { name: name.into(), published_unit, unit }
    }
}

/// How today's programs wait.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Today {
    /// One figure for each measure; empty if nothing was measured so.
    pub(crate) sleeping: Vec<Option<f64>>,
    pub(crate) spinning: Vec<Option<f64>>,
}

/// A row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// What the paper calls it; for a row of today alone, what it is.
    pub(crate) name: String,
    /// One figure for each measure; empty for a row of today alone.
    pub(crate) published: Vec<Option<f64>>,
    /// `None`: today has no equal, or it was not measured; the sentence says which.
    pub(crate) today: Option<Today>,
    /// What the row is today.
    pub(crate) says: String,
    /// The line that this one's ratios refer to.
    pub(crate) base: usize,
}

/// A curve: bytes and nanoseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A table of a paper.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Section {
    /// For `--table` and links.
    pub(crate) key: &'static str,
    pub(crate) title: &'static str,
    /// Whose figures the published ones are.
    pub(crate) paper: &'static str,
    /// What the run says, in a sentence.
    pub(crate) answer: String,
    /// The same in a clause, for the paragraph at the top.
    pub(crate) gist: String,
    /// How today's figures were measured.
    pub(crate) how: String,
    pub(crate) measures: Vec<Measure>,
    pub(crate) lines: Vec<Line>,
    /// A figure beside the table, by size of what is transferred.
    pub(crate) curves: Vec<Curve>,
    /// Where curves cross, bytes, and what crosses there.
    pub(crate) crossing: Option<(f64, String)>,
    /// Today's figures are of work for which nobody waits: they are among the spinning ones.
    pub(crate) is_unwaited: bool,
    /// What could not be measured, and why.
    pub(crate) notes: Vec<String>,
}

/// Which of a line's figures.
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
    /// All figures of one side.
    pub(crate) fn figures(&self, side: Side) -> &[Option<f64>] {
        match (side, &self.today) {
            (Side::Published, _) => &self.published,
            (Side::Sleeping, Some(today)) => &today.sleeping,
            (Side::Spinning, Some(today)) => &today.spinning,
            (_, None) => &[],
        }
    }

    /// One figure.
    pub(crate) fn figure(&self, side: Side, measure: usize) -> Option<f64> {
        self.figures(side).get(measure).copied().flatten().filter(|value| *value > 0.0)
    }
}

impl Section {
    /// A figure over that of the line's base, of the same side.
    pub(crate) fn ratio(&self, line: &Line, side: Side, measure: usize) -> Option<f64> {
        let base = self.lines.get(line.base)?.figure(side, measure)?;
        Some(line.figure(side, measure)? / base)
    }

    /// The same by the line's number.
    pub(crate) fn ratio_at(&self, line: usize, side: Side, measure: usize) -> Option<f64> {
        self.ratio(self.lines.get(line)?, side, measure)
    }
}

/// A ratio for sentences.
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
}
