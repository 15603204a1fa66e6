//! The counts of a UDP socket's traffic past the kernel, for people.
//!
//! The pump writes them to the ledger a tenth of a second after something has happened (like TCP's
//! `figures`), and once more when the socket goes home. The reader trusts them no more than the
//! program's process, which may write anything there. Datagrams through the kernel's socket are not
//! counted (`docs/understand/moves.md`, "UDP"). Not here: the ledger (`sojourn_stream`).

use sojourn_stream::LEDGER_WORDS;

/// The counts of one socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Bytes of payload sent.
    pub sent_bytes: u64,
    /// Datagrams sent.
    pub sent: u64,
    /// Bytes of payload that came and found room.
    pub received_bytes: u64,
    /// Datagrams that came and found room.
    pub received: u64,
    /// Datagrams that came and found no room.
    pub dropped: u64,
}

impl Counts {
    /// Encodes the counts as words of the ledger.
    pub fn words(&self) -> [u32; LEDGER_WORDS] {
        let all = [self.sent_bytes, self.sent, self.received_bytes, self.received, self.dropped];
        let mut words = [0; LEDGER_WORDS];
        for (pair, count) in words.chunks_exact_mut(2).zip(all) {
            pair.copy_from_slice(&[count as u32, (count >> 32) as u32]);
        }
        words
    }

    /// Decodes the counts from words of a ledger.
    pub fn from_words(words: &[u32; LEDGER_WORDS]) -> Self {
        let count = |at: usize| u64::from(words[at]) | u64::from(words[at + 1]) << 32;
        let [sent_bytes, sent, received_bytes, received, dropped] = [0, 2, 4, 6, 8].map(count);
        Self { sent_bytes, sent, received_bytes, received, dropped }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_comes_back() {
        let counts = Counts {
            sent_bytes: u64::MAX - 1,
            sent: 1 << 40,
            received_bytes: 3,
            received: u32::MAX.into(),
            dropped: 5,
        };
        assert_eq!(Counts::from_words(&counts.words()), counts);
        assert_eq!(Counts::from_words(&[0; LEDGER_WORDS]), Counts::default());
    }
}
