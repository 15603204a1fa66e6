//! Tests of the receive window: its edge never goes back, never advances by small steps, never
//! leaves the ring.

use super::*;
use crate::position;
use proptest::prelude::*;

fn window(scale: u8, wnd: u32, rcvbuf: u32) -> (ReceiveWindow, u64) {
    let record = TcpRecord {
        rcv_nxt: 10,
        rcv_wup: 10,
        rcv_wnd: wnd,
        rcv_wscale: scale,
        window_scaling: true,
        options: TcpOptions { rcvbuf, ..TcpOptions::default() },
        ..TcpRecord::default()
    };
    let nxt = position::start(10);
    (ReceiveWindow::import(&record, nxt, 1 << 22, Instant::ZERO), nxt)
}

proptest! {
    /// RFC 9293, 3.8.6: the right edge is not moved to the left. RFC 7323, 2.4.
    #[test]
    fn the_edge_stays_within_the_ring_and_never_goes_back(
        scale in 0u8..=14,
        steps in prop::collection::vec((0u64..4_000, 0u64..6_000), 1..300),
    ) {
        let (mut window, mut nxt) = window(scale, 8_192, 131_072);
        let capacity = window.capacity().next_power_of_two();
        let mut read = nxt;
        let mut left_before = nxt + window.left(nxt);
        for (arrived, taken) in steps {
            nxt += arrived.min(window.edge.saturating_sub(nxt));
            read = (read + taken).min(nxt);
            let chosen = window.choose(nxt, nxt - read, 1_460);
            window.tell(nxt, chosen, read, capacity);
            let edge = nxt + window.left(nxt);
            prop_assert!(window.edge <= read + capacity);
            prop_assert!(edge + (1 << scale) > left_before, "the edge went back by more than rounding");
            left_before = edge;
        }
    }
}

/// RFC 9293, 3.8.6.2.2: the window opens by a segment at least.
#[test]
fn a_window_does_not_open_by_little() {
    let (window, nxt) = window(0, 0, 20_000);
    let limit = window.limit();
    assert_eq!(window.choose(nxt, limit, 1_460), 0);
    assert_eq!(window.choose(nxt, limit - 1_459, 1_460), 0);
    assert!(window.choose(nxt, limit - 1_460, 1_460) >= 1_460);
}

/// Linux's `tcp_rcv_space_adjust`: the buffer follows the bytes read in a round trip.
#[test]
fn the_buffer_grows_with_what_is_read() {
    let (mut window, _) = window(7, 65_536, 131_072);
    let before = window.limit();
    window.on_rtt(Duration::from_millis(10));
    let mut now = Instant::ZERO;
    for round in 1..8u64 {
        now += Duration::from_millis(11);
        window.on_read(round * 100_000);
        window.adjust(now, 1_460);
    }
    assert!(window.limit() > before && window.limit() <= window.limit_max);
    let grown = window.limit();
    now += Duration::from_millis(5);
    window.on_read(9_000_000);
    window.adjust(now, 1_460);
    assert_eq!(window.limit(), grown, "once in a round trip");
}

/// The same with a sender that fills the window in every round trip: the window must not keep it at
/// where it began.
#[test]
fn a_sender_that_fills_the_window_gets_a_larger_one() {
    let (mut window, mut nxt) = window(7, 65_536, 131_072);
    let capacity = window.capacity().next_power_of_two();
    window.on_rtt(Duration::from_millis(10));
    let mut now = Instant::ZERO;
    for _ in 0..10 {
        now += Duration::from_millis(11);
        let announced = window.left(nxt);
        nxt += announced;
        window.on_read(announced);
        window.adjust(now, 1_460);
        let chosen = window.choose(nxt, 0, 1_460);
        window.tell(nxt, chosen, nxt, capacity);
    }
    assert!(window.left(nxt) > window.limit_max - 1_000, "{}", window.left(nxt));
}
