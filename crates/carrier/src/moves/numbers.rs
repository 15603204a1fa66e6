//! The last known state of a session whose program is silent, as far as the carrier can tell it by
//! itself.
//!
//! Not here: the use of it (`end`). Read `docs/understand/moves.md`.

use crate::session::Delegated;
use sojourn_proto::record::{Kind, SessionRecord};
use sojourn_pump::{position, unread, unsent};
use sojourn_wire::tcp::SeqNum;

/// Returns the state of a session whose program can no longer tell: that of the delegation, if no
/// engine has run; else the ledger's, with the bytes in the rings.
pub(super) fn last_known(delegated: &Delegated) -> SessionRecord {
    let mut record = delegated.record.clone();
    let Kind::Tcp(tcp) = &mut record.kind else { return record };
    let Delegated { stream, .. } = delegated;
    let first = tcp.snd_una.wrapping_add(stream.read_so_far().unwrap_or(0) as u32);
    let mut skip = 0;
    let is_told = position::apply(&stream.ledger().published(), tcp);
    if is_told {
        tcp.receive_queue = unread(stream);
        let oldest = oldest(SeqNum(tcp.snd_una), SeqNum(first));
        (tcp.snd_una, skip) = (oldest.seq.0, oldest.skip);
    }
    tcp.send_queue = unsent(stream, skip);
    let sent = tcp.snd_nxt.wrapping_sub(tcp.snd_una) as usize;
    // The ledger is written before a segment is sent. The kernel sends at once what had not been
    // sent. Not more can have been sent than there is.
    if sent > tcp.send_queue.len() {
        tcp.snd_nxt = tcp.snd_una.wrapping_add(tcp.send_queue.len() as u32);
    }
    record
}

/// The oldest byte that the peer may not have.
#[derive(Debug, PartialEq, Eq)]
struct OldestByte {
    seq: SeqNum,
    /// Bytes of the ring before it.
    skip: usize,
}

/// Returns the oldest byte by the ledger and by the beginning of the ring. The ring may still have
/// bytes acknowledged last; or the ring has released them, and the program died before it wrote the
/// ledger.
fn oldest(told: SeqNum, ring: SeqNum) -> OldestByte {
    match told.ahead_of(ring) {
        ..0 => OldestByte { seq: ring, skip: 0 },
        before => OldestByte { seq: told, skip: before as usize },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_acknowledged_is_out_of_the_ring_before_or_after_it_is_told() {
        assert_eq!(oldest(SeqNum(1000), SeqNum(1000)), OldestByte { seq: SeqNum(1000), skip: 0 });
        assert_eq!(oldest(SeqNum(1300), SeqNum(1000)), OldestByte { seq: SeqNum(1300), skip: 300 });
        assert_eq!(
            oldest(SeqNum(1000), SeqNum(1300)),
            OldestByte { seq: SeqNum(1300), skip: 0 },
            "told too late"
        );
        assert_eq!(oldest(SeqNum(u32::MAX), SeqNum(4)), OldestByte { seq: SeqNum(4), skip: 0 });
        assert_eq!(oldest(SeqNum(4), SeqNum(u32::MAX)), OldestByte { seq: SeqNum(4), skip: 5 });
    }
}
