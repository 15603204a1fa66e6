//! The state of a session as far as the carrier can tell by itself: segments that slipped past the
//! filter, and the last known state of a session whose program is silent.
//!
//! Not here: the use of these (`end`). Read `docs/understand/moves.md`.

use crate::export::{Unexported, take_unexported};
use crate::session::Delegated;
use sojourn_proto::record::{Kind, SessionRecord, TcpRecord};
use sojourn_pump::{position, unread, unsent};
use sojourn_wire::tcp::SeqNum;

/// Adds the bytes that the kernel has received and acknowledged after the session was taken out.
/// Returns true if the peer's FIN has come so.
pub(super) fn add_unexported(record: &mut SessionRecord, delegated: &Delegated) -> bool {
    let (Kind::Tcp(tcp), Kind::Tcp(base)) = (&mut record.kind, &delegated.record.kind) else {
        return false;
    };
    append(tcp, base.rcv_nxt, &take_unexported(&delegated.socket))
}

/// Adds what has come from the byte `first` on, as far as the record does not have it. Returns true
/// if the peer's FIN follows the record's last byte.
fn append(tcp: &mut TcpRecord, first: u32, unexported: &Unexported) -> bool {
    let known = tcp.rcv_nxt.wrapping_sub(first) as usize;
    // The engine has received more than the kernel.
    let Some(missing) = unexported.bytes.get(known..) else { return false };
    tcp.receive_queue.extend(missing);
    tcp.rcv_nxt = tcp.rcv_nxt.wrapping_add(missing.len() as u32);
    unexported.has_ended
}

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
    fn what_is_late_is_added_once_and_an_end_counts_at_the_end() {
        let first = u32::MAX - 1;
        let unexported = Unexported { bytes: b"abcd".to_vec(), has_ended: true };
        for (known, added, is_at_end) in
            [(0, &b"abcd"[..], true), (3, b"d", true), (4, b"", true), (5, b"", false)]
        {
            let rcv_nxt = first.wrapping_add(known);
            let mut tcp = TcpRecord { rcv_nxt, ..TcpRecord::default() };
            assert_eq!(append(&mut tcp, first, &unexported), is_at_end, "{known}");
            assert_eq!(tcp.receive_queue, added);
            assert_eq!(tcp.rcv_nxt, rcv_nxt.wrapping_add(added.len() as u32));
        }
    }

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
