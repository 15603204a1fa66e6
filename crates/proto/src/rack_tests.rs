use super::*;
use crate::position::Span;
use crate::scoreboard::Mark;

fn ms(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn span_ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn entry(start: u64, sent: Instant, again: bool) -> SentRange {
    let mark = if again { Mark::Resent } else { Mark::Sent };
    SentRange {
        span: Span::new(start, start + 100),
        sent_first: sent,
        sent_last: sent,
        order: 0,
        mark,
        again,
    }
}

fn delivery(entry: SentRange, below_fack: bool) -> Delivery {
    Delivery { entry, selective: true, below_fack }
}

/// A RACK that saw a segment sent at 100 ms arrive at 150 ms.
fn seen() -> Rack {
    let mut rack = Rack::new();
    rack.on_delivered(ms(150), &delivery(entry(1_000, ms(100), false), false), None);
    rack
}

fn judge(
    rack: &Rack,
    now: Instant,
    entry: &SentRange,
    window: Duration,
) -> (Verdict, Option<Duration>) {
    let mut wait = None;
    (rack.judge(now, entry, window, &mut wait), wait)
}

/// RFC 8985, 6.2, step 5: lost if sent before the latest delivered one, and `rtt + window` ago.
#[test]
fn sent_earlier_and_waited_long_enough_is_lost() {
    let rack = seen();
    let early = entry(0, ms(90), false);
    assert_eq!(judge(&rack, ms(150), &early, span_ms(10)).0, Verdict::Lost);
    let (verdict, wait) = judge(&rack, ms(150), &early, span_ms(15));
    assert_eq!((verdict, wait), (Verdict::Wait, Some(span_ms(5))));
    assert_eq!(judge(&rack, ms(155), &early, span_ms(15)).0, Verdict::Lost);
}

#[test]
fn what_was_sent_later_says_nothing() {
    assert_eq!(
        judge(&seen(), ms(900), &entry(2_000, ms(101), false), Duration::ZERO).0,
        Verdict::Later
    );
    // For segments sent at the same time the position decides.
    assert_eq!(
        judge(&seen(), ms(900), &entry(900, ms(100), false), Duration::ZERO).0,
        Verdict::Lost
    );
    assert_eq!(
        judge(&seen(), ms(900), &entry(1_100, ms(100), false), Duration::ZERO).0,
        Verdict::Later
    );
}

#[test]
fn of_what_was_sent_at_the_same_time_the_order_decides() {
    let rack = seen();
    let before = SentRange { order: 1, ..entry(0, ms(100), true) };
    // This segment was sent again after the delivered one, in the same microsecond, so its answer
    // is yet to come.
    assert_eq!(judge(&rack, ms(900), &before, Duration::ZERO).0, Verdict::Later);
}

/// Step 2: an acknowledgement of a retransmitted segment that comes faster than any round trip
/// answers the first transmission.
#[test]
fn a_too_early_answer_to_a_retransmission_is_for_the_original() {
    let mut rack = seen();
    let again = delivery(entry(0, ms(155), true), true);
    rack.on_delivered(ms(160), &again, Some(span_ms(40)));
    assert_eq!(
        judge(&rack, ms(900), &entry(3_000, ms(120), false), Duration::ZERO).0,
        Verdict::Later
    );
    assert!(!rack.reordering_seen());
    rack.on_delivered(ms(200), &again, Some(span_ms(40)));
    assert_eq!(
        judge(&rack, ms(900), &entry(3_000, ms(120), false), Duration::ZERO).0,
        Verdict::Lost
    );
}

/// Step 3 and 4.
#[test]
fn reordering_widens_the_window_to_a_quarter_of_the_least_round_trip() {
    let mut rack = seen();
    let (min, srtt) = (Some(span_ms(40)), Some(span_ms(50)));
    assert_eq!(rack.window(true, min, srtt), Duration::ZERO);
    assert_eq!(rack.window(false, min, srtt), span_ms(10));
    rack.on_delivered(ms(151), &delivery(entry(500, ms(95), false), true), min);
    assert!(rack.reordering_seen());
    assert_eq!(rack.window(true, min, srtt), span_ms(10));
    rack.on_dsack(1_000, 2_000);
    rack.on_dsack(1_500, 2_500);
    assert_eq!(rack.window(true, min, srtt), span_ms(20), "once in a round trip");
    rack.on_dsack(2_000, 3_000);
    assert_eq!(rack.window(true, min, srtt), span_ms(30));
    for _ in 0..16 {
        rack.on_dsack(u64::MAX, u64::MAX);
    }
    assert_eq!(rack.window(true, min, srtt), span_ms(50), "never more than the smoothed time");
}

#[test]
fn a_wide_window_falls_back_after_sixteen_recoveries() {
    let mut rack = seen();
    let min = Some(span_ms(40));
    rack.on_dsack(0, 1_000);
    for _ in 0..15 {
        rack.on_recovered();
        assert_eq!(rack.window(false, min, None), span_ms(20));
    }
    rack.on_recovered();
    assert_eq!(rack.window(false, min, None), span_ms(10));
}
