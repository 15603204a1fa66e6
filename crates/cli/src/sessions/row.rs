//! One end of a session, as it is shown. Not here: how sessions are found.

use super::connection::Connection;
use super::name::Name;
use crate::output::process_number;
use rustix::process::Uid;
use serde::{Serialize, Serializer};
use sojourn_session::{
    HomeT, Inode, KindT, ProcessId, ReasonT, RefusedInfoT, SessionInfoT, StreamNumber,
};
use std::ffi::CString;

/// One end of a session, as it is shown. Fields are those of `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Row {
    /// The stream's number, if the session is away from the kernel. JSON has it as text, because
    /// many readers keep only 53 bits of a number.
    #[serde(serialize_with = "as_text")]
    pub(crate) stream: Option<StreamNumber>,
    pub(crate) kind: &'static str,
    pub(crate) home: &'static str,
    /// The reason as a word of `sojourn_session::reason`.
    pub(crate) reason: &'static str,
    #[serde(serialize_with = "process_number")]
    pub(crate) pid: ProcessId,
    #[serde(serialize_with = "user")]
    pub(crate) uid: Uid,
    pub(crate) program: String,
    pub(crate) from: String,
    pub(crate) to: String,
    #[serde(serialize_with = "peer_process")]
    pub(crate) peer_pid: Option<ProcessId>,
    pub(crate) peer_program: Option<String>,
    /// Bytes through the stream, if the server knows them.
    pub(crate) sent: Option<u64>,
    pub(crate) received: Option<u64>,
    /// The time since the move, or since the session waits for its peer (ms).
    pub(crate) age_ms: Option<u64>,
    /// The TCP state of a session with another host that is away from the kernel.
    pub(crate) connection: Option<Connection>,
    /// The counters of a UDP socket whose datagrams bypass the kernel.
    pub(crate) datagrams: Option<Datagrams>,
    /// The measured rates of a session that is in the kernel because it was slower away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rates: Option<Rates>,
    /// The rule of the host for which the session stays in the kernel, if the server tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rule: Option<String>,
    /// The inode of the socket or pipe, if `/proc` shows it. JSON has it as text, like `stream`.
    #[serde(serialize_with = "as_text")]
    pub(crate) inode: Option<Inode>,
}

/// Bytes per second of both directions, in the kernel and away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Rates {
    pub(crate) in_kernel: u64,
    pub(crate) away: u64,
}

impl Rates {
    pub(super) fn of(refused: &RefusedInfoT) -> Option<Self> {
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

/// The number of datagrams that bypassed the kernel, and of received datagrams that found no room.
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

/// An end, in the server's list or from `/proc`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct EndKey {
    pid: ProcessId,
    kind: &'static str,
    from: String,
    to: String,
}

impl Row {
    /// Returns true for TCP and UDP, whose addresses name a session.
    pub(crate) fn is_of_hosts(&self) -> bool {
        matches!(self.kind, "tcp" | "udp")
    }

    /// Returns true if the kernel has the session.
    pub(crate) fn is_in_kernel(&self) -> bool {
        self.stream.is_none()
    }

    /// Returns the session's name; `None` if neither stream nor inode is known.
    pub(crate) fn name(&self) -> Option<Name> {
        self.stream.map(Name::Stream).or(self.inode.map(Name::Inode))
    }

    /// Returns the reason as a sentence.
    pub(crate) fn sentence(&self) -> &'static str {
        ReasonT::from_word(self.reason).unwrap_or(ReasonT::None).sentence()
    }

    /// Returns a key that is equal for an end in the server's list and the same end from `/proc`.
    /// `is_elsewhere`: the server's process numbers are not this name space's.
    pub(super) fn key(&self, is_elsewhere: bool) -> EndKey {
        let pid = if is_elsewhere { ProcessId::NONE } else { self.pid };
        EndKey { pid, kind: self.kind, from: self.from.clone(), to: self.to.clone() }
    }

    /// Completes a row of the server's with the same end's row from `/proc`.
    pub(super) fn is_found(&mut self, found: &Self) {
        self.inode = found.inode;
        if self.pid != found.pid {
            // The server's process numbers hold in another name space, so they are replaced.
            (self.pid, self.peer_pid) = (found.pid, found.peer_pid);
        }
        // The reason of an offer that waits is "no peer so far": the row from `/proc` may know why.
        if self.reason == ReasonT::NoPeer.word() && found.peer_pid.is_some() {
            let is_not_hot = found.reason == ReasonT::NotHot.word();
            self.reason = if is_not_hot { ReasonT::PeerNotHot.word() } else { found.reason };
        }
    }
}

#[allow(clippy::ref_option, reason = "serde's calling convention")]
fn as_text<T: ToString, S: Serializer>(name: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    name.as_ref().map(T::to_string).serialize(serializer)
}

#[allow(clippy::ref_option, reason = "serde's calling convention")]
fn peer_process<S: Serializer>(pid: &Option<ProcessId>, serializer: S) -> Result<S::Ok, S::Error> {
    pid.map(|pid| pid.0).serialize(serializer)
}

fn user<S: Serializer>(uid: &Uid, serializer: S) -> Result<S::Ok, S::Error> {
    uid.as_raw().serialize(serializer)
}

/// Returns the word for a kind.
pub(super) fn kind_word(kind: KindT) -> &'static str {
    match kind {
        KindT::Tcp => "tcp",
        KindT::Unix => "unix",
        KindT::Pipe => "pipe",
        KindT::Udp => "udp",
    }
}

/// Returns the word for a home.
pub(super) fn home_word(home: HomeT) -> &'static str {
    match home {
        HomeT::Kernel => "kernel",
        HomeT::Library => "library",
        HomeT::Server => "server",
    }
}

/// Makes a row from the server's description of a session.
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
        stream: is_away.then_some(StreamNumber(info.stream)),
        kind: kind_word(info.kind),
        home: home_word(info.home),
        reason: info.reason.word(),
        pid: ProcessId(info.pid),
        uid: Uid::from_raw_unchecked(info.uid),
        program: program.rsplit('/').next().unwrap_or(&program).to_owned(),
        from: text(info.from),
        to: text(info.to),
        peer_pid: Some(ProcessId(info.peer_pid)).filter(|pid| *pid != ProcessId::NONE),
        peer_program: None,
        sent: info.has_counts.then_some(info.sent),
        received: info.has_counts.then_some(info.received),
        age_ms: Some(info.age_ms),
        connection: None,
        datagrams,
        rates: None,
        rule: None,
        inode: None,
    }
}
