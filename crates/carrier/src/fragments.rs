//! The decision whether fragments of a session's segments are real.
//!
//! The filter drops the first fragment of a TCP segment and notes it, because only the kernel
//! reassembles. Anybody who knows the four numbers of a connection can send such a packet from
//! anywhere, and nothing else of it is checked. Where routers really cut the peer's segments, these
//! are lost and the peer repeats them: notes come again and again, and the session receives nothing
//! in order. So a note counts only together with another one a moment later, if nothing was
//! received between them. Forgery cannot send home a session that receives. It can do so, after
//! seconds, to a session that only sends or is idle, and that session moves out again.
//!
//! Not here: the notes (`sojourn_filter`), and the session's return (`run`).

use crate::clock::later;
use sojourn_filter::Key;
use sojourn_proto::time::Instant;
use std::collections::HashMap;

/// The least and the greatest age of a first note that a second one confirms (microseconds): three
/// repetitions of the peer's lie between them.
const SECOND_US: u64 = 1_500_000;
const FORGOTTEN_US: u64 = 10_000_000;

/// One note of a session.
#[derive(Clone, Copy, Debug)]
struct Note {
    at: Instant,
    /// The next byte to be received then.
    next: u32,
}

/// Sessions with one note.
#[derive(Debug, Default)]
pub(crate) struct Fragments(HashMap<Key, Note>);

impl Fragments {
    /// Notes that fragments of that session have come. `next`: the next byte that it would receive;
    /// `None` if its program does not say, and then the note counts alone. Returns true if the
    /// session has to go home.
    pub(crate) fn are_real(&mut self, key: &Key, next: Option<u32>, at: Instant) -> bool {
        self.0.retain(|_, note| at < later(note.at, FORGOTTEN_US));
        let Some(next) = next else { return true };
        match self.0.get(key) {
            Some(first) if first.next == next => {
                let is_second = at >= later(first.at, SECOND_US);
                if is_second {
                    self.0.remove(key);
                }
                is_second
            }
            _ => {
                self.0.insert(*key, Note { at, next });
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_micros(1_000_000 + ms * 1000)
    }

    fn key(port: u16) -> Key {
        let local = std::net::SocketAddr::from(([192, 0, 2, 1], port));
        let remote = std::net::SocketAddr::from(([192, 0, 2, 2], 2));
        Key::new(sojourn_wire::Protocol::Tcp, local, Some(remote)).unwrap()
    }

    #[test]
    fn one_forged_fragment_moves_nothing_nor_do_many_while_a_session_receives() {
        let mut fragments = Fragments::default();
        for look in 0..20 {
            assert!(!fragments.are_real(&key(1), Some(look), at(u64::from(look) * 1000)));
        }
        assert!(!fragments.are_real(&key(2), Some(7), at(20_000)), "another's");
        assert!(!fragments.are_real(&key(2), Some(7), at(40_000)), "long ago");
    }

    #[test]
    fn a_session_that_stands_still_goes_home_after_the_second_note() {
        let mut fragments = Fragments::default();
        assert!(!fragments.are_real(&key(1), Some(7), at(0)));
        assert!(!fragments.are_real(&key(1), Some(7), at(1000)));
        assert!(fragments.are_real(&key(1), Some(7), at(2000)));
        assert!(!fragments.are_real(&key(1), Some(7), at(3000)), "anew");
        assert!(fragments.are_real(&key(2), None, at(0)));
    }
}
