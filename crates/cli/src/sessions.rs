//! All sessions of programs under Sojourn: those the server knows, and those that `/proc` shows
//! besides.
//!
//! A program offers a session to the server when it has become hot, so the server knows nothing of
//! the rest. These are found as ss(8) finds them: processes that have the preload library mapped
//! (`processes`), what their descriptors are (`tables`, `diag`), and who holds the other end
//! (`found`). Why one of them is in the kernel is told from the outside, as far as that can be
//! seen.

mod connection;
mod diag;
mod found;
mod processes;
mod reach;
mod standing;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use connection::Connection;
pub(crate) use diag::works as unix_diag_works;
pub(crate) use processes::PROC;

use crate::args::Filter;
use crate::client::Client;
use serde::{Serialize, Serializer};
use sojourn_session::{HomeT, KindT, ReasonT, RefusedInfoT, SessionInfoT};
use standing::Observer;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::path::Path;

/// What a session is called: in the first column of `ss`, and by `move`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// Of a session that is away: its stream's number.
    Stream(u64),
    /// Of one in the kernel: the inode of its socket or pipe.
    Inode(u64),
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Stream(number) => write!(f, "{number}"),
            Self::Inode(inode) => write!(f, "@{inode}"),
        }
    }
}

impl std::str::FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (text, name): (_, fn(u64) -> Self) = match text.strip_prefix('@') {
            Some(inode) => (inode, Self::Inode),
            None => (text, Self::Stream),
        };
        text.parse().map(name).map_err(|_| "neither a number nor @ and a number".into())
    }
}

/// One end of a session, as it is shown. Fields are those of `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// Its stream's number, if it is away from the kernel. Text in JSON: many readers have 53 bits
    /// for a number.
    #[serde(serialize_with = "as_text")]
    pub(crate) stream: Option<u64>,
    pub(crate) kind: &'static str,
    pub(crate) home: &'static str,
    /// A word of `sojourn_session::reason`.
    pub(crate) reason: &'static str,
    pub(crate) pid: u32,
    pub(crate) uid: u32,
    pub(crate) program: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) peer_pid: Option<u32>,
    pub(crate) peer_program: Option<String>,
    /// Bytes through the stream, as far as the server knows.
    pub(crate) sent: Option<u64>,
    pub(crate) received: Option<u64>,
    /// Since the move, or since it waits for its peer.
    pub(crate) age_ms: Option<u64>,
    /// How the connection is, if it is with another host and away from the kernel.
    pub(crate) connection: Option<Connection>,
    /// What has gone past the kernel, if it is a UDP socket's that is away.
    pub(crate) datagrams: Option<Datagrams>,
    /// What was measured, of one that is in the kernel because it was slower away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rates: Option<Rates>,
    /// Of the socket or pipe, where `/proc` shows it. Text, as `stream`.
    #[serde(serialize_with = "as_text")]
    pub(crate) inode: Option<u64>,
}

/// Bytes a second, both ways, in the kernel and away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Rates {
    pub(crate) in_kernel: u64,
    pub(crate) away: u64,
}

impl Rates {
    fn of(refused: &RefusedInfoT) -> Option<Self> {
        let RefusedInfoT { in_kernel, away, .. } = *refused;
        (in_kernel > 0).then_some(Self { in_kernel, away })
    }
}

impl std::fmt::Display for Rates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rate = |bytes: u64| bytes as f64 / 1e6;
        write!(
            f,
            "{:.2} MB/s in the kernel, {:.2} MB/s away",
            rate(self.in_kernel),
            rate(self.away)
        )
    }
}

/// How many datagrams have gone past the kernel, and how many came and found no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Datagrams {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) dropped: u64,
}

impl std::fmt::Display for Datagrams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sent, received, dropped } = self;
        write!(f, "datagrams {sent} out, {received} in, {dropped} dropped")
    }
}

impl Row {
    /// Whether it is not accelerated.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.stream.is_none()
    }

    /// What it is called, if it can be named.
    pub(crate) fn name(&self) -> Option<Name> {
        self.stream.map(Name::Stream).or(self.inode.map(Name::Inode))
    }

    /// Why, for people.
    pub(crate) fn sentence(&self) -> &'static str {
        ReasonT::from_word(self.reason).unwrap_or(ReasonT::None).sentence()
    }

    /// The same end has the same key, whoever found it. `is_afar`: see [`explain`].
    fn key(&self, is_afar: bool) -> (u32, &'static str, String, String) {
        let pid = if is_afar { 0 } else { self.pid };
        (pid, self.kind, self.from.clone(), self.to.clone())
    }

    /// What the server knows was found, too.
    fn is_found(&mut self, found: &Self) {
        self.inode = found.inode;
        if self.pid != found.pid {
            // The server's numbers are others than ours.
            (self.pid, self.peer_pid) = (found.pid, found.peer_pid);
        }
        // An offer that waits has found no peer so far, and the server cannot know why.
        if self.reason == ReasonT::NoPeer.word() && found.peer_pid.is_some() {
            let is_not_hot = found.reason == ReasonT::NotHot.word();
            self.reason = if is_not_hot { ReasonT::PeerNotHot.word() } else { found.reason };
        }
    }
}

#[allow(clippy::ref_option, reason = "serde's calling convention")]
fn as_text<S: Serializer>(stream: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
    stream.map(|number| number.to_string()).serialize(serializer)
}

/// The word for a kind.
fn kind_word(kind: KindT) -> &'static str {
    match kind {
        KindT::Tcp => "tcp",
        KindT::Unix => "unix",
        KindT::Pipe => "pipe",
        KindT::Udp => "udp",
    }
}

/// The word for a home.
fn home_word(home: HomeT) -> &'static str {
    match home {
        HomeT::Kernel => "kernel",
        HomeT::Library => "library",
    }
}

/// Sessions that pass the filter; `all`: also sockets that are not connected. In order of process.
pub(crate) fn gather(
    mut client: Option<&mut Client>,
    filter: &Filter,
    all: bool,
) -> anyhow::Result<Vec<Row>> {
    let (known, refused, connections, pids) = match &mut client {
        Some(client) => {
            (client.list()?, client.refused(), client.connections(), client.processes())
        }
        None => Default::default(),
    };
    // It gives processes other numbers than we see if it is in a process name space further out.
    let is_afar = client.as_ref().is_some_and(|client| client.pid == 0);
    let pids = if is_afar { HashSet::new() } else { pids.into_iter().collect() };
    let observer = Observer::new(Path::new(PROC), client.as_deref(), pids);
    let mut found = found::find(Path::new(PROC), all, &observer);
    explain(&mut found, &refused, is_afar);
    let mut rows = merge(known, found, is_afar);
    name_peers(&mut rows);
    connection::add(&mut rows, &connections);
    rows.retain(|row| {
        let is_kind = filter.kind.is_none_or(|kind| kind_word(kind.of_interface()) == row.kind);
        is_kind && filter.pid.is_none_or(|pid| pid == row.pid || row.peer_pid == Some(pid))
    });
    Ok(rows)
}

/// Where nothing in the way can be seen from the outside, the server may have been told or have
/// seen more. `is_afar`: its numbers of processes are not ours; and where it sees none, it says 0.
fn explain(found: &mut [Row], refused: &[RefusedInfoT], is_afar: bool) {
    let pid_of = |pid: u32| if is_afar { 0 } else { pid };
    let refused: HashMap<(u32, u64), &RefusedInfoT> =
        refused.iter().map(|refused| ((pid_of(refused.pid), refused.inode), refused)).collect();
    // A peer on another host is none that can be seen; the server may know more of the session even
    // so.
    let vague = [ReasonT::NotHot, ReasonT::NoPeer, ReasonT::OtherNetwork, ReasonT::PeerStays];
    let vague = vague.map(ReasonT::word);
    for row in found.iter_mut().filter(|row| vague.contains(&row.reason)) {
        let Some(inode) = row.inode else { continue };
        let told = refused.get(&(pid_of(row.pid), inode)).or_else(|| refused.get(&(0, inode)));
        let Some(told) = told else { continue };
        // That it has found no other end is less than what was found here.
        if told.reason != ReasonT::NoPeer || row.reason == ReasonT::NotHot.word() {
            row.reason = told.reason.word();
            row.rates = Rates::of(told);
        }
    }
}

/// What the server knows, and what it does not. `is_afar`: see [`explain`].
fn merge(known: Vec<SessionInfoT>, found: Vec<Row>, is_afar: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = known.into_iter().map(of_server).collect();
    let mut known = HashMap::<_, Vec<usize>>::new();
    for (at, row) in rows.iter().enumerate() {
        known.entry(row.key(is_afar)).or_default().push(at);
    }
    for row in found {
        match known.get_mut(&row.key(is_afar)).and_then(Vec::pop) {
            // Of several with one key it does not matter which is which.
            Some(at) => rows[at].is_found(&row),
            None => rows.push(row),
        }
    }
    rows.sort_by(|a, b| (a.pid, a.kind, &a.from, &a.to).cmp(&(b.pid, b.kind, &b.from, &b.to)));
    rows
}

pub(crate) fn of_server(info: SessionInfoT) -> Row {
    let text = |text: Option<CString>| {
        text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    };
    let is_away = info.home != HomeT::Kernel;
    let program = text(info.program);
    let datagrams = (is_away && info.kind == KindT::Udp).then_some(Datagrams {
        sent: info.datagrams_sent,
        received: info.datagrams_received,
        dropped: info.datagrams_dropped,
    });
    Row {
        stream: is_away.then_some(info.stream),
        kind: kind_word(info.kind),
        home: home_word(info.home),
        reason: info.reason.word(),
        pid: info.pid,
        uid: info.uid,
        program: program.rsplit('/').next().unwrap_or(&program).to_owned(),
        from: text(info.from),
        to: text(info.to),
        peer_pid: (info.peer_pid != 0).then_some(info.peer_pid),
        peer_program: None,
        sent: is_away.then_some(info.sent),
        received: is_away.then_some(info.received),
        age_ms: Some(info.age_ms),
        connection: None,
        datagrams,
        rates: None,
        inode: None,
    }
}

/// The other ends' programs, from their own rows or from `/proc`.
fn name_peers(rows: &mut [Row]) {
    let names: HashMap<u32, String> =
        rows.iter().map(|row| (row.pid, row.program.clone())).collect();
    for row in rows {
        let Some(pid) = row.peer_pid.filter(|_| row.peer_program.is_none()) else { continue };
        let name = names.get(&pid).cloned();
        row.peer_program = name.or_else(|| processes::program(Path::new(PROC), pid));
    }
}
