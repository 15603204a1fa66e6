//! The sets that carry sessions, and the fate of sessions when a set is used in a way in which it
//! cannot carry them. Through the library's own calls, on sessions with both ends in this process.

use crate::fds::slot::SetNumber;
use crate::host::epoll::bit;
use crate::host::epoll::op;
use crate::host::kernel::PollFd;
use crate::moves::descriptors::Origin;
use crate::process::library::library;
use crate::ready::set_fakes::{LONG, inbox};
use crate::ready::set_state::event;
use crate::ready::sets::SetOf;
use crate::session_fakes::{Pair, common_inbox, is_away, read, write};
use core::time::Duration;
use rustix::event::epoll;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::sync::Arc;
use std::thread;

const NOW: Option<Duration> = Some(Duration::ZERO);

/// A set as a program has it.
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> Self {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        library().opened(set.as_raw_fd(), Origin::Fresh);
        library().epoll_made(set.as_raw_fd());
        Self(set)
    }

    pub(super) fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    pub(super) fn change(&self, op: i32, fd: i32, events: u32) -> Result<(), Errno> {
        library().epoll_ctl(self.fd(), op, fd, Some(&event(events, fd as u64)))
    }

    pub(super) fn wait(&self, limit: Option<Duration>) -> Vec<(u32, i32)> {
        let mut events = [event(0, 0); 16];
        let found = library().epoll_wait(self.fd(), &mut events, limit, None).unwrap();
        let form =
            |event: &crate::EpollEvent| ({ event.flags }.bits(), { event.data }.u64() as i32);
        events[..found].iter().map(form).collect()
    }

    /// Its number, as it goes into offers.
    pub(super) fn id(&self, of: i32) -> SetNumber {
        match library().set_of(of) {
            SetOf::One(id) => id,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        library().closing(self.fd());
    }
}

/// A session whose end 0 is in `set`.
fn joined_in(set: &Epoll, events: u32) -> Pair {
    let pair = Pair::new();
    set.change(op::ADD, pair.fd(0), events).unwrap();
    assert!(pair.join([(inbox(), set.id(pair.fd(0))), (common_inbox(), SetNumber::NONE)]));
    pair.warm_up();
    pair
}

#[test]
fn a_session_in_a_set_is_heard_of() {
    for events in [bit::IN, bit::IN | bit::ET] {
        let set = Epoll::new();
        let pair = joined_in(&set, events);
        set.wait(NOW);
        assert_eq!(set.wait(NOW), []);
        write(pair.fd(1), b"x").unwrap();
        assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
        read(pair.fd(0), &mut [0; 9]).unwrap();
        assert_eq!(set.wait(NOW), []);
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| set.wait(Some(LONG)));
            thread::sleep(Duration::from_millis(20));
            write(pair.fd(1), b"x").unwrap();
            assert_eq!(sleeper.join().unwrap(), [(bit::IN, pair.fd(0))]);
        });
        assert!(is_away(pair.fd(0)));
    }
}

#[test]
fn going_home_and_moving_again_loses_no_edge() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::IN | bit::ET);
    for _ in 0..20 {
        set.wait(NOW);
        write(pair.fd(1), b"x").unwrap();
        library().go_home(pair.fd(1), sojourn_session::ReasonT::User, false);
        library().go_home(pair.fd(0), sojourn_session::ReasonT::User, false);
        assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
        assert_eq!(read(pair.fd(0), &mut [0; 9]), Ok(1));
        join_soon(&pair, &set);
        pair.warm_up();
    }
}

/// Moves the pair again, with another inbox of the set's. A thread that has taken a copy of the
/// list of inboxes has the earlier ones for a moment more, and there may be no place until then.
fn join_soon(pair: &Pair, set: &Epoll) {
    let deadline = sojourn_shm::Deadline::after(LONG);
    while !pair.join([(inbox(), set.id(pair.fd(0))), (common_inbox(), SetNumber::NONE)]) {
        assert!(!deadline.is_over(), "no place for one more");
        std::thread::yield_now();
    }
}

/// Inboxes of sessions that have gone home are there until the server knows of it, which on a busy
/// machine may be a while.
#[test]
fn a_set_that_has_no_place_for_one_more_inbox_has_one_later() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::IN);
    let mut kept = Vec::new();
    let mut joins = || {
        for end in 0..2 {
            library().go_home(pair.fd(end), sojourn_session::ReasonT::User, false);
        }
        kept.push(inbox());
        pair.join([
            (Arc::clone(&kept[kept.len() - 1]), set.id(pair.fd(0))),
            (common_inbox(), SetNumber::NONE),
        ])
    };
    assert!((0..20).any(|_| !joins()), "there is an end to inboxes");
    // The other end has heard of that.
    library().session_of(pair.fd(1)).unwrap().attend();
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    assert_eq!(read(pair.fd(0), &mut [0; 9]), Ok(1));
    kept.clear();
    join_soon(&pair, &set);
    pair.warm_up();
    assert!(is_away(pair.fd(0)) && is_away(pair.fd(1)));
}

#[test]
fn what_was_reported_is_there_to_be_read_while_its_session_goes_home() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::IN);
    assert_eq!(write(pair.fd(1), b"bytes"), Ok(5));
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    let session = library().session_of(pair.fd(0)).unwrap();
    session.leave(sojourn_session::ReasonT::Operation, false);
    // The peer hands over a little later, as its protocol thread comes to it.
    let peer = pair.fd(1);
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(2));
        library().session_of(peer).unwrap().attend();
    });
    assert_eq!(read(pair.fd(0), &mut [0; 9]), Ok(5));
    later.join().unwrap();
}

#[test]
fn a_writer_hears_of_room_also_edge_triggered() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::OUT | bit::ET);
    assert_eq!(set.wait(NOW), [(bit::OUT, pair.fd(0))]);
    assert_eq!(set.wait(NOW), []);
    for _ in 0..3 {
        while write(pair.fd(0), &[1; 5000]).is_ok() {}
        assert_eq!(set.wait(NOW), []);
        while read(pair.fd(1), &mut [0; 5000]).is_ok() {}
        assert_eq!(set.wait(Some(LONG)), [(bit::OUT, pair.fd(0))]);
        assert_eq!(set.wait(NOW), []);
    }
}

#[test]
fn in_two_sets_it_goes_home_and_stays() {
    let (one, two) = (Epoll::new(), Epoll::new());
    let pair = joined_in(&one, bit::IN);
    two.change(op::ADD, pair.fd(0), bit::IN).unwrap();
    assert!(!is_away(pair.fd(0)));
    assert_eq!(library().set_of(pair.fd(0)), SetOf::Unfit);
    write(pair.fd(1), b"x").unwrap();
    for set in [&one, &two] {
        assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    }
    assert!(!pair.join([(inbox(), SetNumber::of_offer(1)), (common_inbox(), SetNumber::NONE)]));
}

#[test]
fn added_to_a_set_it_goes_home_until_it_is_offered_with_the_set() {
    let set = Epoll::new();
    let pair = Pair::joined();
    pair.warm_up();
    set.change(op::ADD, pair.fd(0), bit::IN | bit::ET).unwrap();
    assert!(!is_away(pair.fd(0)));
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    assert_eq!(read(pair.fd(0), &mut [0; 9]), Ok(1));
    assert!(pair.join([(inbox(), set.id(pair.fd(0))), (common_inbox(), SetNumber::NONE)]));
}

#[test]
fn taken_out_and_put_back_it_is_heard_of_again() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::IN);
    let other = joined_in(&set, bit::IN);
    set.change(op::DEL, pair.fd(0), 0).unwrap();
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(NOW), []);
    assert_eq!(read(pair.fd(0), &mut [0; 9]), Ok(1));
    assert!(is_away(pair.fd(0)));
    set.change(op::ADD, pair.fd(0), bit::IN).unwrap();
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    assert!(is_away(pair.fd(0)));
    assert!(is_away(other.fd(0)));
}

#[test]
fn out_of_the_set_it_is_as_if_it_had_never_been_there() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::IN);
    set.change(op::DEL, pair.fd(0), 0).unwrap();
    assert_eq!(set.change(op::DEL, pair.fd(0), 0), Err(Errno::NOENT));
    assert_eq!(set.change(op::MOD, pair.fd(0), bit::IN), Err(Errno::NOENT));
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(NOW), []);
    set.change(op::ADD, pair.fd(0), bit::IN | bit::ET).unwrap();
    assert_eq!(set.change(op::ADD, pair.fd(0), bit::IN), Err(Errno::EXIST));
    // An event that came meanwhile is news.
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    assert_eq!(read(pair.fd(0), &mut [0; 9]), Ok(1));
    set.change(op::DEL, pair.fd(0), 0).unwrap();
    library().go_home(pair.fd(0), sojourn_session::ReasonT::User, false);
    // Home: the kernel does not have it either.
    assert_eq!(set.wait(NOW), []);
    assert_eq!(set.change(op::DEL, pair.fd(0), 0), Err(Errno::NOENT));
    set.change(op::ADD, pair.fd(0), bit::IN).unwrap();
    assert_eq!(set.wait(NOW), []);
}

#[test]
fn room_is_said_again_after_each_time_out_of_the_set() {
    let set = Epoll::new();
    // Not warmed up: bytes still go to the kernel, which reports only once that it has room.
    let pair = Pair::new();
    set.change(op::ADD, pair.fd(0), bit::OUT).unwrap();
    assert!(pair.join([(inbox(), set.id(pair.fd(0))), (common_inbox(), SetNumber::NONE)]));
    for _ in 0..3 {
        assert_eq!(set.wait(Some(LONG)), [(bit::OUT, pair.fd(0))]);
        set.change(op::DEL, pair.fd(0), 0).unwrap();
        set.change(op::ADD, pair.fd(0), bit::IN).unwrap();
        assert_eq!(set.wait(NOW), []);
        set.change(op::DEL, pair.fd(0), 0).unwrap();
        set.change(op::ADD, pair.fd(0), bit::OUT).unwrap();
    }
}

#[test]
fn sets_that_others_can_see_carry_no_sessions() {
    type Use = fn(&Epoll) -> Option<Epoll>;
    let uses: [Use; 5] = [
        |set| {
            let outer = Epoll::new();
            outer.change(op::ADD, set.fd(), bit::IN).unwrap();
            Some(outer)
        },
        |set| {
            let mut asked = [PollFd { fd: set.fd(), events: bit::IN as i16, revents: 0 }];
            library().poll(&mut asked, NOW, None).unwrap();
            None
        },
        |set| {
            let copy = rustix::io::dup(&set.0).unwrap();
            library().duplicated(set.fd(), copy.as_raw_fd());
            library().closing(copy.as_raw_fd());
            None
        },
        |set| {
            library().passing(set.fd());
            None
        },
        |set| {
            // The prefix of our tags in a program's data.
            let pair = Pair::new();
            let data = crate::ready::set_entry::Tag::Inbox(3).to_data();
            let fd = pair.fd(0);
            library().epoll_ctl(set.fd(), op::ADD, fd, Some(&event(bit::IN, data))).unwrap();
            None
        },
    ];
    for (at, how) in uses.iter().enumerate() {
        let set = Epoll::new();
        let pair = joined_in(&set, bit::IN);
        let outer = how(&set);
        assert!(!is_away(pair.fd(0)), "use {at}");
        assert_eq!(library().set_of(pair.fd(0)), SetOf::Unfit, "use {at}");
        write(pair.fd(1), b"x").unwrap();
        if let Some(outer) = &outer {
            assert_eq!(outer.wait(Some(LONG)), [(bit::IN, set.fd())]);
        }
        assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))], "use {at}");
    }
}

#[test]
fn a_set_that_a_child_may_use_takes_no_more_sessions() {
    let set = Epoll::new();
    let away = joined_in(&set, bit::IN);
    let here = Pair::new();
    set.change(op::ADD, here.fd(0), bit::IN).unwrap();
    // Other tests' sets are made in this process as well; so only this one's state is set, not by a
    // fork.
    library().sets_before_exec();
    assert!(matches!(library().set_of(here.fd(0)), SetOf::One(_)), "closed at exec");
    assert!(is_away(away.fd(0)));
    let flags = rustix::io::FdFlags::empty();
    let open = Epoll::new();
    rustix::io::fcntl_setfd(&open.0, flags).unwrap();
    let pair = joined_in(&open, bit::IN);
    library().sets_before_exec();
    assert!(!is_away(pair.fd(0)));
    assert_eq!(library().set_of(pair.fd(0)), SetOf::Unfit);
}

#[test]
fn a_one_shot_is_offered_after_its_next_change() {
    let set = Epoll::new();
    let pair = Pair::new();
    let events = bit::IN | bit::ONESHOT;
    set.change(op::ADD, pair.fd(0), events).unwrap();
    assert_eq!(library().set_of(pair.fd(0)), SetOf::NotYet);
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    assert_eq!(set.wait(NOW), []);
    set.change(op::MOD, pair.fd(0), events).unwrap();
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    read(pair.fd(0), &mut [0; 9]).unwrap();
    let id = set.id(pair.fd(0));
    assert!(pair.join([(inbox(), id), (common_inbox(), SetNumber::NONE)]));
    pair.warm_up();
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(NOW), [], "it was spent before it moved");
    set.change(op::MOD, pair.fd(0), events).unwrap();
    assert_eq!(set.wait(NOW), [(bit::IN, pair.fd(0))]);
    assert_eq!(set.wait(NOW), []);
}

#[test]
fn a_closed_set_leaves_its_sessions_alone() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::IN);
    let fd = pair.fd(0);
    drop(set);
    assert!(is_away(fd));
    assert_eq!(library().set_of(fd), SetOf::None);
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(read(fd, &mut [0; 9]), Ok(1));
    let set = Epoll::new();
    set.change(op::ADD, fd, bit::IN).unwrap();
    // Away or home, it must be heard of: its inbox was that of the set that was closed.
    write(pair.fd(1), b"x").unwrap();
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, fd)]);
}

#[test]
fn a_polled_session_of_a_set_comes_home_where_it_must_be_slept_for() {
    let set = Epoll::new();
    let pair = joined_in(&set, bit::IN);
    let mut asked = [pair.fd(0), -1].map(|fd| PollFd { fd, events: bit::IN as i16, revents: 0 });
    assert_eq!(library().poll(&mut asked, NOW, None), Ok(0));
    assert!(is_away(pair.fd(0)), "a look does no harm");
    let limit = Some(Duration::from_millis(20));
    assert_eq!(library().poll(&mut asked, limit, None), Ok(0));
    assert!(!is_away(pair.fd(0)));
}

#[test]
fn a_session_out_of_its_set_is_polled_alone_without_going_home() {
    let set = Epoll::new();
    let pair = Pair::new();
    set.change(op::ADD, pair.fd(0), bit::IN).unwrap();
    assert!(pair.join([(inbox(), set.id(pair.fd(0))), (common_inbox(), SetNumber::NONE)]));
    set.change(op::DEL, pair.fd(0), 0).unwrap();
    let mut asked = [PollFd { fd: pair.fd(0), events: bit::IN as i16, revents: 0 }];
    // The peer has switched to the ring and has written nothing: there is nothing to read yet.
    let peer = library().session_of(pair.fd(1)).unwrap();
    peer.switch_now();
    assert!(peer.stream().unwrap().uses_ring());
    let limit = Some(Duration::from_millis(20));
    assert_eq!(library().poll(&mut asked, limit, None), Ok(0));
    assert!(is_away(pair.fd(0)));
    let theirs = pair.fd(1);
    let writer = thread::spawn(move || write(theirs, b"x"));
    assert_eq!(library().poll(&mut asked, Some(LONG), None), Ok(1));
    assert_eq!(writer.join().unwrap(), Ok(1));
    assert_eq!(read(pair.fd(0), &mut [0; 9]), Ok(1));
    // Back in the set, it is heard of there.
    set.change(op::ADD, pair.fd(0), bit::IN).unwrap();
    write(pair.fd(1), b"y").unwrap();
    assert_eq!(set.wait(Some(LONG)), [(bit::IN, pair.fd(0))]);
    assert!(is_away(pair.fd(0)));
}

#[test]
fn errors_are_the_kernels() {
    let set = Epoll::new();
    let fd = set.fd();
    assert_eq!(library().epoll_ctl(fd, op::ADD, fd, None), Err(Errno::FAULT));
    assert_eq!(library().epoll_ctl(fd, 77, fd, Some(&event(0, 0))), Err(Errno::INVAL));
    assert_eq!(library().epoll_ctl(-1, 77, fd, Some(&event(0, 0))), Err(Errno::BADF));
    assert_eq!(set.change(op::ADD, fd, bit::IN), Err(Errno::INVAL));
    assert_eq!(set.change(op::ADD, 1_000_000, bit::IN), Err(Errno::BADF));
    assert_eq!(library().epoll_wait(-1, &mut [event(0, 0)], NOW, None), Err(Errno::BADF));
    let pair = Pair::new();
    let no_set = library().epoll_wait(pair.fd(0), &mut [event(0, 0)], NOW, None);
    assert_eq!(no_set, Err(Errno::INVAL));
}

/// As a pipe's writer: it has no receiving side.
#[test]
fn a_writer_that_has_not_switched_yet_hears_of_the_kernels_room() {
    let set = Epoll::new();
    let pair = Pair::new();
    let events = bit::OUT | bit::ET;
    set.change(op::ADD, pair.fd(0), events).unwrap();
    set.wait(NOW);
    assert_eq!(set.wait(NOW), [], "the edge is taken");
    assert!(pair.join([(inbox(), set.id(pair.fd(0))), (common_inbox(), SetNumber::NONE)]));
    let session = library().session_of(pair.fd(0)).unwrap();
    *crate::host::lock::lock(&session.rx) = crate::session::directions::Receiver::default();
    assert!(!session.ready(bit::INPUT).is_home);
    assert_eq!(set.wait(Some(LONG)), [(bit::OUT, pair.fd(0))]);
}
