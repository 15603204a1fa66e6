use super::*;

#[test]
fn before_anything_is_measured_the_timeout_is_a_second() {
    let rtt = RttEstimator::new(Duration::from_millis(200), Duration::from_secs(120));
    assert_eq!(rtt.rto(), Duration::from_secs(1));
}
