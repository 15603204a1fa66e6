//! The times at which peers hear of an end.

use crate::process::library::library;
use crate::ready::set_fakes::inbox;
use crate::session_fakes::Pair;
use core::sync::atomic::Ordering;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sojourn_session::ReasonT;
use sojourn_stream::{Bell, Inbox};

fn is_told(inbox: &Inbox) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let event = inbox.attention_fd();
    poll(&mut [PollFd::from_borrowed_fd(event, PollFlags::IN)], Some(&now)) == Ok(1)
}

/// Ends the one end of a session as a shell does, up to the kernel's call. Returns true if nobody
/// was woken by then. Other ends that close at the same time make peers look at this one, too.
fn is_quiet(end: &dyn Fn(i32)) -> bool {
    let mut pair = Pair::new();
    let inboxes = [inbox(), inbox()];
    assert!(pair.join_in_no_set(inboxes.clone()));
    pair.warm_up();
    end(pair.fd(0));
    let is_quiet = !is_told(&inboxes[1]);
    pair.close(0);
    assert!(is_told(&inboxes[1]), "but afterwards");
    is_quiet
}

#[test]
fn the_kernel_is_the_first_to_tell_of_an_end() {
    assert!((0..100).any(|_| is_quiet(&|fd| library().closing(fd))), "close");
    assert!((0..100).any(|_| is_quiet(&|fd| library().replacing(fd))), "dup2");
    assert!((0..100).any(|_| is_quiet(&|fd| library().shutting(fd, false))), "shutdown");
    let range = |fd: i32| library().closing_range(fd as u32, fd as u32);
    assert!((0..100).any(|_| is_quiet(&range)), "close_range");
}

/// Ends the one end of a session as a shell does, up to the kernel's call. Returns true if a call
/// of the peer that sleeps for the stream was woken by then, and finds out that the end comes.
fn wakes_sleepers(end: &dyn Fn(i32)) -> bool {
    let mut pair = Pair::new();
    let inboxes = [inbox(), inbox()];
    assert!(pair.join_in_no_set(inboxes.clone()));
    pair.warm_up();
    let stream = library().session_of(pair.fd(1)).and_then(|session| session.stream()).unwrap();
    // As the call does before it sleeps.
    let said = stream.announce_reader(Bell::OnFutex);
    end(pair.fd(0));
    let is_woken = stream.reader_bell().load(Ordering::SeqCst) != said;
    let ends = stream.peer_ends();
    stream.withdraw_reader();
    pair.close(0);
    is_woken && ends
}

#[test]
fn who_sleeps_for_an_end_is_woken_before_the_kernel_is_called() {
    assert!(wakes_sleepers(&|fd| library().closing(fd)), "close");
    assert!(wakes_sleepers(&|fd| library().replacing(fd)), "dup2");
    assert!(wakes_sleepers(&|fd| library().shutting(fd, false)), "shutdown");
    assert!(wakes_sleepers(&|fd| library().closing_range(fd as u32, fd as u32)), "close_range");
    let home = |fd| library().go_home(fd, ReasonT::Operation, false);
    assert!(!wakes_sleepers(&home), "it goes home, and no end comes");
}
