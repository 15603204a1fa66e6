//! The bytes that the kernel has counted of a TCP connection on this host: those which were sent
//! before some moment are told from those sent later, although both may be on their way.
//!
//! Not here: what is counted by queue (`kernel::input_queue`), and who needs this
//! (`moves::residue`).

use crate::host::kernel;
use sojourn_proto::tcp::TcpInfo;
use sojourn_pump::tcp_info;

/// States of a connection whose peer has ended (`include/net/tcp_states.h`).
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;
/// Looks at counts that must not change meanwhile.
const LOOKS: u32 = 8;

fn counts(fd: i32) -> Option<TcpInfo> {
    tcp_info::of(kernel::at(fd).ok()?).ok()
}

/// Counts the bytes that were ever sent. `None`: not all of them have been acknowledged, or this
/// kernel does not count them.
pub(crate) fn sent_in_all(fd: i32) -> Option<u64> {
    let counts = counts(fd)?;
    let sent = counts.bytes_sent.checked_sub(counts.bytes_retrans)?;
    // Of the end that has connected, the acknowledgement of its SYN counts, too.
    matches!(counts.bytes_acked.checked_sub(sent), Some(0 | 1)).then_some(sent)
}

/// Counts the bytes that were ever received.
fn received_in_all(fd: i32) -> Option<u64> {
    let counts = counts(fd)?;
    // The peer's FIN counts as a byte.
    let has_ended = matches!(counts.state, CLOSE_WAIT | LAST_ACK | CLOSING);
    Some(counts.bytes_received.saturating_sub(u64::from(has_ended)))
}

/// Counts the bytes that can be received and are of the first `sent` ever sent. `None`: more have
/// arrived during each look.
pub(crate) fn queued_of_first(fd: i32, sent: u64) -> Option<usize> {
    (0..LOOKS).find_map(|_| {
        let received = received_in_all(fd)?;
        let queued = kernel::input_queue(fd);
        let later = usize::try_from(received.saturating_sub(sent)).unwrap_or(usize::MAX);
        (received_in_all(fd) == Some(received)).then(|| queued.saturating_sub(later))
    })
}
