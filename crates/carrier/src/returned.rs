//! Sessions that were put back a moment ago, by their tokens: the segments that their libraries
//! have received since may still be given to the kernel.
//!
//! That is possible once, and only for a while: later the socket may be another program's. Not
//! here: giving segments to the kernel (`replay`).

use crate::clock::later;
use sojourn_proto::time::Instant;
use sojourn_session::DelegationToken;
use sojourn_wire::FlowKey;
use std::collections::{HashMap, VecDeque};

/// How long a session stays here (microseconds).
const KEPT_US: u64 = 2_000_000;
/// Sessions kept at most; the oldest goes first.
const MAX: usize = 65_536;

/// The sessions that were put back a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Returned {
    /// The flows of the sessions' own frames, by token.
    flows: HashMap<DelegationToken, FlowKey>,
    /// The tokens in the order of their ends, also those that were taken.
    ages: VecDeque<Age>,
}

/// The end of a session's stay here.
#[derive(Debug)]
struct Age {
    until: Instant,
    token: DelegationToken,
}

impl Returned {
    /// Adds a session.
    pub(crate) fn add(&mut self, token: DelegationToken, flow: FlowKey, at: Instant) {
        self.forget_old(at);
        if self.ages.len() == MAX
            && let Some(Age { token: oldest, .. }) = self.ages.pop_front()
        {
            self.flows.remove(&oldest);
        }
        self.flows.insert(token, flow);
        self.ages.push_back(Age { until: later(at, KEPT_US), token });
    }

    /// Takes the session of a token, if it is in time. A token counts once.
    pub(crate) fn take(&mut self, token: DelegationToken, at: Instant) -> Option<FlowKey> {
        self.forget_old(at);
        self.flows.remove(&token)
    }

    fn forget_old(&mut self, at: Instant) {
        while let Some(Age { token, .. }) = self.ages.pop_front_if(|age| age.until <= at) {
            self.flows.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_wire::Protocol;

    fn flow(port: u16) -> FlowKey {
        let (source, target) = (([192, 0, 2, 1], port).into(), ([192, 0, 2, 2], 80).into());
        FlowKey { protocol: Protocol::Tcp, source, target }
    }

    #[test]
    fn each_is_known_once_and_for_a_while() {
        let mut returned = Returned::default();
        let at = Instant::from_micros;
        for (token, us) in [(1, 0), (2, 0), (3, 5)] {
            returned.add(DelegationToken(token), flow(token as u16), at(us));
        }
        assert_eq!(returned.take(DelegationToken(1), at(KEPT_US - 1)), Some(flow(1)));
        assert_eq!(returned.take(DelegationToken(1), at(KEPT_US - 1)), None);
        assert_eq!(returned.take(DelegationToken(2), at(KEPT_US)), None);
        assert_eq!(returned.take(DelegationToken(3), at(KEPT_US)), Some(flow(3)));
        assert_eq!(returned.take(DelegationToken(4), at(KEPT_US)), None);
        returned.add(DelegationToken(5), flow(5), at(2 * KEPT_US));
        assert_eq!((returned.flows.len(), returned.ages.len()), (1, 1));
    }

    #[test]
    fn of_too_many_the_oldest_goes() {
        let mut returned = Returned::default();
        for token in 0..=MAX as u64 {
            returned.add(DelegationToken(token), flow(1), Instant::ZERO);
        }
        assert_eq!((returned.flows.len(), returned.ages.len()), (MAX, MAX));
        assert_eq!(returned.take(DelegationToken(0), Instant::ZERO), None);
        assert_eq!(returned.take(DelegationToken(1), Instant::ZERO), Some(flow(1)));
    }
}
