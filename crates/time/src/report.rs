//! Times as JSON: one object, whose fields docs/reference/json.md defines.
//!
//! Times are microseconds, because layers take parts of one. Not here: tables and pictures.

use crate::distribution::Distribution;
use crate::ledger::Faults;
use crate::programs::Cost;
use crate::row::{Direction, Row};
use crate::session::{Cell, Session};
use serde::Serialize;

/// The whole report.
#[derive(Debug, Serialize)]
pub struct Report {
    version: u32,
    sessions: Vec<Told>,
    stamps: Stamps,
}

/// The stamps themselves: their cost, and counts of messages that were left out.
#[derive(Debug, Serialize)]
struct Stamps {
    cost_us: Option<f64>,
    clock_us: Option<f64>,
    not_stamped: Vec<&'static str>,
    why_not: Option<String>,
    events_lost: u64,
    out_of_order: u64,
    clamped: u64,
    dropped: u64,
    beyond: u64,
}

#[derive(Debug, Serialize)]
struct Told {
    session: String,
    home: &'static str,
    kind: &'static str,
    pid: Option<u32>,
    from: Option<String>,
    to: Option<String>,
    send: Direct,
    receive: Direct,
    transit: Option<Times>,
    send_rest: Option<Times>,
}

#[derive(Debug, Serialize)]
struct Direct {
    calls: u64,
    bytes: u64,
    not_timed: u64,
    total: Option<Times>,
    own_us: f64,
    rows: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    row: &'static str,
    /// `timed`, `in_next` or `absent`.
    is: &'static str,
    share_us: Option<f64>,
    times: Option<Times>,
}

#[derive(Debug, Serialize)]
struct Times {
    count: u64,
    mean_us: f64,
    median_us: f64,
    p99_us: f64,
}

/// The rest of a report: how the stamps were taken.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// The cost of a stamp; none if none were taken in the kernel.
    pub cost: Option<Cost>,
    /// The cost of a reading of the clock, which was taken off stamps in a program (ns).
    pub clock_ns: Option<u64>,
    /// Functions that were not stamped.
    pub missing: Vec<&'static str>,
    /// Why not, if the kernel refused.
    pub refusal: Option<String>,
    /// Events that found no room.
    pub lost: u64,
    /// Counts of other messages that were left out.
    pub faults: Faults,
}

impl Report {
    /// Of these sessions.
    #[must_use]
    pub fn new(sessions: &[&Session], taken: &Taken) -> Self {
        Self {
            version: 1,
            sessions: sessions.iter().map(|session| told(session)).collect(),
            stamps: Stamps {
                cost_us: taken.cost.map(|cost| f64::from(cost.whole_ns) / 1e3),
                clock_us: taken.clock_ns.map(|ns| ns as f64 / 1e3),
                not_stamped: taken.missing.clone(),
                why_not: taken.refusal.clone(),
                events_lost: taken.lost,
                out_of_order: taken.faults.disordered,
                clamped: taken.faults.clamped,
                dropped: taken.faults.dropped,
                beyond: taken.faults.beyond,
            },
        }
    }
}

fn told(session: &Session) -> Told {
    Told {
        session: session.name(),
        home: session.home.word(),
        kind: session.protocol.word(),
        pid: (session.process != 0).then_some(session.process),
        from: session.local.map(|address| address.to_string()),
        to: session.remote.map(|address| address.to_string()),
        send: direct(session, Direction::Send),
        receive: direct(session, Direction::Receive),
        transit: times(&session.transit),
        send_rest: times(&session.rest),
    }
}

fn direct(session: &Session, direction: Direction) -> Direct {
    let direction_times = session.direction_times(direction);
    let of_direction = Row::ALL.iter().filter(|row| row.direction() == direction);
    let line = |row: &Row| Line {
        row: row.key(),
        is: match session.cell(*row) {
            Cell::Timed => "timed",
            Cell::InNext => "in_next",
            Cell::Absent => "absent",
        },
        share_us: session.share_ns(*row).map(|ns| ns / 1e3),
        times: times(session.row(*row)),
    };
    Direct {
        calls: direction_times.calls,
        bytes: direction_times.bytes,
        not_timed: direction_times.without,
        total: times(&direction_times.total),
        own_us: direction_times.own_ns as f64 / direction_times.total.count().max(1) as f64 / 1e3,
        rows: of_direction.map(line).collect(),
    }
}

fn times(of: &Distribution) -> Option<Times> {
    let us = |part| of.quantile_ns(part).map(|ns| ns as f64 / 1e3);
    Some(Times {
        count: of.count(),
        mean_us: of.mean_ns()? / 1e3,
        median_us: us(0.5)?,
        p99_us: us(0.99)?,
    })
}
