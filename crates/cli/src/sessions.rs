//! All sessions of programs under Sojourn: those in the server's list, and others that `/proc`
//! shows.
//!
//! A program offers a session to the server when the session has become hot; the server does not
//! know other sessions. These are found as ss(8) finds sockets: the processes that have the preload
//! library mapped (`processes`), the objects behind their descriptors (`tables`, `diag`), and the
//! holders of the other ends (`found`). The reason why such a session is in the kernel is derived
//! from `/proc` as far as possible.

mod connection;
mod diag;
mod found;
mod name;
mod processes;
mod row;
mod server_lookup;
mod standing;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use connection::Connection;
pub(crate) use diag::works as unix_diag_works;
pub(crate) use name::Name;
pub(crate) use processes::{PROC, program as program_of};
pub(crate) use row::{Rates, Row, of_server};

use crate::args::Filter;
use crate::client::Client;
use row::kind_word;
use sojourn_session::{
    ConcernedInfoT, ConnectionInfoT, HomeT, Inode, ProcessId, ReasonT, RefusedInfoT, SessionInfoT,
    StreamNumber,
};
use standing::Observer;
use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::net::SocketAddr;
use std::path::Path;

#[cfg(any(debug_assertions, fuzzing))]
/// Parses bytes as one of the inputs of this module, for fuzzing. Invariants: no panic, and
/// termination.
pub(crate) fn fuzz_tables(choice: u8, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match choice % 4 {
        0 => text.lines().for_each(tables::fuzz_line),
        1 => processes::fuzz_text(&text),
        2 => diag::fuzz_answer(bytes),
        _ => {
            let page = 4096;
            let _ = sojourn_session::notice::find(&text, page, |line| line.ends_with(".so"));
        }
    }
}

/// Returns the sessions that pass the filter, ordered by process; if `all`, also sockets that are
/// not connected.
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
    // A server in an outer process name space has other process numbers than this one. This process
    // then sees no number for the server's process.
    let is_elsewhere = client.as_ref().is_some_and(|client| client.pid == ProcessId::NONE);
    let pids = if is_elsewhere { HashSet::new() } else { pids.into_iter().collect() };
    let observer = Observer::new(Path::new(PROC), client.as_deref(), pids);
    let mut found = found::find(Path::new(PROC), all, &observer);
    explain(&mut found, &refused, is_elsewhere);
    let mut rows = merge(known, found, is_elsewhere);
    explain_served(&mut rows);
    name_peers(&mut rows);
    add_connections(&mut rows, &connections);
    if let Some(client) = client {
        name_rules(&mut rows, || client.concerned());
    }
    rows.retain(|row| {
        let is_kind = filter.kind.is_none_or(|kind| kind_word(kind.of_interface()) == row.kind);
        is_kind && filter.pid.is_none_or(|pid| pid == row.pid || row.peer_pid == Some(pid))
    });
    Ok(rows)
}

/// Gives the reason of a program's end of a session that the protocol server has: the server's
/// duplicate of the socket looks like another holder's.
fn explain_served(rows: &mut [Row]) {
    let served: HashSet<(String, String)> = rows
        .iter()
        .filter(|row| row.home == row::home_word(HomeT::Server))
        .map(|row| (row.from.clone(), row.to.clone()))
        .collect();
    for row in rows.iter_mut().filter(|row| row.is_of_hosts() && row.is_in_kernel()) {
        if served.contains(&(row.from.clone(), row.to.clone())) {
            row.reason = ReasonT::ProtocolServer.word();
        }
    }
}

/// Replaces vague reasons by the server's: it has reasons that libraries reported, or that it found
/// itself. `is_elsewhere`: the server's process numbers are not this name space's, and are 0 for
/// processes that the server does not see.
fn explain(found: &mut [Row], refused: &[RefusedInfoT], is_elsewhere: bool) {
    let pid_of = |pid: ProcessId| if is_elsewhere { ProcessId::NONE } else { pid };
    let key = |refused: &RefusedInfoT| (pid_of(ProcessId(refused.pid)), Inode(refused.inode));
    let refused: HashMap<(ProcessId, Inode), &RefusedInfoT> =
        refused.iter().map(|refused| (key(refused), refused)).collect();
    // A peer on another host is not visible here; the server may still have a better reason.
    let vague = [ReasonT::NotHot, ReasonT::NoPeer, ReasonT::OtherNetwork, ReasonT::PeerStays];
    let vague = vague.map(ReasonT::word);
    for row in found.iter_mut().filter(|row| vague.contains(&row.reason)) {
        let Some(inode) = row.inode else { continue };
        let refusal = refused
            .get(&(pid_of(row.pid), inode))
            .or_else(|| refused.get(&(ProcessId::NONE, inode)));
        let Some(refusal) = refusal else { continue };
        // The server's reason "no peer" is vaguer than any reason that was found here, except for
        // "not hot".
        if refusal.reason != ReasonT::NoPeer || row.reason == ReasonT::NotHot.word() {
            row.reason = refusal.reason.word();
            row.rates = Rates::of(refusal);
        }
    }
}

/// Merges the server's list with the sessions from `/proc`. `is_elsewhere`: see [`explain`].
fn merge(known: Vec<SessionInfoT>, found: Vec<Row>, is_elsewhere: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = known.into_iter().map(of_server).collect();
    let mut known = HashMap::<_, Vec<usize>>::new();
    for (at, row) in rows.iter().enumerate() {
        known.entry(row.key(is_elsewhere)).or_default().push(at);
    }
    for row in found {
        match known.get_mut(&row.key(is_elsewhere)).and_then(Vec::pop) {
            // Sessions with equal keys are interchangeable in the list.
            Some(at) => rows[at].is_found(&row),
            None => rows.push(row),
        }
    }
    rows.sort_by(|a, b| (a.pid, a.kind, &a.from, &a.to).cmp(&(b.pid, b.kind, &b.from, &b.to)));
    rows
}

/// Adds the rules for which sessions stay in the kernel. The server is asked only if there is such
/// a session.
fn name_rules(rows: &mut [Row], concerned: impl FnOnce() -> Vec<ConcernedInfoT>) {
    let word = ReasonT::Firewall.word();
    let mut rows =
        rows.iter_mut().filter(|row| row.reason == word && row.is_in_kernel()).peekable();
    if rows.peek().is_none() {
        return;
    }
    let text = |text: Option<CString>| text.and_then(|text| text.into_string().ok());
    let concerned: Vec<_> = concerned()
        .into_iter()
        .filter_map(|one| Some((address(&text(one.from)?)?, text(one.to)?, text(one.hook)?)))
        .collect();
    for row in rows {
        let from = address(&row.from);
        let to = address(&row.to);
        let is_its = |(local, remote, _): &&(SocketAddr, String, String)| {
            from == Some(*local) && (remote.is_empty() || to == address(remote))
        };
        row.rule = concerned.iter().find(is_its).map(|(.., hook)| hook.clone());
    }
}

/// Reads an address; an IPv4 address that is mapped into IPv6 is that IPv4 address.
fn address(text: &str) -> Option<SocketAddr> {
    let address: SocketAddr = text.parse().ok()?;
    Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
}

/// Adds the names of the other ends' programs, from these ends' rows or from `/proc`.
fn name_peers(rows: &mut [Row]) {
    let names: HashMap<ProcessId, String> =
        rows.iter().map(|row| (row.pid, row.program.clone())).collect();
    for row in rows {
        let Some(pid) = row.peer_pid.filter(|_| row.peer_program.is_none()) else { continue };
        let name = names.get(&pid).cloned();
        row.peer_program = name.or_else(|| processes::program(Path::new(PROC), pid));
    }
}

/// Adds the TCP state of each connection to its session's row.
fn add_connections(rows: &mut [Row], connections: &[ConnectionInfoT]) {
    let by_stream: HashMap<(Option<StreamNumber>, ProcessId), &ConnectionInfoT> = connections
        .iter()
        .map(|one| ((Some(StreamNumber(one.stream)), ProcessId(one.pid)), one))
        .collect();
    for row in rows {
        row.connection = by_stream.get(&(row.stream, row.pid)).map(|one| Connection::of(one));
    }
}
