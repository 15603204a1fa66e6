//! `sojourn move`: recalls a session to the kernel, or has it move out of the kernel.
//!
//! The server passes the request on to the programs that hold the session's ends. The result shows
//! in the server's list of sessions. Not here: that list (`sessions`).

use crate::args::{Filter, Home, Move};
use crate::client::Client;
use crate::output::print;
use crate::sessions::{Name, Row, gather};
use anyhow::{Result, bail};
use sojourn_session::ReasonT;
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
    match (options.session, options.home) {
        (Name::Stream(stream), Home::Kernel) => go_home(&mut client, stream),
        (Name::Stream(stream), Home::Library) => {
            let rows = rows(&mut client)?;
            if rows.iter().any(|row| row.stream == Some(stream)) {
                return print(&format!("session {stream} is away from the kernel already\n"));
            }
            bail!("there is no session {stream} that is yours; `sojourn ss` shows their names")
        }
        (Name::Inode(inode), Home::Kernel) => match find(&rows(&mut client)?, inode).first() {
            Some(row) if row.is_in_kernel() => {
                print(&format!("session @{inode} is in the kernel already\n"))
            }
            Some(Row { stream: Some(stream), .. }) => go_home(&mut client, *stream),
            _ => bail!(none(inode)),
        },
        (Name::Inode(inode), Home::Library) => leave(&mut client, inode),
    }
}

fn go_home(client: &mut Client, stream: u64) -> Result<()> {
    if !client.recall(stream)? {
        bail!("there is no session {stream} that is yours; `sojourn ss` shows their names");
    }
    print(&format!("session {stream} is on its way to the kernel\n"))
}

fn none(inode: u64) -> String {
    format!("there is no session @{inode} that is yours; `sojourn ss` shows their names")
}

/// Lists all sessions.
fn rows(client: &mut Client) -> Result<Vec<Row>> {
    gather(Some(client), &Filter { kind: None, pid: None }, false)
}

fn find(rows: &[Row], inode: u64) -> Vec<Row> {
    rows.iter().filter(|row| row.inode == Some(inode)).cloned().collect()
}

/// Asks the programs at both ends to offer their ends, and waits for the result.
fn leave(client: &mut Client, inode: u64) -> Result<()> {
    let all = rows(client)?;
    let own = find(&all, inode);
    let Some(first) = own.first() else { bail!(none(inode)) };
    if !first.is_in_kernel() {
        return print(&format!("session @{inode} is away from the kernel already\n"));
    }
    let mut ends = own.clone();
    ends.extend(all.iter().filter(|row| own.iter().any(|own| is_other_end(own, row))).cloned());
    for end in &ends {
        let Some(inode) = end.inode else { continue };
        if !client.move_in(end.pid, inode)? {
            bail!(nobody_to_ask(end));
        }
    }
    outcome(client, &ends, inode)
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

fn outcome(client: &mut Client, ends: &[Row], inode: u64) -> Result<()> {
    let begun = Instant::now();
    loop {
        let is_one = |pid, from: &str, to: &str| {
            ends.iter().any(|end| (end.pid, &*end.from, &*end.to) == (pid, from, to))
        };
        let known = client.rows()?;
        let of_ours: Vec<&Row> =
            known.iter().filter(|row| is_one(row.pid, &row.from, &row.to)).collect();
        if let Some(stream) = of_ours.iter().find_map(|row| row.stream) {
            return print(&format!("session @{inode} is away from the kernel, as {stream}\n"));
        }
        let refused = client.refused();
        let is_ours =
            |pid, inode| ends.iter().any(|end| end.pid == pid && end.inode == Some(inode));
        let refusal = refused.iter().find(|refused| is_ours(refused.pid, refused.inode));
        if let Some(refusal) = refusal {
            bail!("it stays in the kernel: {}", refusal.reason.sentence());
        }
        let waits = !of_ours.is_empty() && begun.elapsed() > WAIT_WITHIN;
        if waits {
            let rows = rows(client)?;
            let own = rows.iter().find(|row| row.inode == Some(inode));
            let why = own.map_or(ReasonT::NoPeer.sentence(), Row::sentence);
            bail!("it is offered, and waits: {why}");
        }
        if begun.elapsed() > LEAVE_WITHIN {
            bail!("its program has not answered; `sojourn ss --why` says more");
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
