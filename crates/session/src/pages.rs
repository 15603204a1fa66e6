//! Whole lists of the `admin` interface, which come in pages.
//!
//! What comes to be while pages are asked for may be in it or not; nothing is in it twice.

use crate::{AdminClient, ConnectionInfoT, RefusedInfoT, SessionInfoT};
use core::cmp::Reverse;
use sojourn_ipc::CallError;

/// All sessions, in order of process and age.
///
/// # Errors
/// Those of the calls.
pub fn sessions(client: &mut AdminClient) -> Result<Vec<SessionInfoT>, CallError> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = client.list(after)?;
        all.extend(page.sessions.into_iter().flatten());
        after = page.last;
        if after == 0 {
            all.sort_by_key(|row| (row.pid, Reverse(row.age_ms), row.stream));
            return Ok(all);
        }
    }
}

/// All refusals, in order of process and age.
///
/// # Errors
/// Those of the calls.
pub fn refused(client: &mut AdminClient) -> Result<Vec<RefusedInfoT>, CallError> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = client.refused(after)?;
        all.extend(page.refusals.into_iter().flatten());
        after = page.last;
        if after == 0 {
            all.sort_by_key(|row| (row.pid, Reverse(row.age_ms), row.inode));
            return Ok(all);
        }
    }
}

/// How all sessions with other hosts are, in order of process.
///
/// # Errors
/// Those of the calls.
pub fn connections(client: &mut AdminClient) -> Result<Vec<ConnectionInfoT>, CallError> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = client.connections(after)?;
        all.extend(page.connections.into_iter().flatten());
        after = page.last;
        if after == 0 {
            all.sort_by_key(|row| (row.pid, row.stream));
            return Ok(all);
        }
    }
}

/// The numbers of all processes that have found the server, in order.
///
/// # Errors
/// Those of the calls.
pub fn processes(client: &mut AdminClient) -> Result<Vec<u32>, CallError> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = client.processes(after)?;
        all.extend(page.pids.into_iter().flatten());
        after = page.last;
        if after == 0 {
            return Ok(all);
        }
    }
}
