use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const BASE: u64 = 1_000;

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

fn ignore(_: &Delivery) {}

/// Ten segments of 100 bytes, sent at 1 to 10 ms.
fn ten() -> Scoreboard {
    let mut board = Scoreboard::new(BASE, 64);
    for segment in 1..=10 {
        board.push(at(segment), 100);
    }
    board
}

fn segment(index: u64) -> Span {
    Span::new(BASE + index * 100, BASE + (index + 1) * 100)
}

#[test]
fn a_burst_is_one_entry() {
    let mut board = Scoreboard::new(BASE, 8);
    for _ in 0..100 {
        board.push(at(1), 100);
    }
    assert_eq!(board.entries().count(), 1);
    assert_eq!(board.in_flight(), 10_000);
}

#[test]
fn sack_splits_and_joins() {
    let mut board = ten();
    board.sack(segment(3), BASE, ignore);
    board.sack(segment(5), BASE, ignore);
    assert_eq!((board.sacked(), board.in_flight(), board.fack()), (200, 800, segment(5).end));
    board.sack(Span::new(segment(3).start, segment(5).end), BASE, ignore);
    assert_eq!((board.sacked(), board.entries().count()), (300, 8));
}

#[test]
fn a_delivery_is_told_once() {
    let mut board = ten();
    let mut delivered = 0;
    board.sack(segment(3), BASE, |delivery| delivered += delivery.entry.span.len());
    board.sack(segment(3), BASE, |delivery| delivered += delivery.entry.span.len());
    board.acknowledge(segment(4).end, |delivery| delivered += delivery.entry.span.len());
    assert_eq!((delivered, board.sacked(), board.una()), (500, 0, segment(4).end));
}

#[test]
fn late_is_what_a_later_one_was_reported_before() {
    let mut board = ten();
    let mut below_fack = Vec::new();
    board.sack(segment(3), BASE, |delivery| below_fack.push(delivery.below_fack));
    let fack = board.fack();
    board.sack(segment(1), fack, |delivery| below_fack.push(delivery.below_fack));
    board.acknowledge(segment(0).end, |delivery| below_fack.push(delivery.below_fack));
    assert_eq!(below_fack, [false, true, true]);
}

#[test]
fn lost_is_sent_again_in_order() {
    let mut board = ten();
    board.sack(segment(9), BASE, ignore);
    assert_eq!(
        board.judge(|entry| if entry.sent_last < at(4) { Verdict::Lost } else { Verdict::Later }),
        300
    );
    assert_eq!((board.lost(), board.in_flight()), (300, 600));
    assert_eq!(board.next_lost(50), Some(Span::new(BASE, BASE + 50)));
    board.resend(at(20), Span::new(BASE, BASE + 50));
    assert_eq!(board.next_lost(1_000), Some(Span::new(BASE + 50, BASE + 100)));
    board.resend(at(20), Span::new(BASE + 50, BASE + 300));
    assert_eq!(board.next_lost(1_000), None);
    assert_eq!((board.lost(), board.resent(), board.in_flight()), (0, 300, 900));
    board.acknowledge(segment(9).end, ignore);
    assert_eq!(
        (board.in_flight(), board.resent(), board.sacked(), board.is_empty()),
        (0, 0, 0, true)
    );
}

#[test]
fn sent_again_says_nothing_about_time() {
    let mut board = ten();
    board.resend(at(20), segment(0));
    let mut again = Vec::new();
    board.acknowledge(segment(1).end, |delivery| again.push(delivery.entry.again));
    assert_eq!(again, [true, false]);
}

#[test]
fn going_back_counts_as_later() {
    let mut board = ten();
    board.resend(at(10), segment(0));
    board.push(at(10), 100);
    let orders: Vec<u64> = board.entries().map(|entry| entry.order).collect();
    assert_eq!((orders[0], orders[9], orders[10]), (1, 0, 1));
}

#[test]
fn duplicates_never_stand_for_what_is_lost() {
    let mut board = ten();
    for _ in 0..9 {
        board.add_duplicate(100);
    }
    board.judge(|_| Verdict::Lost);
    assert_eq!((board.sacked(), board.lost(), board.in_flight()), (0, 1_000, 0));
}

#[test]
fn a_peer_that_forgets_gets_all_again() {
    let mut board = ten();
    board.sack(Span::new(segment(0).start, segment(4).end), BASE, ignore);
    board.renege();
    assert_eq!((board.sacked(), board.in_flight(), board.fack()), (0, 1_000, BASE));
}

#[test]
fn judging_stops_where_all_later_was_sent_later() {
    let mut board = ten();
    let mut shown = 0;
    board.judge(|_| {
        shown += 1;
        Verdict::Later
    });
    assert_eq!(shown, 1);
    board.resend(at(20), segment(4));
    shown = 0;
    board.judge(|_| {
        shown += 1;
        Verdict::Later
    });
    assert_eq!(shown, 6, "all up to the retransmission, and the one after it");
}

#[test]
fn duplicates_stand_for_segments_without_sack() {
    let mut board = ten();
    for _ in 0..20 {
        board.add_duplicate(100);
    }
    assert_eq!(board.in_flight(), 100, "one at least is missing");
    board.remove_duplicates(100, 100);
    board.acknowledge(segment(0).end, ignore);
    assert_eq!(board.sacked(), 900);
    board.clear_duplicates();
    assert_eq!(board.in_flight(), 900);
}

#[test]
fn a_full_board_takes_what_it_can_without_allocating() {
    let mut board = Scoreboard::new(BASE, 8);
    let memory = board.entries.capacity();
    for index in 0..1_000 {
        assert!(board.has_room());
        board.push(at(index), 100);
    }
    for index in (1..1_000).step_by(2) {
        board.sack(segment(index), BASE, ignore);
    }
    board.judge(|_| Verdict::Lost);
    let mut now = 2_000;
    while let Some(span) = board.next_lost(30) {
        board.resend(at(now), span);
        now += 1;
    }
    assert_eq!(board.entries.capacity(), memory);
    assert!(board.entries.len() <= 16);
    assert_eq!(board.in_flight() + board.sacked(), 100_000);
}

/// A model of the scoreboard that has a mark for every byte.
struct Model {
    una: u64,
    marks: Vec<(Mark, bool)>,
}

impl Model {
    fn range(&mut self, span: Span) -> impl Iterator<Item = &mut (Mark, bool)> {
        let end = (self.una + self.marks.len() as u64).min(span.end).max(self.una);
        let start = span.start.max(self.una).min(end);
        let una = self.una;
        self.marks[(start - una) as usize..(end - una) as usize].iter_mut()
    }

    fn count(&self, mark: Mark) -> u64 {
        self.marks.iter().filter(|(other, _)| *other == mark).count() as u64
    }
}

#[derive(Clone, Debug)]
enum Action {
    Push(u64),
    Acknowledge(u64),
    Sack(u64, u64),
    Lose(u64),
    Resend(u64),
    Absolve,
    Renege,
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        4 => (1u64..60).prop_map(Action::Push),
        3 => (0u64..40).prop_map(Action::Acknowledge),
        6 => (0u64..200, 1u64..40).prop_map(|(from, length)| Action::Sack(from, length)),
        3 => (0u64..30).prop_map(Action::Lose),
        5 => (1u64..30).prop_map(Action::Resend),
        1 => Just(Action::Absolve),
        1 => Just(Action::Renege),
    ]
}

fn compare(board: &Scoreboard, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!(board.una(), model.una);
    prop_assert_eq!(board.sacked(), model.count(Mark::Sacked));
    prop_assert_eq!(board.lost(), model.count(Mark::Lost));
    prop_assert_eq!(board.resent(), model.count(Mark::Resent));
    prop_assert_eq!(board.in_flight(), model.count(Mark::Sent) + model.count(Mark::Resent));
    let mut position = board.una();
    for entry in board.entries() {
        prop_assert_eq!(entry.span.start, position);
        prop_assert!(!entry.span.is_empty() && entry.sent_first <= entry.sent_last);
        for byte in entry.span.start..entry.span.end {
            let expected = model.marks[(byte - model.una) as usize];
            prop_assert_eq!((entry.mark, entry.again), expected, "at {}", byte - model.una);
        }
        position = entry.span.end;
    }
    prop_assert_eq!(position, board.nxt());
    let first = model.marks.iter().position(|(mark, _)| *mark == Mark::Lost);
    let found = board.next_lost(1).map(|span| (span.start - model.una) as usize);
    prop_assert_eq!(found, first);
    Ok(())
}

fn apply(
    board: &mut Scoreboard,
    model: &mut Model,
    now: Instant,
    action: &Action,
) -> Result<(), TestCaseError> {
    let una = model.una;
    match *action {
        Action::Push(length) => {
            board.push(now, length);
            model.marks.extend(std::iter::repeat_n((Mark::Sent, false), length as usize));
        }
        Action::Acknowledge(length) => {
            let length = length.min(board.outstanding());
            let fresh = model
                .range(Span::new(una, una + length))
                .filter(|byte| byte.0 != Mark::Sacked)
                .count();
            let mut delivered = 0;
            board.acknowledge(una + length, |delivery| delivered += delivery.entry.span.len());
            prop_assert_eq!(delivered, fresh as u64);
            model.marks.drain(..length as usize);
            model.una += length;
        }
        Action::Sack(from, length) => {
            let block = Span::new(una + from, una + from + length);
            let fresh = model.range(block).filter(|byte| byte.0 != Mark::Sacked).count();
            let mut delivered = 0;
            let fack = board.fack();
            board.sack(block, fack, |delivery| delivered += delivery.entry.span.len());
            prop_assert_eq!(delivered, fresh as u64);
            model.range(block).for_each(|byte| byte.0 = Mark::Sacked);
        }
        Action::Lose(ago) => {
            let before = now - crate::time::Duration::from_millis(ago);
            let mut spans = Vec::new();
            board.judge(|entry| {
                if entry.sent_last < before {
                    spans.push(entry.span);
                    Verdict::Lost
                } else {
                    Verdict::Later
                }
            });
            for span in spans {
                model.range(span).for_each(|byte| byte.0 = Mark::Lost);
            }
        }
        Action::Resend(length) => {
            if let Some(span) = board.next_lost(length) {
                board.resend(now, span);
                model.range(span).for_each(|byte| *byte = (Mark::Resent, true));
            }
        }
        Action::Absolve => {
            board.clear_losses();
            for byte in model.marks.iter_mut().filter(|byte| byte.0 == Mark::Lost) {
                byte.0 = if byte.1 { Mark::Resent } else { Mark::Sent };
            }
        }
        Action::Renege => {
            board.renege();
            for byte in model.marks.iter_mut().filter(|byte| byte.0 == Mark::Sacked) {
                byte.0 = if byte.1 { Mark::Resent } else { Mark::Sent };
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_board_is_the_model(actions in prop::collection::vec(action(), 1..120)) {
        let mut board = Scoreboard::new(BASE, 1_024);
        let mut model = Model { una: BASE, marks: Vec::new() };
        for (step, action) in actions.iter().enumerate() {
            apply(&mut board, &mut model, at(step as u64), action)?;
            compare(&board, &model)?;
        }
    }

    #[test]
    fn a_crowded_board_stays_whole(actions in prop::collection::vec(action(), 1..200)) {
        stays_whole(&actions)?;
    }
}

/// With too little memory marks may be missing, but the row stays complete, the sums stay right,
/// and the memory does not grow.
fn stays_whole(actions: &[Action]) -> Result<(), TestCaseError> {
    let mut board = Scoreboard::new(BASE, 8);
    let memory = board.entries.capacity();
    for (step, action) in actions.iter().enumerate() {
        if matches!(action, Action::Push(_)) && !board.has_room() {
            continue;
        }
        let mut model = Model { una: board.una(), marks: Vec::new() };
        for entry in board.entries() {
            model
                .marks
                .extend(std::iter::repeat_n((entry.mark, entry.again), entry.span.len() as usize));
        }
        let before = board.sacked();
        if let Action::Sack(from, length) = *action {
            let block = Span::new(board.una() + from, board.una() + from + length);
            let fresh = model.range(block).filter(|byte| byte.0 != Mark::Sacked).count() as u64;
            board.sack(block, board.fack(), ignore);
            prop_assert!(board.sacked() >= before && board.sacked() <= before + fresh);
        } else if !matches!(action, Action::Resend(_)) {
            apply(&mut board, &mut model, at(step as u64), action)?;
        } else if let Some(span) = board.next_lost(17) {
            board.resend(at(step as u64), span);
            prop_assert!(board.next_lost(1).is_none_or(|next| next.start >= span.end));
        }
        let sum = |mark| {
            board
                .entries()
                .filter(|entry| entry.mark == mark)
                .map(|entry| entry.span.len())
                .sum::<u64>()
        };
        prop_assert_eq!(
            (board.sacked(), board.lost(), board.resent()),
            (sum(Mark::Sacked), sum(Mark::Lost), sum(Mark::Resent))
        );
        prop_assert_eq!(board.entries.capacity(), memory);
    }
    Ok(())
}

/// A block that touches an entry that was reported before, in a row that is full.
#[test]
fn an_entry_that_cannot_be_cut_is_not_marked_beyond_the_block() {
    let mut actions: Vec<Action> = [23, 11, 8, 39, 13, 10].into_iter().map(Action::Push).collect();
    actions.extend([Action::Sack(73, 14), Action::Push(1), Action::Sack(105, 1)]);
    actions.extend([26, 46, 3].into_iter().map(Action::Push));
    actions.extend([Action::Sack(1, 22), Action::Resend(1), Action::Lose(3), Action::Sack(27, 6)]);
    actions.extend([Action::Push(34), Action::Sack(71, 2), Action::Absolve, Action::Lose(16)]);
    let blocks = [(86, 8), (135, 30), (71, 1), (0, 1), (0, 1), (34, 1)];
    actions.extend(blocks.into_iter().map(|(from, length)| Action::Sack(from, length)));
    actions.extend([Action::Acknowledge(1), Action::Lose(0), Action::Sack(94, 6)]);
    actions.extend([1; 4].into_iter().map(Action::Resend));
    actions.extend([Action::Push(1), Action::Push(1), Action::Sack(24, 11)]);
    actions.extend([1; 3].into_iter().map(Action::Resend));
    actions.extend([Action::Lose(0), Action::Sack(36, 1), Action::Sack(23, 1)]);
    actions.extend([1; 2].into_iter().map(Action::Resend));
    let blocks = [(156, 37), (89, 12), (91, 11)];
    actions.extend(blocks.into_iter().map(|(from, length)| Action::Sack(from, length)));
    stays_whole(&actions).unwrap();
}
