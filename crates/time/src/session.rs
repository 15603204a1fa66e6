//! One session's times, row by row, and the counts beside them.
//!
//! Not here: how they are found (`ledger`), how they are shown (`report`).

use crate::chain::{RowTime, Times};
use crate::distribution::Distribution;
use crate::event::{Ends, Inode, Protocol};
use crate::row::{Direction, Row};
use std::net::SocketAddr;

/// Where a session's protocol is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// In the kernel.
    #[default]
    Kernel,
    /// In the program's memory.
    Library,
}

impl Home {
    /// The word for users.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Library => "library",
        }
    }
}

/// Times of one direction.
#[derive(Clone, Debug, Default)]
pub struct DirectionTimes {
    /// Chains that were complete.
    pub total: Distribution,
    /// The stamps' own time in them, which was taken off (ns).
    pub own_ns: u64,
    /// Calls that moved data.
    pub calls: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Calls without a chain of their own: their data left later, came together with other data,
    /// or came before the tool looked.
    pub without: u64,
}

impl DirectionTimes {
    fn merge(&mut self, other: &Self) {
        self.total.merge(&other.total);
        self.own_ns += other.own_ns;
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.without += other.without;
    }
}

/// How a row stands in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// With times of its own.
    Timed,
    /// Its time is a part of the next row's that has one: the border between them is not stamped.
    InNext,
    /// This session does not pass it.
    Absent,
}

/// One session.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Where its protocol is.
    pub home: Home,
    /// The name of a session that is away.
    pub stream: Option<u64>,
    /// The inode of its socket or pipe.
    pub inode: Inode,
    /// The carrier of its data.
    pub protocol: Protocol,
    /// The program's end.
    pub local: Option<SocketAddr>,
    /// The other end.
    pub remote: Option<SocketAddr>,
    /// The last process that made a call on it.
    pub process: u32,
    /// The way out.
    pub send: DirectionTimes,
    /// The way in.
    pub receive: DirectionTimes,
    /// From the sender's device to the receiver's, where both are on this host.
    pub transit: Distribution,
    /// The rest of the call that sends, after its packet has left: on one host often the work of
    /// the receiving side.
    pub rest: Distribution,
    pub(crate) rows: [Distribution; Row::ALL.len()],
}

impl Session {
    /// A session of the kernel's.
    pub(crate) fn of(ends: &Ends) -> Self {
        Self { inode: ends.inode, protocol: ends.protocol, ..Self::default() }
    }

    /// A TCP session whose protocol is in its program.
    #[must_use]
    pub fn in_library(stream: u64) -> Self {
        Self { home: Home::Library, stream: Some(stream), ..Self::default() }
    }

    /// The times of one row.
    #[must_use]
    pub fn row(&self, row: Row) -> &Distribution {
        &self.rows[row.index()]
    }

    /// Sets the times of a row, for a home that keeps its own.
    pub fn set_row(&mut self, row: Row, times: Distribution) {
        self.rows[row.index()] = times;
    }

    /// One direction.
    #[must_use]
    pub fn direction_times(&self, direction: Direction) -> &DirectionTimes {
        match direction {
            Direction::Send => &self.send,
            Direction::Receive => &self.receive,
        }
    }

    /// Chains of both directions.
    #[must_use]
    pub fn chains(&self) -> u64 {
        self.send.total.count() + self.receive.total.count()
    }

    /// The name, as `sojourn ss` has it.
    #[must_use]
    pub fn name(&self) -> String {
        self.stream.map_or_else(|| format!("@{}", self.inode.0), |stream| stream.to_string())
    }

    /// How a row stands in a table.
    #[must_use]
    pub fn cell(&self, row: Row) -> Cell {
        let times = self.row(row);
        if times.count() > 0 {
            return Cell::Timed;
        }
        // A program that stamps its own layers stamps all of them.
        if self.home != Home::Kernel {
            return Cell::Absent;
        }
        let is_network = matches!(self.protocol, Protocol::Tcp | Protocol::Udp);
        let is_passed = match row {
            // Nothing waits between a kernel's layers, and its own copy is the last row's. The
            // device's beginning may be unknown; then the packet is followed from behind it.
            Row::KernelCopyOut | Row::Queue | Row::Device | Row::WakeUp | Row::InSocket => false,
            Row::EntryCopyIn | Row::CopyOutExit => true,
            _ => is_network,
        };
        let after = Row::ALL.iter().filter(|after| after.direction() == row.direction());
        let is_within =
            after.clone().any(|after| *after > row && self.row(*after).count() > 0) && is_passed;
        if is_within { Cell::InNext } else { Cell::Absent }
    }

    /// Adds the times of another session of the same home.
    pub fn merge(&mut self, other: &Self) {
        for (row, times) in self.rows.iter_mut().zip(&other.rows) {
            row.merge(times);
        }
        self.send.merge(&other.send);
        self.receive.merge(&other.receive);
        self.transit.merge(&other.transit);
        self.rest.merge(&other.rest);
    }

    /// A row's part of a chain on average (ns): rows of one direction add up to its mean total.
    #[must_use]
    pub fn share_ns(&self, row: Row) -> Option<f64> {
        let chains = self.direction_times(row.direction()).total.count();
        let times = self.row(row);
        (chains > 0 && times.count() > 0).then(|| times.sum_ns() as f64 / chains as f64)
    }

    pub(crate) fn add(&mut self, direction: Direction, times: &Times) {
        for RowTime { row, ns } in &times.rows {
            self.rows[row.index()].add(*ns);
        }
        let direction_times = match direction {
            Direction::Send => &mut self.send,
            Direction::Receive => &mut self.receive,
        };
        direction_times.total.add(times.total_ns());
        direction_times.own_ns += times.own_ns;
    }
}
