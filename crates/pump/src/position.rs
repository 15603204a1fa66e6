//! The words of a carried session's ledger: the state of its connection.
//!
//! Not here: the bytes. Those that the peer has not acknowledged stay in the program's ring. Read
//! `sojourn_stream::Ledger`.

use sojourn_proto::record::{TcpRecord, TimestampsRecord};
use sojourn_stream::LEDGER_WORDS;
use sojourn_wire::SeqNum;

/// Encodes the state of a connection.
pub fn words(tcp: &TcpRecord) -> [u32; LEDGER_WORDS] {
    let stamps = tcp
        .timestamps
        .map_or([0; 3], |stamps| [stamps.value, stamps.recent, u32::from(stamps.recent_valid)]);
    let mut words = [0; LEDGER_WORDS];
    let fields = [
        1,
        tcp.snd_una,
        tcp.snd_nxt,
        tcp.snd_wnd,
        tcp.snd_wl1,
        tcp.snd_wl2,
        tcp.max_window,
        tcp.rcv_nxt,
        tcp.rcv_wnd,
        tcp.rcv_wup,
        stamps[0],
        stamps[1],
        stamps[2],
    ];
    words[..fields.len()].copy_from_slice(&fields);
    words
}

/// The segments of a session that are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// The first byte that the peer has not acknowledged (SND.UNA of RFC 9293).
    pub una: SeqNum,
    /// The next one to be sent (SND.NXT).
    pub nxt: SeqNum,
}

/// Returns the segments under way. `None` if nothing was written yet.
pub fn under_way(words: &[u32; LEDGER_WORDS]) -> Option<UnderWay> {
    (words[0] != 0).then(|| UnderWay { una: SeqNum(words[1]), nxt: SeqNum(words[2]) })
}

/// Returns the next byte to be received (RCV.NXT). `None` if nothing was written yet.
pub fn received_up_to(words: &[u32; LEDGER_WORDS]) -> Option<u32> {
    (words[0] != 0).then_some(words[7])
}

/// Sets the numbers of `record` to those of the words. Returns false if nothing was written yet.
pub fn apply(words: &[u32; LEDGER_WORDS], record: &mut TcpRecord) -> bool {
    if words[0] == 0 {
        return false;
    }
    [record.snd_una, record.snd_nxt, record.snd_wnd, record.snd_wl1, record.snd_wl2] =
        [words[1], words[2], words[3], words[4], words[5]];
    [record.max_window, record.rcv_nxt, record.rcv_wnd, record.rcv_wup] =
        [words[6], words[7], words[8], words[9]];
    if let Some(stamps) = &mut record.timestamps {
        *stamps = TimestampsRecord {
            value: words[10],
            recent: words[11],
            recent_valid: words[12] != 0,
            ..*stamps
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_proto::record::TimestampUnit;
    use sojourn_proto::time::Duration;

    #[test]
    fn what_was_told_comes_back() {
        let stamps = TimestampsRecord {
            unit: TimestampUnit::Milliseconds,
            value: 7,
            recent: 8,
            recent_age: Duration::ZERO,
            recent_valid: true,
        };
        let record = TcpRecord {
            snd_una: 1,
            snd_nxt: 2,
            snd_wnd: 3,
            snd_wl1: 4,
            snd_wl2: 5,
            max_window: 6,
            rcv_nxt: 7,
            rcv_wnd: 8,
            rcv_wup: 9,
            timestamps: Some(stamps),
            ..TcpRecord::default()
        };
        let words = words(&record);
        let empty = TimestampsRecord { value: 0, recent: 0, recent_valid: false, ..stamps };
        let mut back = TcpRecord { timestamps: Some(empty), ..TcpRecord::default() };
        assert!(apply(&words, &mut back));
        assert_eq!(back, record);
        assert_eq!(under_way(&words), Some(UnderWay { una: SeqNum(1), nxt: SeqNum(2) }));
        assert_eq!(under_way(&[0; LEDGER_WORDS]), None);
        assert!(!apply(&[0; LEDGER_WORDS], &mut back));
    }
}
