//! What comes by the two ways while the carrier looks at them.

use super::*;
use rustix::fd::OwnedFd;
use rustix::process::Uid;
use sojourn_session::{DelegationToken, LocalNumber, ReasonT, RecallT};
use std::cell::RefCell;

/// The two ways.
#[derive(Default)]
struct Ways {
    commands: VecDeque<Command>,
    events: VecDeque<EventT>,
    looks: usize,
    late: Option<Late>,
}

/// What comes by the ways at the look with that number.
struct Late {
    at: usize,
    comes: fn(&mut Ways),
}

impl Ways {
    fn look(&mut self) {
        if let Some(late) = self.late.take_if(|late| late.at == self.looks) {
            (late.comes)(self);
        }
        self.looks += 1;
    }
}

/// Takes everything; returns a letter for each: B, the datagrams that a library gives back; L, its
/// session has left; S, a socket; R, a question for a route; U, a recall of another session.
fn taken(ways: Ways) -> String {
    let (ways, mut taken) = (RefCell::new(ways), Taken::default());
    let mut all = String::new();
    let command = || {
        ways.borrow_mut().look();
        ways.borrow_mut().commands.pop_front()
    };
    let event = || {
        ways.borrow_mut().look();
        ways.borrow_mut().events.pop_front().unwrap_or(EventT::None)
    };
    while let Some(next) = taken.next(command, event) {
        all.push(match next {
            Incoming::Command(Command::Back { .. }) => 'B',
            Incoming::Command(Command::Socket(_)) => 'S',
            Incoming::Command(Command::AskRoute { .. }) => 'R',
            Incoming::Event(EventT::Recall(RecallT { reason: ReasonT::PeerLeft, .. })) => 'L',
            Incoming::Event(EventT::Recall(_)) => 'U',
            other => panic!("{other:?}"),
        });
    }
    assert!(ways.borrow().late.is_none(), "it never came");
    all
}

/// Takes a question for a route and a recall, and what comes late, at each of the looks for
/// these. Returns what was taken in each case, without those two.
fn taken_late(comes: fn(&mut Ways)) -> Vec<String> {
    const LOOKS: usize = 5;
    let begin = || Ways {
        commands: [Command::AskRoute { local: LocalNumber(2), to: [192, 0, 2, 1].into() }].into(),
        events: [EventT::Recall(RecallT { local: 2, reason: ReasonT::User })].into(),
        ..Ways::default()
    };
    let late = |at| taken(Ways { late: Some(Late { at, comes }), ..begin() });
    assert_eq!(taken(begin()), "RU");
    (0..LOOKS).map(|at| late(at).replace(['R', 'U'], "")).collect()
}

fn offered() -> Offered {
    Offered { socket: descriptor(), user: Uid::ROOT }
}

fn descriptor() -> OwnedFd {
    std::fs::File::open("/dev/null").unwrap().into()
}

fn back() -> Command {
    Command::Back { token: DelegationToken(1), has_ended: false, record: descriptor() }
}

fn left() -> EventT {
    EventT::Recall(RecallT { local: 1, reason: ReasonT::PeerLeft })
}

#[test]
fn what_was_given_back_comes_before_its_session_has_left() {
    let taken = taken_late(|ways| {
        ways.commands.push_back(back());
        ways.events.push_back(left());
    });
    assert!(taken.iter().all(|taken| taken == "BL"), "{taken:?}");
}

#[test]
fn a_socket_comes_after_its_earlier_session_has_left() {
    let taken = taken_late(|ways| {
        ways.events.push_back(left());
        ways.commands.push_back(Command::Socket(offered()));
    });
    assert!(taken.iter().all(|taken| taken == "LS"), "{taken:?}");
}

#[test]
fn all_that_is_there_is_taken() {
    let commands = VecDeque::from([Command::Socket(offered()), back(), back()]);
    let ways = Ways { commands, events: VecDeque::from([left(), left()]), ..Ways::default() };
    assert_eq!(taken(ways), "BBLLS");
    assert_eq!(taken(Ways::default()), "");
}

#[test]
fn who_sends_commands_without_end_keeps_no_event_and_no_socket_waiting() {
    let questions = || Some(Command::AskRoute { local: LocalNumber(2), to: [192, 0, 2, 1].into() });
    let mut taken = Taken::default();
    let mut event = || left();
    let is_event = |next: &Option<Incoming>| matches!(next, Some(Incoming::Event(_)));
    let mut next = || taken.next(questions, &mut event);
    assert!(
        std::iter::repeat_with(&mut next).take(BEFORE_EVENT_MAX + 1).any(|next| is_event(&next))
    );
    let mut taken = Taken::default();
    let sockets = || Some(Command::Socket(offered()));
    for _ in 0..100 {
        let next = taken.next(sockets, || EventT::None);
        assert!(matches!(next, Some(Incoming::Command(Command::Socket(_)))));
    }
    for _ in 0..100 {
        assert!(is_event(&taken.next(sockets, left)));
    }
    assert!(taken.sockets.len() <= SOCKETS_MAX);
}
