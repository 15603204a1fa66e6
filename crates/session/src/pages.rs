//! Complete lists of the `admin` interface, which the server returns in pages.
//!
//! An entry that comes into being while pages are read may be in the list or not. No entry is in
//! the list twice.

use crate::{AdminClient, ConnectionInfoT, FAULT_RESOURCES, RefusedInfoT, SessionInfoT};
use core::cmp::Reverse;
use core::time::Duration;
use sojourn_ipc::CallError;

/// The pause after a refused page: the server gives each user a share of each second for lists.
const PAUSE: Duration = Duration::from_millis(100);
/// The most pauses of one list.
const PAUSES_MAX: u32 = 100;

/// Returns all rows of a list.
///
/// `page` returns the rows that follow a row number, and the number to continue with. The number 0
/// marks the last page.
fn whole<R>(
    mut page: impl FnMut(u64) -> Result<(Option<Vec<R>>, u64), CallError>,
) -> Result<Vec<R>, CallError> {
    let (mut all, mut after, mut pauses) = (Vec::new(), 0, 0);
    loop {
        let (rows, last) = match page(after) {
            Err(error) if error.status() == FAULT_RESOURCES as u32 && pauses < PAUSES_MAX => {
                pauses += 1;
                std::thread::sleep(PAUSE);
                continue;
            }
            page => page?,
        };
        all.extend(rows.into_iter().flatten());
        after = last;
        if after == 0 {
            return Ok(all);
        }
    }
}

/// Returns all sessions that the caller may see, ordered by process, oldest first.
///
/// # Errors
/// The error of the first call that fails.
pub fn sessions(client: &mut AdminClient) -> Result<Vec<SessionInfoT>, CallError> {
    let mut all = whole(|after| client.list(after).map(|page| (page.sessions, page.last)))?;
    all.sort_by_key(|row| (row.pid, Reverse(row.age_ms), row.stream));
    Ok(all)
}

/// Returns all refusals that the caller may see, ordered by process, oldest first.
///
/// # Errors
/// The error of the first call that fails.
pub fn refused(client: &mut AdminClient) -> Result<Vec<RefusedInfoT>, CallError> {
    let mut all = whole(|after| client.refused(after).map(|page| (page.refusals, page.last)))?;
    all.sort_by_key(|row| (row.pid, Reverse(row.age_ms), row.inode));
    Ok(all)
}

/// Returns the state of all sessions with other hosts that the caller may see, ordered by process.
///
/// # Errors
/// The error of the first call that fails.
pub fn connections(client: &mut AdminClient) -> Result<Vec<ConnectionInfoT>, CallError> {
    let mut all =
        whole(|after| client.connections(after).map(|page| (page.connections, page.last)))?;
    all.sort_by_key(|row| (row.pid, row.stream));
    Ok(all)
}

/// Returns the process IDs of all processes that have made themselves known to the server and that
/// the caller may see, in order.
///
/// # Errors
/// The error of the first call that fails.
pub fn processes(client: &mut AdminClient) -> Result<Vec<u32>, CallError> {
    whole(|after| client.processes(after).map(|page| (page.pids, page.last)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_ipc::rt::Fault;

    #[test]
    fn a_list_goes_on_after_the_server_has_refused_a_page_for_now() {
        let mut refusals = 2;
        let list = whole(|after| match after {
            7 if refusals > 0 => {
                refusals -= 1;
                Err(CallError::Fault(Fault(FAULT_RESOURCES as u32)))
            }
            7 => Ok((Some(vec![3]), 0)),
            _ => Ok((Some(vec![1, 2]), 7)),
        });
        assert_eq!(list.unwrap(), [1, 2, 3]);
        let gone = whole(|_| Err::<(Option<Vec<u8>>, u64), _>(CallError::Timeout));
        assert!(matches!(gone, Err(CallError::Timeout)));
    }
}
