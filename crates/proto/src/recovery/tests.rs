use std::vec::Vec;

use super::*;
use crate::cc::Kind;
use crate::time::Duration;

const MSS: u64 = 1_000;
const UNA: u64 = 1 << 32;

fn config() -> Config {
    Config {
        mss: MSS as u32,
        sack: true,
        timestamp_unit: None,
        controller: Kind::Reno,
        pacing: false,
        pacing_rate_max: None,
        rto_min: Duration::from_millis(200),
        rto_max: Duration::from_secs(120),
        initial_window: 10 * MSS,
        window_max: 1 << 30,
        slow_start_after_idle: true,
        tail_loss_probe: true,
        frto: true,
        scoreboard_entries: 256,
    }
}

/// A sender with endless data on a path of 100 ms; the test acts as the peer. Segments are numbered
/// from 0.
struct Sender {
    recovery: Recovery,
    now: Instant,
    una: u64,
    /// The numbers of the sent segments with their times.
    sent: Vec<(u64, Instant)>,
    data: u64,
}

impl Sender {
    fn new(config: Config, cwnd: u64) -> Sender {
        let now = Instant::from_millis(1_000);
        let start = Start {
            una: UNA,
            nxt: UNA,
            cwnd: cwnd * MSS,
            ssthresh: u64::MAX,
            srtt: Some(Duration::from_millis(100)),
            rttvar: Duration::from_millis(1),
            min_rtt: Some(Duration::from_millis(100)),
            w_max: 0,
            reordering_seen: false,
            cwr_due: false,
        };
        let recovery = Recovery::new(config, start, now);
        Sender { recovery, now, una: 0, sent: Vec::new(), data: u64::MAX }
    }

    fn wait(&mut self, ms: u64) -> &mut Sender {
        self.now += Duration::from_millis(ms);
        self
    }

    fn transmit(&mut self, start: u64, what: Transmission) {
        self.recovery.on_transmit(self.now, Span::new(start, start + MSS), what);
        self.sent.push(((start - UNA) / MSS, self.now));
    }

    /// Runs the output loop and returns the numbers of the sent segments.
    fn output(&mut self) -> Vec<u64> {
        let before = self.sent.len();
        if let Some(span) = self.recovery.probe() {
            self.transmit(span.start, Transmission::Again);
        }
        while let Some(span) = self.recovery.retransmission(self.now) {
            self.transmit(span.start, Transmission::Again);
        }
        let stopped = loop {
            let nxt = self.recovery.scoreboard().nxt();
            if nxt >= UNA.saturating_add(self.data.saturating_mul(MSS)) {
                break Stopped::Application;
            }
            if self.recovery.budget(self.now) < MSS {
                break Stopped::Window;
            }
            self.transmit(nxt, Transmission::New);
        };
        self.recovery.on_output_done(self.now, stopped);
        self.sent[before..].iter().map(|sent| sent.0).collect()
    }

    /// Acknowledges all segments before `una`, with SACK blocks of segments.
    fn ack(&mut self, una: u64, blocks: &[(u64, u64)]) -> Acked {
        self.ack_echo(una, blocks, None)
    }

    fn ack_echo(&mut self, una: u64, blocks: &[(u64, u64)], echo: Option<Instant>) -> Acked {
        self.una = una;
        let sack: Vec<Span> =
            blocks.iter().map(|(from, to)| Span::new(UNA + from * MSS, UNA + to * MSS)).collect();
        let ack = Ack {
            una: UNA + una * MSS,
            sack: &sack,
            echo,
            ece: false,
            carries_data: false,
            window_changed: false,
        };
        self.recovery.on_ack(self.now, &ack)
    }

    /// Waits for the next timer.
    fn expire(&mut self) -> Option<Expired> {
        self.now = self.recovery.next_timeout().expect("a timer runs");
        self.recovery.on_timeout(self.now)
    }
}

fn segments(cwnd: u64) -> Sender {
    let mut sender = Sender::new(config(), cwnd);
    assert_eq!(sender.output().len() as u64, cwnd);
    sender
}

#[test]
fn a_window_is_sent_and_doubles_with_every_round_trip() {
    let mut sender = segments(10);
    sender.wait(100);
    let mut sent = 0;
    for una in 1..=10 {
        sender.ack(una, &[]);
        sent += sender.output().len();
    }
    assert_eq!((sent, sender.recovery.cwnd()), (20, 20 * MSS));
    assert_eq!(sender.recovery.state(), State::Open);
}

#[test]
fn three_later_segments_begin_a_fast_recovery_and_its_end_halves_the_window() {
    let mut sender = segments(10);
    sender.wait(100);
    sender.ack(0, &[(1, 2)]);
    sender.ack(0, &[(1, 3)]);
    assert_eq!(sender.recovery.state(), State::Disorder);
    let acked = sender.ack(0, &[(1, 4)]);
    assert_eq!((acked.lost, sender.recovery.state()), (MSS, State::Recovery));
    assert_eq!(sender.output(), [0], "the lost one goes at once");
    for to in 5..=10 {
        sender.ack(0, &[(1, to)]);
        sender.output();
    }
    sender.wait(100);
    sender.ack(10, &[]);
    assert_eq!((sender.recovery.state(), sender.recovery.cwnd()), (State::Open, 5 * MSS));
    assert_eq!(sender.recovery.statistics().timeouts_total, 0);
}

#[test]
fn one_later_segment_is_enough_after_a_quarter_of_a_round_trip() {
    let mut sender = segments(2);
    sender.data = 2;
    sender.wait(100);
    sender.ack(0, &[(1, 2)]);
    assert_eq!(sender.output(), []);
    assert_eq!(sender.expire(), Some(Expired::Reordering));
    assert_eq!(sender.now, Instant::from_millis(1_125));
    assert_eq!(sender.output(), [0]);
}

#[test]
fn a_lost_retransmission_is_found_without_a_timeout() {
    let mut sender = segments(10);
    sender.wait(100);
    sender.ack(0, &[(1, 4)]);
    assert_eq!(sender.output(), [0]);
    for to in 5..=10 {
        sender.wait(5).ack(0, &[(1, to)]);
        sender.output();
    }
    let new = sender.recovery.scoreboard().nxt();
    assert!(new > UNA + 10 * MSS, "new data follow");
    sender.wait(100);
    sender.ack(0, &[(1, 11)]);
    assert!(sender.output().contains(&0), "sent once more");
    assert_eq!(sender.recovery.statistics().timeouts_total, 0);
}

#[test]
fn the_tail_is_probed_after_two_round_trips() {
    let mut sender = segments(10);
    sender.data = 10;
    sender.wait(100);
    sender.ack(7, &[]);
    sender.output();
    assert_eq!(sender.expire(), Some(Expired::Probe));
    assert_eq!(sender.output(), [9], "the last segment once more");
    sender.wait(100);
    // The probe was sent so much later that the missing segments before it are lost; one segment is
    // sent for one that arrived.
    assert_eq!(sender.ack(7, &[(9, 10)]).lost, 2 * MSS);
    assert_eq!(sender.output(), [7]);
    sender.wait(100);
    sender.ack(8, &[(9, 10)]);
    assert_eq!(sender.output(), [8]);
    assert_eq!(sender.recovery.statistics().timeouts_total, 0);
}

#[test]
fn a_probe_that_repairs_costs_half_the_window() {
    let mut sender = segments(10);
    sender.data = 10;
    sender.wait(100);
    sender.ack(9, &[]);
    sender.output();
    assert_eq!(sender.expire(), Some(Expired::Probe));
    assert_eq!(sender.output(), [9]);
    sender.wait(50);
    sender.data = 11;
    assert_eq!(sender.output(), [10]);
    let before = sender.recovery.cwnd();
    sender.wait(100);
    sender.ack(11, &[]);
    assert_eq!(sender.recovery.cwnd(), before / 2);
}

#[test]
fn a_probe_that_was_needless_costs_nothing() {
    let mut sender = segments(10);
    sender.data = 10;
    sender.wait(100);
    sender.ack(9, &[]);
    sender.output();
    sender.expire();
    sender.output();
    let before = sender.recovery.cwnd();
    sender.wait(1);
    sender.ack(10, &[]);
    sender.wait(99);
    sender.ack(10, &[(9, 10)]);
    assert!(sender.recovery.cwnd() >= before);
    assert_eq!(sender.recovery.next_timeout(), None, "nothing is outstanding");
}

#[test]
fn a_timeout_sends_the_first_again_and_starts_slowly() {
    let mut sender = Sender::new(Config { tail_loss_probe: false, frto: false, ..config() }, 10);
    sender.data = 10;
    sender.output();
    assert_eq!(sender.expire(), Some(Expired::Retransmission(1)));
    assert_eq!(sender.now, Instant::from_millis(1_300));
    assert_eq!(sender.output(), [0]);
    assert_eq!((sender.recovery.cwnd(), sender.recovery.ssthresh()), (MSS, 5 * MSS));
    assert_eq!(sender.expire(), Some(Expired::Retransmission(2)));
    assert_eq!(sender.now, Instant::from_millis(1_900), "twice as long");
    assert_eq!(sender.output(), [0]);
    sender.wait(100);
    sender.ack(1, &[]);
    assert_eq!(sender.output(), [1, 2]);
    sender.wait(100);
    sender.ack(2, &[]);
    sender.ack(3, &[]);
    assert_eq!(sender.output(), [3, 4, 5, 6]);
    sender.wait(100);
    sender.ack(10, &[]);
    assert_eq!((sender.recovery.state(), sender.recovery.timeouts()), (State::Open, 0));
}

/// RFC 5682: acknowledgements of originals after new data undo the timeout.
#[test]
fn a_spurious_timeout_is_undone_by_frto() {
    let mut sender = Sender::new(Config { tail_loss_probe: false, ..config() }, 10);
    sender.output();
    sender.expire();
    assert_eq!(sender.output(), [0]);
    assert_eq!(sender.recovery.state(), State::Loss);
    sender.wait(10);
    sender.ack(1, &[]);
    assert_eq!(sender.output(), [10, 11], "new data, and nothing again");
    sender.wait(1);
    let acked = sender.ack(2, &[]);
    assert!(acked.undone);
    assert_eq!((sender.recovery.state(), sender.recovery.scoreboard().lost()), (State::Open, 0));
    assert!(sender.recovery.cwnd() >= 10 * MSS);
    assert_eq!(sender.recovery.ssthresh(), u64::MAX);
}

#[test]
fn a_real_timeout_is_not_undone() {
    let mut sender = Sender::new(Config { tail_loss_probe: false, ..config() }, 10);
    sender.output();
    sender.expire();
    sender.output();
    sender.wait(100);
    sender.ack(1, &[]);
    assert_eq!(sender.output(), [10, 11]);
    sender.wait(100);
    sender.ack(1, &[(10, 11)]);
    assert_eq!(sender.output().first(), Some(&1), "what is lost goes after all");
    assert_eq!(sender.recovery.state(), State::Loss);
    assert_eq!(sender.recovery.statistics().undone_total, 0);
}

#[test]
fn frto_without_new_data_sends_again_at_once() {
    let mut sender = Sender::new(Config { tail_loss_probe: false, ..config() }, 10);
    sender.data = 10;
    sender.output();
    sender.expire();
    sender.output();
    sender.wait(100);
    sender.ack(1, &[]);
    assert_eq!(sender.output(), [1, 2]);
}

/// RFC 2883 and 3708: every retransmission was reported as a duplicate.
#[test]
fn duplicates_undo_a_needless_recovery() {
    let mut sender = segments(20);
    sender.wait(100);
    sender.ack(0, &[(1, 4)]);
    assert_eq!(sender.output().first(), Some(&0));
    assert_eq!(sender.recovery.ssthresh(), 10 * MSS);
    sender.wait(1);
    sender.ack(4, &[]);
    sender.output();
    sender.wait(99);
    let acked = sender.ack(4, &[(0, 1)]);
    assert!(acked.undone);
    assert_eq!((sender.recovery.state(), sender.recovery.ssthresh()), (State::Open, u64::MAX));
    assert!(sender.recovery.cwnd() >= 20 * MSS);
}

/// RFC 3522: the echo is older than the retransmission.
#[test]
fn timestamps_undo_a_needless_recovery() {
    let unit = Some(Duration::from_millis(1));
    let mut sender = Sender::new(Config { timestamp_unit: unit, ..config() }, 20);
    sender.output();
    let original = sender.now;
    sender.wait(100);
    sender.ack(0, &[(1, 4)]);
    let again = sender.now;
    assert_eq!(sender.output().first(), Some(&0));
    let mut other = Sender::new(Config { timestamp_unit: unit, ..config() }, 20);
    other.output();
    other.wait(100).ack(0, &[(1, 4)]);
    other.output();
    assert!(sender.wait(1).ack_echo(20, &[], Some(original)).undone);
    assert_eq!(sender.recovery.state(), State::Open);
    assert!(!other.wait(100).ack_echo(20, &[], Some(again)).undone);
    assert_eq!((other.recovery.ssthresh(), other.recovery.state()), (10 * MSS, State::Open));
}

#[test]
fn a_congestion_mark_halves_the_window_once_in_a_round_trip() {
    let mut sender = segments(20);
    sender.wait(100);
    let mut reductions = 0;
    for una in 1..=20 {
        let ack = Ack {
            una: UNA + una * MSS,
            sack: &[],
            echo: None,
            ece: true,
            carries_data: false,
            window_changed: false,
        };
        sender.recovery.on_ack(sender.now, &ack);
        reductions += u32::from(sender.recovery.take_cwr());
        sender.output();
    }
    assert_eq!((reductions, sender.recovery.ssthresh()), (1, 10 * MSS));
    assert!(sender.recovery.in_flight() <= 10 * MSS);
}

#[test]
fn without_sack_duplicates_are_counted() {
    let mut sender = Sender::new(Config { sack: false, ..config() }, 10);
    sender.output();
    sender.wait(100);
    for new in 10..12 {
        sender.ack(0, &[]);
        assert_eq!(sender.output(), [new], "limited transmit (RFC 3042)");
    }
    sender.ack(0, &[]);
    assert_eq!(sender.output(), [0]);
    assert_eq!(sender.recovery.state(), State::Recovery);
    for _ in 0..6 {
        sender.ack(0, &[]);
        sender.output();
    }
    sender.wait(100);
    // A partial acknowledgement: the next hole follows at once (RFC 6582, 3.2).
    sender.ack(4, &[]);
    assert_eq!(sender.output().first(), Some(&4));
    sender.wait(100);
    let end = (sender.recovery.scoreboard().nxt() - UNA) / MSS;
    sender.ack(end, &[]);
    assert_eq!((sender.recovery.state(), sender.recovery.ssthresh()), (State::Open, 5 * MSS));
}

#[test]
fn a_peer_that_forgets_what_it_reported_gets_it_again_after_a_timeout() {
    let mut sender = segments(10);
    sender.data = 10;
    sender.wait(100);
    sender.ack(0, &[(1, 10)]);
    assert_eq!(sender.output(), [0]);
    sender.wait(100);
    sender.ack(1, &[]);
    assert_eq!(sender.output(), []);
    while !matches!(sender.expire(), Some(Expired::Retransmission(_))) {
        sender.output();
    }
    assert_eq!(sender.output(), [1]);
}

#[test]
fn a_path_that_narrows_gets_all_again_and_keeps_its_window() {
    let mut sender = segments(10);
    sender.recovery.set_mss(sender.now, 500, true);
    assert_eq!(sender.expire(), Some(Expired::Pacing));
    assert_eq!(sender.recovery.scoreboard().lost(), 10 * MSS);
    assert!(sender.recovery.retransmission(sender.now).is_some());
    assert_eq!(sender.recovery.cwnd(), 10 * MSS);
    assert_eq!(sender.recovery.ssthresh(), u64::MAX);
}

#[test]
fn a_long_silence_brings_the_window_back_to_the_initial_one() {
    let mut sender = segments(80);
    sender.data = 80;
    sender.wait(100);
    sender.ack(80, &[]);
    assert_eq!(sender.recovery.next_timeout(), None);
    sender.wait(60_000);
    sender.data = u64::MAX;
    assert_eq!(sender.output().len(), 10);
}

#[test]
fn pacing_lets_a_window_go_over_a_round_trip() {
    let mut sender = Sender::new(Config { pacing: true, ..config() }, 40);
    let mut sent = sender.output().len();
    assert!(sent <= 2, "{sent}");
    let begin = sender.now;
    while sent < 40 {
        assert_eq!(sender.expire(), Some(Expired::Pacing));
        sent += sender.output().len();
    }
    // Twice the window in a round trip, in slow start.
    let ms = sender.now.since(begin).as_millis();
    assert!((45..=50).contains(&ms), "{ms} ms");
}

#[test]
fn an_imported_session_does_not_take_the_time_since_the_import_for_a_round_trip() {
    let now = Instant::from_millis(5_000);
    let start = Start {
        una: UNA,
        nxt: UNA + 5 * MSS,
        cwnd: 20 * MSS,
        ssthresh: 15 * MSS,
        srtt: Some(Duration::from_millis(80)),
        rttvar: Duration::from_millis(5),
        min_rtt: Some(Duration::from_millis(70)),
        w_max: 77 * MSS,
        reordering_seen: true,
        cwr_due: false,
    };
    let mut recovery = Recovery::new(Config { controller: Kind::Cubic, ..config() }, start, now);
    assert_eq!(recovery.w_max(), 77 * MSS);
    assert!(recovery.statistics().reordering_seen);
    assert_eq!((recovery.in_flight(), recovery.cwnd()), (5 * MSS, 20 * MSS));
    assert!(recovery.next_timeout().is_some());
    let ack = Ack {
        una: UNA + 5 * MSS,
        sack: &[],
        echo: None,
        ece: false,
        carries_data: false,
        window_changed: false,
    };
    recovery.on_ack(now + Duration::from_millis(1), &ack);
    assert_eq!(recovery.rtt().srtt(), Some(Duration::from_millis(80)));
    assert_eq!(recovery.rtt().min(), Some(Duration::from_millis(70)));
}
