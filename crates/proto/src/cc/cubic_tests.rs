use super::*;
use crate::cc::{Controller, Kind};

const MSS: u64 = 1_000;

fn ack(now: Instant, bytes: u64, srtt: Duration) -> Acked {
    Acked { now, bytes, rtt: None, srtt: Some(srtt), una: 0, nxt: 0, limited: true }
}

#[test]
fn cubic_roots() {
    for root in [0u64, 1, 2, 3, 1_000, 999_999, (1 << 42) - 1] {
        let cube = u128::from(root).pow(3);
        assert_eq!(cubic_root(cube), root);
        if root > 1 {
            assert_eq!(cubic_root(cube - 1), root - 1);
        }
    }
}

/// Equation 2 with numbers: W_max 100 segments, after the reduction 70: K is the cubic root of 30 /
/// 0.4, which is 4.217 s.
#[test]
fn the_curve_is_back_at_its_maximum_after_k() {
    let window = Window { cwnd: 70 * MSS, ssthresh: 70 * MSS, mss: MSS, max: u64::MAX };
    let epoch = Epoch::begin(Instant::ZERO, &window, 100 * MSS);
    assert_eq!(epoch.k, 4_217_163);
    let start = epoch.at(Duration::ZERO, MSS);
    assert!(start.abs_diff(70 * MSS) <= 1, "{start}");
    assert_eq!(epoch.at(Duration::from_micros(epoch.k), MSS), 100 * MSS);
    // After twice K the curve is as far above the maximum as it was below at the start.
    let twice = epoch.at(Duration::from_micros(2 * epoch.k), MSS);
    assert!(twice.abs_diff(130 * MSS) <= 1, "{twice}");
}

/// RFC 9438, 4.7: below the last maximum W_max becomes 0.85 of the window.
#[test]
fn fast_convergence() {
    let mut window = Window { cwnd: 100 * MSS, ssthresh: u64::MAX, mss: MSS, max: u64::MAX };
    let mut cubic = Cubic::new(&window, 0);
    cubic.on_congestion(&window, Signal::Loss);
    assert_eq!(cubic.w_max, 100 * MSS);
    window.cwnd = 80 * MSS;
    cubic.on_congestion(&window, Signal::Loss);
    assert_eq!(cubic.w_max, 68 * MSS);
}

/// Runs congestion avoidance for `seconds` with a full window acknowledged in every round trip,
/// segment by segment.
fn run(cubic: &mut Cubic, window: &mut Window, seconds: u64, srtt: Duration) {
    let mut now = Instant::from_millis(1);
    let end = now + Duration::from_secs(seconds);
    while now < end {
        let segments = window.cwnd / MSS;
        let step = srtt.divided_by(segments.max(1));
        for _ in 0..segments {
            now += step;
            cubic.avoid(window, &ack(now, MSS, srtt), MSS);
        }
    }
}

/// On a long path the window follows the curve: flat about the maximum after K, far above it after
/// two.
#[test]
fn a_long_path_follows_the_curve() {
    let srtt = Duration::from_millis(200);
    let mut window = Window { cwnd: 1_000 * MSS, ssthresh: u64::MAX, mss: MSS, max: u64::MAX };
    let mut cubic = Cubic::new(&window, 0);
    window.ssthresh = cubic.on_congestion(&window, Signal::Loss);
    window.set(window.ssthresh);
    // K = (300 / 0.4)^(1/3) = 9.09 s.
    run(&mut cubic, &mut window, 9, srtt);
    assert!((980 * MSS..=1_005 * MSS).contains(&window.cwnd), "{}", window.cwnd);
    run(&mut cubic, &mut window, 18, srtt);
    assert!(window.cwnd > 1_250 * MSS, "{}", window.cwnd);
}

/// On a short path the window is Reno's: 9/17 of a segment in a round trip (4.3).
#[test]
fn a_short_path_is_as_fast_as_reno() {
    let srtt = Duration::from_millis(5);
    let mut window = Window { cwnd: 50 * MSS, ssthresh: u64::MAX, mss: MSS, max: u64::MAX };
    let mut cubic = Cubic::new(&window, 0);
    window.ssthresh = cubic.on_congestion(&window, Signal::Loss);
    window.set(window.ssthresh);
    let before = window.cwnd;
    // 20 round trips of about 35 segments.
    let mut now = Instant::from_millis(1);
    for _ in 0..20 {
        for _ in 0..window.cwnd / MSS {
            now += srtt.divided_by(35);
            cubic.avoid(&mut window, &ack(now, MSS, srtt), MSS);
        }
    }
    let grown = window.cwnd - before;
    assert!((9 * MSS..=12 * MSS).contains(&grown), "{grown}");
}

#[test]
fn time_without_sending_does_not_count() {
    let srtt = Duration::from_millis(100);
    let grow = |idle: bool| {
        let mut window = Window { cwnd: 500 * MSS, ssthresh: u64::MAX, mss: MSS, max: u64::MAX };
        let mut cubic = Cubic::new(&window, 0);
        window.ssthresh = cubic.on_congestion(&window, Signal::Loss);
        window.set(window.ssthresh);
        let mut now = Instant::from_millis(1);
        for step in 0..2_000u64 {
            if idle && step == 1_000 {
                now += Duration::from_secs(60);
                cubic.on_idle(Duration::from_secs(60));
            }
            now += Duration::from_millis(1);
            cubic.avoid(&mut window, &ack(now, 4 * MSS, srtt), 4 * MSS);
        }
        window.cwnd
    };
    assert_eq!(grow(false), grow(true));
}

/// 4.8: after a timeout the curve starts flat where slow start ended.
#[test]
fn after_a_timeout_there_is_no_old_maximum() {
    let window = Window { cwnd: 100 * MSS, ssthresh: u64::MAX, mss: MSS, max: u64::MAX };
    let mut cubic = Cubic::new(&window, 0);
    cubic.on_congestion(&window, Signal::Loss);
    cubic.on_congestion(&window, Signal::Timeout);
    let window = Window { cwnd: 50 * MSS, ..window };
    let epoch = Epoch::begin(Instant::ZERO, &window, cubic.w_max);
    assert_eq!((epoch.k, epoch.origin), (0, 50 * MSS));
}

#[test]
fn an_imported_session_knows_its_maximum_from_its_threshold() {
    let window = Window { cwnd: 60 * MSS, ssthresh: 70 * MSS, mss: MSS, max: u64::MAX };
    assert_eq!(Cubic::new(&window, 0).w_max, 100 * MSS);
    assert_eq!(Cubic::new(&window, 90 * MSS).w_max, 90 * MSS);
    let controller = Controller::new(Kind::Cubic, &window, 0);
    assert_eq!(controller.kind(), Kind::Cubic);
}

#[test]
fn absurd_sizes_do_not_overflow() {
    let mut window = Window { cwnd: 1 << 40, ssthresh: 1 << 62, mss: 1, max: 1 << 41 };
    let mut cubic = Cubic::new(&window, 0);
    cubic.on_congestion(&window, Signal::Loss);
    for step in 0..100u64 {
        let now = Instant::from_micros(step << 40);
        cubic.avoid(&mut window, &ack(now, 65_536, Duration::from_secs(1_000_000)), 65_536);
    }
    assert!(window.cwnd <= 1 << 41);
}
