//! The measurement of the marshalling table. Rows alternate: each round runs a short batch of every
//! row of a case, so that disturbances of the machine meet all rows alike.

use anyhow::{Result, ensure};
use serde::Serialize;

use super::cases::Case;
use super::codec::{Kind, Language, Subject};
use super::settings::Settings;
use crate::{os, stats};

/// One cell of the table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    /// Name of the row.
    pub(crate) row: String,
    /// The row's role.
    pub(crate) kind: Kind,
    /// Language of the stubs.
    pub(crate) language: Language,
    /// The marshalled interface.
    pub(crate) case: Case,
    /// Nanoseconds per call: median over rounds of each round's median.
    pub(crate) ns: f64,
    /// Nanoseconds per call: median over all groups of all rounds.
    pub(crate) p50_ns: f64,
    /// Nanoseconds per call: 99th percentile over all groups of all rounds.
    pub(crate) p99_ns: f64,
}

struct Tally {
    subject: Subject,
    ns_per_call: f64,
    medians: Vec<f64>,
    samples: Vec<f64>,
}

/// Groups of calls in a batch: the clock is read once per group.
const GROUPS: u64 = 20;

impl Tally {
    /// Warms the row up, checks its sum against the other rows', and estimates the time of a call.
    fn start(mut subject: Subject, expected: &mut Option<u64>) -> Result<Self> {
        let sum = (subject.run)(100);
        ensure!(sum.is_some(), "{}: {:?} damaged its own message", subject.row, subject.case);
        let agreed = *expected.get_or_insert(sum.unwrap_or_default());
        ensure!(sum == Some(agreed), "{}: {:?} is not what others got", subject.row, subject.case);
        let start = os::now_ns();
        (subject.run)(200);
        let ns_per_call = ((os::now_ns() - start) as f64 / 200.0).max(0.2);
        Ok(Self { subject, ns_per_call, medians: Vec::new(), samples: Vec::new() })
    }

    fn visit(&mut self, batch_ns: f64) {
        let group = (batch_ns / self.ns_per_call / GROUPS as f64).clamp(8.0, 1e6) as u64;
        let mut times = Vec::with_capacity(GROUPS as usize);
        (self.subject.run)(group / 4 + 1);
        for _ in 0..GROUPS {
            let start = os::now_ns();
            (self.subject.run)(group);
            times.push((os::now_ns() - start) as f64 / group as f64);
        }
        self.medians.push(stats::median(&times));
        self.samples.extend(times);
    }

    fn cell(self) -> Cell {
        let samples = stats::sorted(&self.samples);
        Cell {
            row: self.subject.row.into(),
            kind: self.subject.kind,
            language: self.subject.language,
            case: self.subject.case,
            ns: stats::median(&self.medians),
            p50_ns: stats::percentile(&samples, 0.5),
            p99_ns: stats::percentile(&samples, 0.99),
        }
    }
}

/// Measures every cell, case by case.
pub(super) fn alternate(subjects: Vec<Subject>, settings: &Settings) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    let mut subjects = subjects;
    for case in Case::ALL {
        let (present, rest): (Vec<_>, Vec<_>) = subjects.into_iter().partition(|s| s.case == case);
        subjects = rest;
        let mut expected = None;
        let mut tallies = Vec::new();
        for subject in present {
            tallies.push(Tally::start(subject, &mut expected)?);
        }
        for _ in 0..settings.rounds {
            for tally in &mut tallies {
                tally.visit(settings.batch_ns);
            }
        }
        cells.extend(tallies.into_iter().map(Tally::cell));
    }
    Ok(cells)
}
