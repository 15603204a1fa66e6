use proptest::prelude::*;

use super::*;
use crate::time::{Duration, Instant};

const MSS: u64 = 1_000;

fn window(cwnd: u64, ssthresh: u64) -> Window {
    Window { cwnd: cwnd * MSS, ssthresh, mss: MSS, max: 1 << 30 }
}

fn acked(now_ms: u64, bytes: u64) -> Acked {
    Acked {
        now: Instant::from_millis(now_ms),
        bytes,
        rtt: None,
        srtt: Some(Duration::from_millis(100)),
        una: 0,
        nxt: 0,
        limited: true,
    }
}

/// RFC 5681, 3.1.
#[test]
fn slow_start_doubles_and_stops_at_the_threshold() {
    let mut window = window(10, 15 * MSS);
    let mut controller = Controller::new(Kind::Reno, &window, 0);
    for _ in 0..10 {
        controller.on_ack(&mut window, &acked(0, MSS));
    }
    // Five segments lead to the threshold; the other five are a third of a window.
    assert_eq!(window.cwnd, 15 * MSS);
    for _ in 0..10 {
        controller.on_ack(&mut window, &acked(0, MSS));
    }
    assert_eq!(window.cwnd, 16 * MSS, "one segment for a window");
}

/// RFC 5681, equation 4, and RFC 9438, 4.6.
#[test]
fn congestion_halves_reno_and_leaves_cubic_seven_tenths() {
    for (kind, expected) in [(Kind::Reno, 50), (Kind::Cubic, 70)] {
        let mut window = window(100, u64::MAX);
        let mut controller = Controller::new(kind, &window, 0);
        controller.on_congestion(&mut window, Signal::Loss, false);
        assert_eq!((window.ssthresh, window.cwnd), (expected * MSS, 100 * MSS), "{kind:?}");
    }
}

#[test]
fn the_threshold_is_two_segments_at_least() {
    for kind in [Kind::Reno, Kind::Cubic] {
        let mut window = window(1, u64::MAX);
        let mut controller = Controller::new(kind, &window, 0);
        controller.on_congestion(&mut window, Signal::Timeout, false);
        assert_eq!(window.ssthresh, 2 * MSS);
    }
}

#[test]
fn undo_brings_back_window_threshold_and_curve() {
    for kind in [Kind::Reno, Kind::Cubic] {
        let mut window = window(100, 80 * MSS);
        let mut controller = Controller::new(kind, &window, 0);
        controller.on_ack(&mut window, &acked(10, MSS));
        let (before, state) = (window, controller);
        controller.on_congestion(&mut window, Signal::Loss, false);
        window.set(window.ssthresh);
        controller.undo(&mut window);
        assert_eq!(window, before);
        let (mut one, mut other) = (before, window);
        let (mut as_before, mut undone) = (state, controller);
        for step in 0..200 {
            as_before.on_ack(&mut one, &acked(10 + step * 10, 10 * MSS));
            undone.on_ack(&mut other, &acked(10 + step * 10, 10 * MSS));
        }
        assert_eq!(one, other);
    }
}

#[test]
fn an_unused_window_does_not_grow() {
    for kind in [Kind::Reno, Kind::Cubic] {
        let mut window = window(10, u64::MAX);
        let mut controller = Controller::new(kind, &window, 0);
        controller.on_ack(&mut window, &Acked { limited: false, ..acked(0, 5 * MSS) });
        assert_eq!(window.cwnd, 10 * MSS);
    }
}

proptest! {
    /// Between two losses no controller's window falls, and an acknowledgement of some bytes grows
    /// the window by no more than these bytes and a segment.
    #[test]
    fn the_window_never_falls_between_losses(
        cubic in any::<bool>(),
        start in 2u64..1_000,
        acks in prop::collection::vec((0u64..300, 1u64..100, 1u64..500), 1..300),
    ) {
        let kind = if cubic { Kind::Cubic } else { Kind::Reno };
        let mut window = window(start, u64::MAX);
        let mut controller = Controller::new(kind, &window, 0);
        controller.on_congestion(&mut window, Signal::Loss, false);
        window.set(window.ssthresh);
        let mut now = 0;
        for (later, segments, srtt) in acks {
            now += later;
            let before = window.cwnd;
            let bytes = (segments * MSS).min(before);
            let srtt = Some(Duration::from_millis(srtt));
            controller.on_ack(&mut window, &Acked { srtt, ..acked(now, bytes) });
            prop_assert!(window.cwnd >= before);
            prop_assert!(window.cwnd <= before + bytes + MSS);
        }
    }
}
