//! Assistants, with programs that hold their sockets' locks among the others.
//!
//! A thread that waits for such a lock cannot be ended, so the carrier's side never waits here:
//! each wait has an end.

use super::*;
use rustix::net::sockopt;
use sojourn_lab::hold;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Longest wait for an answer that comes.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

fn connection() -> [TcpStream; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    [one, listener.accept().unwrap().0]
}

fn assistants() -> Assistants {
    Assistants::new(Arc::new(|| Box::new(|_| b"seen".to_vec()))).unwrap()
}

/// Attends to the assistants until `is_over` holds of all that was heard.
#[track_caller]
fn hear_until(assistants: &mut Assistants, is_over: impl Fn(&[Heard]) -> bool) -> Vec<Heard> {
    let begun = std::time::Instant::now();
    let mut heard = Vec::new();
    while !is_over(&heard) {
        assert!(begun.elapsed() < PATIENCE, "only {} were heard", heard.len());
        assistants.tidy(sojourn_pump::now());
        heard.extend(assistants.wait(LOOK));
        heard.extend(assistants.heard());
    }
    heard
}

fn locals(heard: &[Heard]) -> Vec<u64> {
    let mut locals: Vec<u64> = heard.iter().map(|heard| heard.local.0).collect();
    locals.sort_unstable();
    locals
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn work_of_all_is_done_and_leaves_no_descriptors_behind() {
    let mut assistants = assistants();
    let before = descriptors();
    let connections: Vec<_> = (0..20).map(|_| connection()).collect();
    for (number, [one, _]) in connections.iter().enumerate() {
        let user = Uid::from_raw(number as u32 % 3);
        let socket = assistants.socket(one.try_clone().unwrap().into(), user);
        assistants.give(LocalNumber(number as u64 + 1), &socket, Work::Inspect, Vec::new());
    }
    // The sockets are closed, too.
    let heard = hear_until(&mut assistants, |heard| heard.len() == 40);
    assert_eq!(locals(&heard)[20..], (1..=20).collect::<Vec<u64>>());
    for Heard { local, what } in heard {
        match what {
            What::Finished(Finished { done: Done::Inspected(inspected), file: None }) => {
                assert_eq!(inspected.seen, b"seen");
            }
            What::Finished(Finished { done: Done::Over, .. }) => assert_eq!(local.0, 0),
            _ => panic!("another answer about {local:?}"),
        }
    }
    assert!(assistants.places.len() <= WORKING_MAX);
    drop(connections);
    // Other tests run at the same time.
    assert!(descriptors() < before + 30, "{before}");
}

#[test]
fn who_holds_locks_waits_alone_and_what_waited_is_done_when_it_lets_go() {
    let Some(_) = hold::faults() else { return };
    let mut assistants = assistants();
    let [hostile, honest] = [1, 2].map(Uid::from_raw);
    let held: Vec<_> = (1..=6)
        .map(|number| {
            let [one, other] = connection();
            assert!(hold::hold(hold::faults().unwrap(), one.try_clone().unwrap().into()));
            let socket = assistants.socket(one.into(), hostile);
            let work = Work::Nudge(crate::hasten::Nudge::Push);
            assistants.give(LocalNumber(number), &socket, work, Vec::new());
            (socket, other)
        })
        .collect();
    let [free, _other] = connection();
    let socket = assistants.socket(free.try_clone().unwrap().into(), honest);
    for number in 10..20 {
        assistants.give(LocalNumber(number), &socket, Work::Inspect, Vec::new());
        let heard = hear_until(&mut assistants, |heard| !heard.is_empty());
        assert_eq!(locals(&heard), [number]);
    }
    // The hostile user has its few assistants, and another one's new sockets wait.
    hear_until(&mut assistants, |_| true);
    assert_eq!(assistants.users[&hostile].begun, OF_USER_MAX);
    assert!(assistants.places.len() <= OF_USER_MAX + WORKING_MAX);
    let [new, _peer] = connection();
    let new = assistants.socket(new.into(), hostile);
    assistants.give(LocalNumber(30), &new, Work::Inspect, Vec::new());
    assert!(assistants.tidy(sojourn_pump::now()).is_some());
    assert!(assistants.heard().is_empty());
    std::mem::forget((held, new, socket));
}

#[test]
fn new_sessions_of_who_held_an_assistant_wait_longer_each_time() {
    let mut assistants = assistants();
    let (user, at) = (Uid::from_raw(1), Instant::from_micros);
    let pair = [(); 2].map(|()| Assistant::start(Arc::clone(&assistants.make_look)).unwrap());
    for (number, assistant) in (0..).zip(pair) {
        assistants.places.insert(number, Place { assistant, begun: None });
    }
    let until = |assistants: &Assistants| assistants.users[&user].until.as_micros();
    let mut now = 0;
    for times in [1, 2, 4, 8, 16, 32, 64, 64] {
        for place in assistants.places.values_mut() {
            place.begun = Some(Begun { local: LocalNumber(1), user, seen_at: at(now), looks: 0 });
        }
        let before = assistants.users.get(&user).map(|user| user.until);
        // Where nobody has run for long that is one look.
        assistants.note_late(at(now + 100 * LOOK_US));
        for look in 1..u64::from(HELD_LOOKS) {
            assert_eq!(assistants.users[&user].until, before.unwrap_or_default(), "too early");
            assistants.note_late(at(now + (100 + look) * LOOK_US));
        }
        let held_at = now + (99 + u64::from(HELD_LOOKS)) * LOOK_US;
        assert_eq!(until(&assistants), held_at + times * WAIT_MIN_US, "both count once");
        now = until(&assistants);
    }
}

#[test]
fn a_socket_that_lingers_is_closed_by_an_assistant() {
    let mut assistants = assistants();
    let [mut one, mut other] = connection();
    one.set_nonblocking(true).unwrap();
    while one.write(&[0; 65536]).is_ok() {}
    sockopt::set_socket_linger(&one, Some(Duration::from_secs(60))).unwrap();
    let begun = std::time::Instant::now();
    drop(assistants.socket(one.into(), Uid::from_raw(1)));
    assistants.tidy(sojourn_pump::now());
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    // The peer hears of the end once it has read everything.
    other.set_read_timeout(Some(PATIENCE)).unwrap();
    while other.read(&mut [0; 65536]).unwrap() > 0 {}
}

#[test]
fn an_assistant_that_ends_over_its_work_is_noticed() {
    let make_look: MakeLook = Arc::new(|| Box::new(|_| panic!("as it must be able to")));
    let mut assistants = Assistants::new(make_look).unwrap();
    let [one, _other] = connection();
    let socket = assistants.socket(one.into(), Uid::from_raw(1));
    assistants.give(LocalNumber(1), &socket, Work::Inspect, Vec::new());
    let heard = hear_until(&mut assistants, |heard| !heard.is_empty());
    let what = &heard[0].what;
    assert!(matches!(what, What::Finished(Finished { done: Done::Lost, .. })));
    assert!(assistants.places.is_empty());
    // The next one does the next work.
    let work = Work::Nudge(crate::hasten::Nudge::Push);
    assistants.give(LocalNumber(2), &socket, work, Vec::new());
    assert_eq!(locals(&hear_until(&mut assistants, |heard| !heard.is_empty())), [2]);
}
