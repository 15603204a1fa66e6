//! `sojourn move`: recalls a session to the kernel, or has it move out of the kernel.
//!
//! The server passes the request on to the programs that hold the session's ends. The result shows
//! in the server's list of sessions. Not here: that list (`sessions`).

use crate::args::{Filter, Home, Move};
use crate::client::Client;
use crate::output::print;
use crate::sessions::{Name, Row, gather};
use anyhow::{Result, bail};
use sojourn_session::{HomeT, Inode, ReasonT, StreamNumber};
use std::time::{Duration, Instant};

/// The time in which a session has to leave the kernel. Its peer has two seconds of that to
/// acknowledge bytes in flight.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);
/// The time that an offer waits for the other end before that end counts as missing.
const WAIT_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Moves a session.
pub(crate) fn move_session(options: &Move) -> Result<()> {
    let mut client = Client::connect(&options.server_args)?;
    let rows = rows(&mut client)?;
    let is_it = |row: &&Row| match options.session {
        Name::Stream(stream) => row.stream == Some(stream),
        Name::Inode(inode) => row.inode == Some(inode),
    };
    let Some(found) = rows.iter().find(is_it) else { bail!(none(options.session)) };
    // A session in the protocol server has a row of its program's, too.
    let of_it: Vec<&Row> = rows.iter().filter(|row| is_same(found, row)).collect();
    let away = of_it.iter().find(|row| !row.is_in_kernel());
    let name = options.session;
    match (away, options.home) {
        (None, Home::Kernel) => {
            return print(&format!("session {name} is in the kernel already\n"));
        }
        (Some(row), home) if row.home == home.word() => {
            return print(&format!("session {name} is away from the kernel already\n"));
        }
        _ => {}
    }
    // The programs that hold it; the protocol server moves nothing that they have not handed to it.
    let programs: Vec<&Row> = of_it.iter().copied().filter(|row| row.home != SERVER).collect();
    match (away.and_then(|row| row.stream), options.home, programs.as_slice()) {
        // A program that calls the protocol server itself has its session recalled there.
        (Some(stream), Home::Kernel, _) if away.is_some_and(|row| row.home != SERVER) => {
            go_home(&mut client, stream)
        }
        (Some(stream), Home::Kernel, []) => go_home(&mut client, stream),
        (_, home, programs) => bring(&mut client, &rows, programs, found, home),
    }
}

/// The home of sessions in the protocol server, as a row has it.
const SERVER: &str = "server";

impl Home {
    fn word(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Library => "library",
            Self::Server => SERVER,
        }
    }
}

fn go_home(client: &mut Client, stream: StreamNumber) -> Result<()> {
    if !client.recall(stream)? {
        bail!(none(Name::Stream(stream)));
    }
    print(&format!("session {stream} is on its way to the kernel\n"))
}

fn none(name: Name) -> String {
    format!("there is no session {name} that is yours; `sojourn ss` shows their names")
}

/// Lists all sessions.
fn rows(client: &mut Client) -> Result<Vec<Row>> {
    gather(Some(client), &Filter { kind: None, pid: None }, false)
}

/// Returns true if both rows are of one end of a connection, or of one pipe.
fn is_same(row: &Row, other: &Row) -> bool {
    let is_one = row.inode.is_some() && row.inode == other.inode;
    is_one
        || row.kind == other.kind
            && row.is_of_hosts()
            && (&row.from, &row.to) == (&other.from, &other.to)
}

/// Asks the programs at both ends to bring their ends to a home, and waits for the result.
fn bring(
    client: &mut Client,
    all: &[Row],
    programs: &[&Row],
    found: &Row,
    home: Home,
) -> Result<()> {
    let mut ends: Vec<Row> = programs.iter().copied().cloned().collect();
    if home == Home::Library {
        ends.extend(all.iter().filter(|row| is_other_end(found, row)).cloned());
    }
    let wanted = match home {
        Home::Kernel => HomeT::Kernel,
        Home::Library => HomeT::Library,
        Home::Server => HomeT::Server,
    };
    for end in &ends {
        let Some(inode) = end.inode else { continue };
        if !client.move_in(end.pid, inode, wanted)? {
            bail!(nobody_to_ask(end));
        }
    }
    let name = found.inode.map_or_else(String::new, |inode| format!("@{inode}"));
    if home == Home::Kernel {
        return print(&format!("session {name} is on its way to the kernel\n"));
    }
    outcome(client, &ends, &name, home)
}

/// Returns the reason why the server does not know an end's program.
fn nobody_to_ask(end: &Row) -> String {
    let why = if end.reason == ReasonT::NotHot.word() {
        "nothing of it has been hot so far, so there is nobody to ask"
    } else {
        end.sentence()
    };
    format!("{} ({}) is not known to the session server: {why}", end.program, end.pid)
}

/// Returns true if the rows are the two ends of one connection of this host.
fn is_other_end(row: &Row, other: &Row) -> bool {
    row.kind == other.kind && row.kind != "pipe" && row.from == other.to && row.to == other.from
}

fn outcome(client: &mut Client, ends: &[Row], name: &str, home: Home) -> Result<()> {
    let begun = Instant::now();
    loop {
        let is_one = |pid, from: &str, to: &str| {
            let is_program = |end: &Row| end.pid == pid || home == Home::Server;
            ends.iter().any(|end| is_program(end) && (&*end.from, &*end.to) == (from, to))
        };
        let known = client.rows()?;
        let of_ours: Vec<&Row> =
            known.iter().filter(|row| is_one(row.pid, &row.from, &row.to)).collect();
        let there = of_ours.iter().find(|row| row.home == home.word());
        if let Some(stream) = there.and_then(|row| row.stream) {
            return print(&format!("session {name} is away from the kernel, as {stream}\n"));
        }
        let refused = client.refused();
        let is_ours =
            |pid, inode| ends.iter().any(|end| end.pid.0 == pid && end.inode == Some(Inode(inode)));
        // The program hands it over with its next call.
        let is_final = |reason: ReasonT| {
            // It has gone home from another home on the way.
            let is_on_its_way = reason == ReasonT::User;
            !is_on_its_way && (home != Home::Server || reason != ReasonT::ProtocolServer)
        };
        let refusal = refused
            .iter()
            .find(|refused| is_ours(refused.pid, refused.inode) && is_final(refused.reason));
        if let Some(refusal) = refusal {
            bail!("it stays in the kernel: {}", refusal.reason.sentence());
        }
        let inode = ends.first().and_then(|end| end.inode);
        let waits = !of_ours.is_empty() && begun.elapsed() > WAIT_WITHIN;
        if waits {
            let rows = rows(client)?;
            let own = rows.iter().find(|row| row.inode == inode);
            let why = own.map_or(ReasonT::NoPeer.sentence(), Row::sentence);
            bail!("it is offered, and waits: {why}");
        }
        if begun.elapsed() > LEAVE_WITHIN {
            bail!("its program has not answered; `sojourn ss --why` says more");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
