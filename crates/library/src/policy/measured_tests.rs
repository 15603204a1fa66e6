//! A session with both ends in this process goes home for a trial, and the result of the trial
//! decides if it may move again. Time is made up.

use crate::fds::entry::mark;
use crate::host::lock::lock;
use crate::process::library::library;
use crate::session::progress::TrialHistory;
use crate::session_fakes::{Pair, is_away, read, write};
use core::sync::atomic::Ordering;
use sojourn_session::ReasonT;
use sojourn_shm::deadline::now_ns;

const STEP_NS: u64 = 5_000_000;
/// Long enough for a first trial.
const STEPS: u64 = 1000;

/// As if end 0 had been watched for some seconds: at its next sample a trial is due.
fn make_due(pair: &Pair) {
    let session = library().session_of(pair.fd(0)).unwrap();
    let mut away = TrialHistory::new().away();
    let now_ns = now_ns();
    for step in (1..=STEPS).rev() {
        // Nothing went through: whatever the kernel does is more.
        away.sample(now_ns - step * STEP_NS, 0, || 0);
    }
    let local = session.local().unwrap();
    *lock(&local.progress) = away;
    local.is_due.store(true, Ordering::Relaxed);
}

#[test]
fn a_trial_sends_a_session_home_with_all_that_was_sent() {
    let pair = Pair::joined();
    pair.warm_up();
    let entry = library().table.known(pair.fd(0)).unwrap();
    assert_eq!(write(pair.fd(1), b"answer"), Ok(6));
    make_due(&pair);
    assert_eq!(write(pair.fd(0), b"question"), Ok(8));
    assert!(
        !is_away(pair.fd(0))
            || lock(&library().session_of(pair.fd(0)).unwrap().rx).phase
                != crate::session::directions::RxPhase::Ring
    );
    assert!(entry.has(mark::MEASURED));
    // The other end finds that the first has left, and where its bytes are.
    let mut buf = [0; 16];
    assert_eq!((read(pair.fd(1), &mut buf), &buf[..8]), (Ok(8), &b"question"[..]));
    assert_eq!((read(pair.fd(0), &mut buf), &buf[..6]), (Ok(6), &b"answer"[..]));
    assert!(!is_away(pair.fd(0)) && !is_away(pair.fd(1)));
    // On its trial it is not offered, until that has found something or has lasted long enough.
    assert!(!library().may_move_again(pair.fd(0), entry, 1 << 20));
    assert_eq!(entry.kept_for(), None);
}

#[test]
fn a_session_that_is_used_seldom_goes_home_and_may_move_again() {
    let pair = Pair::joined();
    pair.warm_up();
    let entry = library().table.known(pair.fd(0)).unwrap();
    let local = library().session_of(pair.fd(0)).unwrap().session.local().unwrap();
    let mut away = TrialHistory::new().away();
    for seconds in [2, 1] {
        away.sample(now_ns() - seconds * 1_000_000_000, 0, || 0);
    }
    *lock(&local.progress) = away;
    local.is_due.store(true, Ordering::Relaxed);
    assert_eq!(write(pair.fd(0), b"question"), Ok(8));
    assert_eq!(read(pair.fd(1), &mut [0; 16]), Ok(8));
    assert!(!is_away(pair.fd(0)) && !is_away(pair.fd(1)));
    assert_eq!((entry.has(mark::MEASURED), entry.kept_for()), (false, None));
}

#[test]
fn what_did_better_in_the_kernel_stays_there_and_says_why() {
    let pair = Pair::joined();
    pair.warm_up();
    make_due(&pair);
    assert_eq!(write(pair.fd(0), b"question"), Ok(8));
    assert_eq!(read(pair.fd(1), &mut [0; 16]), Ok(8));
    let fd = pair.fd(0);
    let entry = library().table.known(fd).unwrap();
    let now_ns = now_ns();
    let asked = |step| library().may_move_at(now_ns + step * STEP_NS, fd, entry, 1000);
    let decided = (0..100).find(|step| asked(*step) || entry.kept_for().is_some());
    assert!(decided.is_some_and(|step| step > 30), "{decided:?}");
    assert_eq!(entry.kept_for(), Some(ReasonT::Slower));
    // A thousand bytes every five milliseconds.
    let found = library().figures(fd, ReasonT::Slower);
    assert_eq!((found.in_kernel, found.away), (200_000, 0));
    assert_eq!(
        library().figures(fd, ReasonT::Set),
        crate::session::progress::TrialRates::default()
    );
    assert!(!asked(100) && !asked(300));
    // Two seconds later it is tried again.
    assert!(asked(500));
    assert_eq!(entry.kept_for(), None);
}

#[test]
fn an_end_that_is_not_due_or_not_the_one_to_judge_stays_away() {
    let pair = Pair::joined();
    pair.warm_up();
    make_due(&pair);
    // Side 1 hears side 0: it does not judge.
    let local = |end| library().session_of(pair.fd(end)).unwrap().session.local().unwrap();
    *lock(&local(1).progress) = *lock(&local(0).progress);
    local(1).is_due.store(true, Ordering::Relaxed);
    assert_eq!(write(pair.fd(1), b"x"), Ok(1));
    assert!(is_away(pair.fd(1)));
    local(0).is_due.store(false, Ordering::Relaxed);
    assert_eq!(write(pair.fd(0), b"x"), Ok(1));
    assert!(is_away(pair.fd(0)));
}
