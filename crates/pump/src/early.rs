//! Datagrams that come before their socket: the filter learns of a socket a moment before the pump
//! does, and longer before, if the message about the socket is held up.
//!
//! Nothing else has these datagrams, so they get as much room as a receive buffer of the kernel's.
//! Not here: segments that come before their session, which are sent again (`pump`).

use sojourn_proto::time::Instant;
use sojourn_proto::udp::Envelope;
use sojourn_wire::FlowKey;
use std::collections::VecDeque;

/// Bytes that are kept at most, [`OVERHEAD`] included.
const BYTES_MAX: usize = 4 << 20;
/// What a datagram counts beyond its payload: about what the kernel charges (`sk_buff`).
const OVERHEAD: usize = 512;
/// How long a datagram is kept (microseconds): a later socket of the same port is another one.
const LASTS_US: u64 = 500_000;

/// A datagram that came before its socket, or several merged ones.
#[derive(Debug)]
pub(crate) struct EarlyDatagram {
    pub(crate) key: FlowKey,
    pub(crate) envelope: Envelope,
    pub(crate) payload: Box<[u8]>,
    pub(crate) segment_size: u16,
    pub(crate) at: Instant,
}

impl EarlyDatagram {
    fn bytes(&self) -> usize {
        OVERHEAD + self.payload.len()
    }

    fn is_over(&self, now: Instant) -> bool {
        now.since(self.at).as_micros() >= LASTS_US
    }
}

/// The datagrams without a socket, oldest first.
#[derive(Debug, Default)]
pub(crate) struct EarlyDatagrams {
    queue: VecDeque<EarlyDatagram>,
    bytes: usize,
}

impl EarlyDatagrams {
    /// Keeps a datagram. As in a full receive buffer, the newest is dropped if there is no room.
    pub(crate) fn push(&mut self, one: EarlyDatagram) {
        while self.queue.front().is_some_and(|first| first.is_over(one.at)) {
            self.pop();
        }
        let bytes = self.bytes + one.bytes();
        if bytes <= BYTES_MAX {
            self.bytes = bytes;
            self.queue.push_back(one);
        }
    }

    /// Takes all datagrams that are not too old at `now`.
    pub(crate) fn take(&mut self, now: Instant) -> impl Iterator<Item = EarlyDatagram> + use<> {
        self.bytes = 0;
        core::mem::take(&mut self.queue).into_iter().filter(move |one| !one.is_over(now))
    }

    fn pop(&mut self) {
        if let Some(first) = self.queue.pop_front() {
            self.bytes -= first.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::Protocol;

    fn datagram(number: u16, at_us: u64) -> EarlyDatagram {
        let address = "192.0.2.1:1000".parse().unwrap();
        EarlyDatagram {
            key: FlowKey { protocol: Protocol::Udp, source: address, target: address },
            envelope: Envelope {
                target: address.ip(),
                time_ns: 0,
                traffic_class: 0,
                hop_limit: 64,
            },
            payload: Box::new(number.to_be_bytes()),
            segment_size: 0,
            at: Instant::from_micros(at_us),
        }
    }

    fn numbers(early: &mut EarlyDatagrams, now_us: u64) -> Vec<u16> {
        let all = early.take(Instant::from_micros(now_us));
        all.map(|one| u16::from_be_bytes(one.payload[..].try_into().unwrap())).collect()
    }

    #[test]
    fn there_is_as_much_room_as_in_a_receive_buffer() {
        let mut early = EarlyDatagrams::default();
        for number in 0..10_000 {
            early.push(datagram(number, u64::from(number)));
        }
        let kept = numbers(&mut early, 10_000);
        assert!(kept.len() > 5_000 && kept.len() < 10_000, "{}", kept.len());
        assert_eq!(kept, (0..kept.len() as u16).collect::<Vec<_>>(), "the newest are dropped");
        early.push(datagram(7, 10_000));
        assert_eq!(numbers(&mut early, 10_000), [7], "there is room again");
    }

    #[test]
    fn the_oldest_are_dropped_when_their_time_is_over() {
        let mut early = EarlyDatagrams::default();
        early.push(datagram(1, 0));
        early.push(datagram(2, 100_000));
        early.push(datagram(3, LASTS_US));
        assert_eq!(early.bytes, 2 * datagram(0, 0).bytes());
        assert_eq!(numbers(&mut early, LASTS_US + 100_000), [3]);
    }
}
