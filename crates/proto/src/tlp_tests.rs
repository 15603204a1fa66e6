use super::*;

fn probed(again: bool) -> TailLossProbe {
    let mut probe = TailLossProbe::default();
    probe.on_sent(5_000, again);
    probe
}

#[test]
fn two_round_trips_and_the_delay_of_a_lone_segments_acknowledgement() {
    let srtt = Some(Duration::from_millis(50));
    assert_eq!(timeout(srtt, false), Duration::from_millis(102));
    assert_eq!(timeout(srtt, true), Duration::from_millis(300));
    assert_eq!(timeout(None, false), Duration::from_secs(1));
}

#[test]
fn nothing_is_known_before_the_probe_is_acknowledged() {
    let mut probe = probed(true);
    assert_eq!(probe.on_ack(4_999, false, true), Answer::None);
    assert!(probe.is_pending());
}

#[test]
fn new_data_as_a_probe_hides_no_loss() {
    assert_eq!(probed(false).on_ack(5_000, false, false), Answer::Needless);
}

#[test]
fn dsack_or_a_second_acknowledgement_say_that_both_arrived() {
    assert_eq!(probed(true).on_ack(5_000, true, false), Answer::Needless);
    let mut probe = probed(true);
    assert_eq!(probe.on_ack(5_000, false, false), Answer::None);
    assert_eq!(probe.on_ack(5_000, false, true), Answer::Needless);
    assert!(!probe.is_pending());
}

#[test]
fn acknowledgement_of_later_data_alone_says_that_the_probe_repaired_a_loss() {
    assert_eq!(probed(true).on_ack(5_001, false, false), Answer::Repaired);
}
