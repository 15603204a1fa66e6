use super::*;
use crate::cc::{Controller, Kind};
use crate::time::Instant;

const MSS: u64 = 1_000;

/// A connection in its first slow start; each round of ten samples has one round-trip time.
struct Rounds {
    controller: Controller,
    window: Window,
    una: u64,
}

impl Rounds {
    fn new() -> Rounds {
        let window = Window { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: MSS, max: u64::MAX };
        Rounds { controller: Controller::new(Kind::Cubic, &window, 0), window, una: 0 }
    }

    /// Runs a round of ten segments and returns the growth of the window.
    fn round(&mut self, rtt_ms: u64) -> u64 {
        let before = self.window.cwnd;
        let nxt = self.una + 10 * MSS;
        while self.una < nxt {
            self.una += MSS;
            let acked = Acked {
                now: Instant::ZERO,
                bytes: MSS,
                rtt: Some(Duration::from_millis(rtt_ms)),
                srtt: Some(Duration::from_millis(rtt_ms)),
                una: self.una,
                nxt: nxt + 10 * MSS - (nxt - self.una),
                limited: true,
            };
            self.controller.on_ack(&mut self.window, &acked);
        }
        self.window.cwnd - before
    }
}

#[test]
fn steady_times_change_nothing() {
    let mut rounds = Rounds::new();
    for _ in 0..20 {
        assert_eq!(rounds.round(50), 10 * MSS);
    }
    assert_eq!(rounds.window.ssthresh, u64::MAX);
}

/// RFC 9406, 4.2: an eighth of 80 ms is 10 ms; after five rounds of a quarter of the growth slow
/// start is over.
#[test]
fn a_lasting_rise_ends_slow_start_after_five_careful_rounds() {
    let mut rounds = Rounds::new();
    rounds.round(80);
    rounds.round(80);
    rounds.round(85);
    rounds.round(85);
    assert!(!rounds.controller.hystart.is_conservative(), "five are not enough");
    rounds.round(100);
    rounds.round(100);
    assert!(rounds.controller.hystart.is_conservative());
    let mut careful = 0;
    while rounds.window.ssthresh == u64::MAX {
        let grown = rounds.round(100);
        careful += 1;
        assert!(grown <= 10 * MSS / 4 + MSS, "{grown}");
        assert!(careful < 10);
    }
    assert!((3..=5).contains(&careful), "{careful} rounds");
    assert!(rounds.window.ssthresh <= rounds.window.cwnd);
}

#[test]
fn a_passing_rise_is_forgiven() {
    let mut rounds = Rounds::new();
    rounds.round(80);
    rounds.round(80);
    rounds.round(100);
    rounds.round(100);
    assert!(rounds.controller.hystart.is_conservative());
    rounds.round(80);
    rounds.round(80);
    assert!(!rounds.controller.hystart.is_conservative());
    assert_eq!(rounds.window.ssthresh, u64::MAX);
}

/// The rise that counts is 4 ms at least, and 16 ms at most.
#[test]
fn the_threshold_has_bounds() {
    let mut short = Rounds::new();
    for rtt in [1, 1, 4, 4] {
        short.round(rtt);
    }
    assert!(!short.controller.hystart.is_conservative());
    short.round(9);
    short.round(9);
    assert!(short.controller.hystart.is_conservative());
    let mut long = Rounds::new();
    for rtt in [400, 400, 417, 417] {
        long.round(rtt);
    }
    assert!(long.controller.hystart.is_conservative());
}

#[test]
fn only_the_first_slow_start_is_watched() {
    let mut window = Window { cwnd: 10 * MSS, ssthresh: 500 * MSS, mss: MSS, max: u64::MAX };
    let mut hystart = HyStart::new(window.ssthresh == u64::MAX);
    for una in 0..100 {
        let acked = Acked {
            now: Instant::ZERO,
            bytes: MSS,
            rtt: Some(Duration::from_millis(una)),
            srtt: None,
            una,
            nxt: una + 10,
            limited: true,
        };
        assert_eq!(hystart.on_ack(&mut window, &acked), 1);
    }
    assert_eq!(window.ssthresh, 500 * MSS);
}
