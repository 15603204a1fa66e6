use proptest::prelude::*;

use super::*;

const MSS: u64 = 1_000;

/// RFC 6937, appendix A, first example: 20 segments, Reno's half as target, the first lost. After
/// the first duplicates one segment goes for every two that arrived.
#[test]
fn half_of_what_arrives_goes_while_too_much_is_in_the_network() {
    let mut prr = Prr::begin(20 * MSS);
    // Three duplicate acknowledgements began the recovery; 16 more are to come. The retransmission
    // is allowed at once.
    let mut in_flight = 16 * MSS;
    let mut sent = 0;
    let allowed = prr.on_ack(3 * MSS, in_flight, 10 * MSS, MSS, false);
    assert!(allowed >= MSS);
    prr.on_sent(MSS);
    in_flight += MSS;
    for _ in 0..14 {
        in_flight -= MSS;
        let segments = prr.on_ack(MSS, in_flight, 10 * MSS, MSS, false) / MSS;
        prr.on_sent(segments * MSS);
        sent += segments;
        in_flight += segments * MSS;
    }
    // 17 segments arrived in all: 8.5 may be sent, and eight whole ones were, including the
    // retransmission.
    assert_eq!((sent, in_flight), (7, 10 * MSS));
}

/// RFC 6937, appendix A, second example: so many segments are lost that fewer than the target are
/// in the network. The conservative bound sends one for one, the slow start bound one more.
#[test]
fn after_heavy_loss_progress_decides_how_fast_the_network_fills() {
    let mut careful = Prr::begin(20 * MSS);
    careful.on_ack(MSS, 4 * MSS, 10 * MSS, MSS, false);
    careful.on_sent(MSS);
    assert_eq!(careful.on_ack(MSS, 4 * MSS, 10 * MSS, MSS, false), MSS);
    assert_eq!(careful.on_ack(MSS, 4 * MSS, 10 * MSS, MSS, true), 3 * MSS);
}

#[test]
fn never_beyond_the_threshold() {
    let mut prr = Prr::begin(20 * MSS);
    prr.on_sent(MSS);
    assert_eq!(prr.on_ack(19 * MSS, 9 * MSS, 10 * MSS, MSS, true), MSS);
}

proptest! {
    /// RFC 6937, 3: while more than ssthresh is in the network, the bytes sent never exceed the
    /// proportional share of the bytes delivered. Below ssthresh they never exceed the bytes
    /// delivered, plus one segment for each acknowledgement with progress, and sending never lifts
    /// the bytes in the network above ssthresh. The first segment is always allowed.
    #[test]
    fn no_more_than_the_rfc_allows(
        flight in 4u64..200,
        share in 1u64..=10,
        acks in prop::collection::vec((1u64..4, 0u64..3, any::<bool>()), 1..100),
    ) {
        let (flight, ssthresh) = (flight * MSS, (flight * share / 10).max(2) * MSS);
        let mut prr = Prr::begin(flight);
        let (mut in_flight, mut delivered, mut out) = (flight, 0u64, 0u64);
        for (arrived, lost, progress) in acks {
            let arrived = (arrived * MSS).min(in_flight);
            if arrived == 0 { break; }
            in_flight -= arrived;
            in_flight -= (lost * MSS).min(in_flight);
            delivered += arrived;
            let allowed = prr.on_ack(arrived, in_flight, ssthresh, MSS, progress);
            let bound = if in_flight > ssthresh {
                (delivered * ssthresh).div_ceil(flight).saturating_sub(out)
            } else {
                let slack = if progress { arrived.max(delivered.saturating_sub(out)) + MSS }
                    else { delivered.saturating_sub(out) };
                slack.min(ssthresh - in_flight)
            };
            let bound = if out == 0 { bound.max(MSS) } else { bound };
            prop_assert!(allowed <= bound, "{allowed} > {bound}");
            prr.on_sent(allowed);
            out += allowed;
            in_flight += allowed;
        }
    }
}
