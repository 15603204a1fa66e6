//! Whole lists of the `admin` interface, which come in pages.
//!
//! What comes to be while pages are asked for may be in it or not; nothing is in it twice.

use crate::{AdminClient, ConnectionInfoT, RefusedInfoT, SessionInfoT};
use core::cmp::Reverse;
use sojourn_ipc::CallError;

/// All rows of a list. `page` asks for those behind a number, and answers with what to ask for
/// next; 0: that was all.
fn whole<R>(
    mut page: impl FnMut(u64) -> Result<(Option<Vec<R>>, u64), CallError>,
) -> Result<Vec<R>, CallError> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let (rows, last) = page(after)?;
        all.extend(rows.into_iter().flatten());
        after = last;
        if after == 0 {
            return Ok(all);
        }
    }
}

/// All sessions, in order of process and age.
///
/// # Errors
/// Those of the calls.
pub fn sessions(client: &mut AdminClient) -> Result<Vec<SessionInfoT>, CallError> {
    let mut all = whole(|after| client.list(after).map(|page| (page.sessions, page.last)))?;
    all.sort_by_key(|row| (row.pid, Reverse(row.age_ms), row.stream));
    Ok(all)
}

/// All refusals, in order of process and age.
///
/// # Errors
/// Those of the calls.
pub fn refused(client: &mut AdminClient) -> Result<Vec<RefusedInfoT>, CallError> {
    let mut all = whole(|after| client.refused(after).map(|page| (page.refusals, page.last)))?;
    all.sort_by_key(|row| (row.pid, Reverse(row.age_ms), row.inode));
    Ok(all)
}

/// How all sessions with other hosts are, in order of process.
///
/// # Errors
/// Those of the calls.
pub fn connections(client: &mut AdminClient) -> Result<Vec<ConnectionInfoT>, CallError> {
    let mut all =
        whole(|after| client.connections(after).map(|page| (page.connections, page.last)))?;
    all.sort_by_key(|row| (row.pid, row.stream));
    Ok(all)
}

/// The numbers of all processes that have found the server, in order.
///
/// # Errors
/// Those of the calls.
pub fn processes(client: &mut AdminClient) -> Result<Vec<u32>, CallError> {
    whole(|after| client.processes(after).map(|page| (page.pids, page.last)))
}
