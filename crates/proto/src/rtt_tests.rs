use proptest::prelude::*;

use super::*;

const MIN: Duration = Duration::from_millis(200);
const MAX: Duration = Duration::from_secs(120);

fn estimator() -> RttEstimator {
    RttEstimator::new(MIN, MAX)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Processes the samples one round trip after the other, each in a window of its own.
fn feed(rtt: &mut RttEstimator, samples: &[Duration]) {
    for (round, sample) in samples.iter().enumerate() {
        let una = 1_000 * (round as u64 + 1);
        rtt.sample(Instant::from_millis(una), *sample, *sample, una, una + 999);
    }
}

/// RFC 6298, 2.1.
#[test]
fn before_anything_is_measured_the_timeout_is_a_second() {
    assert_eq!(estimator().rto(), Duration::from_secs(1));
}

/// RFC 6298, 2.2: SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR.
#[test]
fn the_first_sample_triples() {
    let mut rtt = estimator();
    feed(&mut rtt, &[ms(300)]);
    assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.rto()), (Some(ms(300)), ms(150), ms(900)));
}

/// RFC 6298, 2.3: RTTVAR = 3/4 RTTVAR + 1/4 |SRTT - R'|, SRTT = 7/8 SRTT + 1/8 R'.
#[test]
fn further_samples_are_smoothed() {
    let mut rtt = estimator();
    feed(&mut rtt, &[ms(400), ms(480)]);
    assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(410)), ms(170)));
}

#[test]
fn the_margin_is_200_ms_however_steady_the_path_is() {
    let mut rtt = estimator();
    feed(&mut rtt, &[ms(10); 50]);
    assert_eq!(rtt.rto(), ms(210));
}

#[test]
fn short_paths_are_not_held_fast_by_rounding() {
    let mut rtt = estimator();
    feed(&mut rtt, &[Duration::from_micros(5)]);
    feed(&mut rtt, &[Duration::from_micros(12); 100]);
    let srtt = rtt.srtt().unwrap().as_micros();
    assert!((11..=12).contains(&srtt), "{srtt}");
}

#[test]
fn a_falling_sample_hardly_widens_the_margin() {
    let mut rtt = estimator();
    feed(&mut rtt, &[ms(400); 40]);
    let before = rtt.rttvar();
    feed(&mut rtt, &[ms(100)]);
    assert!(rtt.rttvar() < before + ms(12), "{:?}", rtt.rttvar());
    let mut rtt = estimator();
    feed(&mut rtt, &[ms(400); 40]);
    feed(&mut rtt, &[ms(700)]);
    assert!(rtt.rttvar() >= before + ms(70));
}

/// RFC 6298, 5.5.
#[test]
fn timeouts_double_up_to_the_largest() {
    let mut rtt = estimator();
    feed(&mut rtt, &[ms(100)]);
    let base = rtt.rto();
    rtt.back_off();
    assert_eq!(rtt.rto(), base.times(2));
    for _ in 0..40 {
        rtt.back_off();
    }
    assert_eq!(rtt.rto(), MAX);
    rtt.reset_backoff();
    assert_eq!(rtt.rto(), base);
}

#[test]
fn an_imported_estimate_goes_on() {
    let mut rtt = estimator();
    rtt.restore(Instant::ZERO, ms(80), ms(60), Some(ms(70)));
    assert_eq!((rtt.srtt(), rtt.rttvar(), rtt.min()), (Some(ms(80)), ms(60), Some(ms(70))));
    assert_eq!(rtt.rto(), ms(320));
}

#[test]
fn the_least_is_forgotten_after_five_minutes() {
    let mut filter = MinFilter::default();
    filter.update(Instant::from_millis(0), ms(10));
    for second in 1..=300 {
        filter.update(Instant::from_millis(second * 1_000), ms(20));
        assert_eq!(filter.least(), Some(ms(10)), "second {second}");
    }
    filter.update(Instant::from_millis(301_000), ms(20));
    assert_eq!(filter.least(), Some(ms(20)));
}

proptest! {
    /// The filter never returns less than the true least value of the window, and never more than
    /// the latest value.
    #[test]
    fn the_filter_stays_between_the_true_least_and_the_latest(
        steps in prop::collection::vec((0u64..120, 1u64..1_000), 1..200),
    ) {
        let mut filter = MinFilter::default();
        let mut now = 0;
        let mut all = std::vec::Vec::new();
        for (seconds, value) in steps {
            now += seconds;
            all.push((now, value));
            filter.update(Instant::from_millis(now * 1_000), Duration::from_micros(value));
            let least = all.iter().filter(|(at, _)| now - at <= 300).map(|(_, value)| *value).min();
            let got = filter.least().unwrap().as_micros();
            prop_assert!(got >= least.unwrap() && got <= value);
        }
    }

    /// With any samples the timeout is at least the smoothed time and 200 ms, and bounded.
    #[test]
    fn the_timeout_is_bounded(samples in prop::collection::vec(0u64..200_000_000, 1..100)) {
        let mut rtt = estimator();
        for (round, sample) in samples.iter().enumerate() {
            let sample = Duration::from_micros(*sample);
            rtt.sample(Instant::from_millis(round as u64), sample, sample, round as u64 * 7, round as u64 * 7 + 20);
            prop_assert!(rtt.rto() <= MAX);
            prop_assert!(rtt.rto() >= (rtt.srtt().unwrap() + MIN).min(MAX));
        }
    }
}
