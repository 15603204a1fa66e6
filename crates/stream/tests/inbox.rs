//! An inbox with real event descriptors, and streams that ring through it.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{inbox, pair_with};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use sojourn_stream::{Bell, Inbox, SlotNumber};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&now)).unwrap() == 1
}

fn ready(inbox: &Inbox) -> Vec<u32> {
    let mut slots = vec![];
    inbox.take_ready(&mut |slot, _| slots.push(slot.0));
    slots
}

#[test]
fn slots_come_out_once_in_ascending_order() {
    let [owner, peer] = inbox();
    let slots = [0, 63, 64, 4095, 4096, 40_000, Inbox::SLOTS - 1];
    for slot in slots.iter().rev() {
        assert!(!peer.post_ready(SlotNumber(*slot)), "nobody sleeps");
    }
    peer.post_ready(SlotNumber(64));
    assert!(owner.has_ready());
    assert_eq!(ready(&owner), slots);
    assert!(!owner.has_ready() && ready(&owner).is_empty());
    (0..Inbox::SLOTS).for_each(|slot| _ = peer.post_ready(SlotNumber(slot)));
    assert_eq!(ready(&owner).len(), Inbox::SLOTS as usize);
}

#[test]
fn the_event_is_written_for_a_sleeper_and_stays_until_cleared() {
    let [owner, peer] = inbox();
    peer.post_ready(SlotNumber(1));
    assert!(!is_readable(owner.ready_fd()), "nobody sleeps");
    owner.announce();
    peer.post_ready(SlotNumber(2));
    peer.post_ready(SlotNumber(3));
    assert!(is_readable(owner.ready_fd()));
    owner.withdraw();
    assert_eq!(ready(&owner), [1, 2, 3]);
    assert!(is_readable(owner.ready_fd()), "for the next sleeper");
    owner.clear_event();
    assert!(!is_readable(owner.ready_fd()));
    // Cleared too early: it is raised again.
    peer.post_ready(SlotNumber(4));
    owner.clear_event();
    assert!(is_readable(owner.ready_fd()));
}

#[test]
fn the_owner_does_not_rely_on_a_peer_that_died_half_way() {
    let [owner, peer] = inbox();
    owner.announce();
    // A peer that has said so but not written the event leaves it like this: written and read
    // again.
    peer.post_ready(SlotNumber(1));
    rustix::io::read(owner.ready_fd(), &mut [0; 8]).unwrap();
    peer.post_ready(SlotNumber(2));
    assert!(!is_readable(owner.ready_fd()));
    owner.post_own(SlotNumber(3));
    assert!(is_readable(owner.ready_fd()));
}

#[test]
fn attention_is_told_whether_or_not_anybody_sleeps() {
    let [owner, peer] = inbox();
    peer.post_attention(SlotNumber(9));
    peer.post_attention(SlotNumber(9));
    assert!(is_readable(owner.attention_fd()) && !is_readable(owner.ready_fd()));
    let mut slots = vec![];
    owner.take_attention(&mut |slot| slots.push(slot.0));
    assert_eq!(slots, [9]);
    assert!(!is_readable(owner.attention_fd()));
    peer.post_attention(SlotNumber(9));
    assert!(is_readable(owner.attention_fd()));
}

#[test]
fn a_stream_rings_through_the_inbox_once_for_each_announcement() {
    let (ours, theirs) = (inbox(), inbox());
    let peers = [(Arc::clone(&theirs[1]), SlotNumber(70)), (Arc::clone(&ours[1]), SlotNumber(5))];
    let [a, b] = pair_with([4096, 4096], peers);
    a.use_ring();
    let write = || a.write(&[IoSlice::new(&[1; 1000])], 1).unwrap();
    b.announce_reader(Bell::OnInbox);
    write();
    write();
    assert_eq!(ready(&theirs[0]), [70]);
    write();
    assert!(ready(&theirs[0]).is_empty(), "not announced again");
    // The writer is rung when the room it wants is there, not before.
    a.announce_writer(Bell::OnInbox, 3000);
    let read = |len: usize| b.read(&mut [IoSliceMut::new(&mut vec![0; len])], false).unwrap();
    read(1000);
    assert!(ready(&ours[0]).is_empty());
    read(1000);
    assert_eq!(ready(&ours[0]), [5]);
    // A freeze rings readers and writers of the other side, whatever they want.
    a.announce_writer(Bell::OnInbox, 4096);
    a.announce_reader(Bell::OnInbox);
    b.freeze();
    b.notify_peer();
    assert_eq!(ready(&ours[0]), [5]);
    b.attention();
    let mut slots = vec![];
    ours[0].take_attention(&mut |slot| slots.push(slot.0));
    assert_eq!(slots, [5]);
}

/// Every process that has an event can make it block. The owner that empties it must not block.
#[test]
fn an_event_that_blocks_holds_nobody_up() {
    let _guard = common::watchdog("an empty event", 20);
    let sojourn_shm::NewSegment { mapping: memory, .. } =
        sojourn_shm::Segment::create("test", Inbox::LEN, sojourn_shm::Access::ReadWrite).unwrap();
    let event = || rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let owner = Inbox::new(memory, event(), event()).unwrap();
    owner.clear_event();
    owner.take_attention(&mut |slot| panic!("{slot:?}"));
    owner.post_own(SlotNumber(3));
    assert!(is_readable(owner.ready_fd()));
    assert_eq!(ready(&owner), [3]);
    owner.clear_event();
    assert!(!is_readable(owner.ready_fd()));
}

/// An owner of another user than its peers has nothing that can make them wait, and hears as much.
#[test]
fn an_owner_apart_hears_peers_and_itself_and_holds_up_nobody() {
    let _guard = common::watchdog("an owner apart", 20);
    let [owner, peer, counters] = apart();
    assert!(owner.is_apart() && !peer.is_apart());
    let full = (u64::MAX - 1).to_ne_bytes();
    for event in [owner.ready_fd(), owner.attention_fd()] {
        assert!(rustix::io::write(event, &full).is_err(), "an owner fills nothing");
    }
    for slot in [1, 2] {
        owner.announce();
        assert!(peer.post_ready(SlotNumber(slot)));
        assert!(is_readable(owner.ready_fd()) && is_readable(owner.ready_fd()));
        owner.withdraw();
        assert_eq!(ready(&owner), [slot]);
        owner.clear_event();
        assert!(!is_readable(owner.ready_fd()));
        peer.post_attention(SlotNumber(slot));
        assert!(is_readable(owner.attention_fd()) && !is_readable(owner.ready_fd()));
        assert_eq!(attention(&owner), [slot]);
        assert!(!is_readable(owner.attention_fd()));
        owner.post_own(SlotNumber(slot + 10));
        assert!(is_readable(owner.ready_fd()));
        assert_eq!(ready(&owner), [slot + 10]);
        owner.clear_event();
        assert!(!is_readable(owner.ready_fd()));
        assert!(owner.post_attention(SlotNumber(slot + 20)) && is_readable(owner.attention_fd()));
        assert_eq!(attention(&owner), [slot + 20]);
    }
    // Peers take the event's counts, and have its reader wait: the owner does not read it.
    rustix::io::read(counters.ready_fd(), &mut [0; 8]).unwrap();
    rustix::fs::fcntl_setfl(counters.ready_fd(), rustix::fs::OFlags::empty()).unwrap();
    owner.clear_event();
    owner.announce();
    assert!(peer.post_ready(SlotNumber(3)) && is_readable(owner.ready_fd()));
    assert_eq!(ready(&owner), [3]);
}

/// The owner's view of an inbox whose peers are another user's, a peer's, and that of one more.
fn apart() -> [Inbox; 3] {
    use rustix::event::epoll::{self, EventData, EventFlags};
    let access = sojourn_shm::Access::ReadWrite;
    let sojourn_shm::NewSegment { segment, mapping: memory } =
        sojourn_shm::Segment::create("test", Inbox::LEN, access).unwrap();
    let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
    let events = [(); 2].map(|()| rustix::event::eventfd(0, flags).unwrap());
    let [ready, attention] = events.each_ref().map(|event| {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let once = EventFlags::IN | EventFlags::ET;
        epoll::add(&set, event, EventData::new_u64(0), once).unwrap();
        set
    });
    let owner = Inbox::new(memory, ready, attention).unwrap();
    let owner = owner.posts_by(rustix::event::eventfd(1, flags).unwrap()).unwrap();
    let peer = || {
        let [ready, attention] = events.each_ref().map(|event| event.try_clone().unwrap());
        Inbox::new(segment.map(access).unwrap(), ready, attention).unwrap()
    };
    [owner, peer(), peer()]
}

/// Returns the slots that want attention.
fn attention(inbox: &Inbox) -> Vec<u32> {
    let mut slots = vec![];
    inbox.take_attention(&mut |slot| slots.push(slot.0));
    slots
}

fn write(stream: &sojourn_stream::Stream, len: usize) {
    assert_eq!(stream.write(&[IoSlice::new(&vec![7; len])], 0), Ok(len));
}

fn read(stream: &sojourn_stream::Stream, len: usize) -> usize {
    stream.read(&mut [IoSliceMut::new(&mut vec![0; len])], false).unwrap()
}

#[test]
fn each_publication_is_heard_while_the_reader_wants_that() {
    let [of_a, to_a] = inbox();
    let [of_b, to_b] = inbox();
    let [a, b] = pair_with([4096, 4096], [(to_b, SlotNumber(9)), (to_a, SlotNumber(7))]);
    b.consent();
    a.use_ring();
    write(&a, 3);
    b.hear_arrivals(true);
    assert_eq!((attention(&of_b), b.take_arrivals()), (vec![], 0), "what came before is not news");
    write(&a, 1);
    write(&a, 500);
    assert_eq!(attention(&of_b), [9]);
    assert_eq!((b.take_arrivals(), b.take_arrivals()), (2, 0));
    assert!(attention(&of_a).is_empty());
    // Sleepers beside it are woken as ever, and the flag stays.
    let before = b.announce_reader(Bell::OnFutex);
    write(&a, 1);
    let slept =
        b.sleep_reader(before, Some(std::time::Duration::from_secs(10)), sojourn_shm::futex::wait);
    assert_eq!(slept, sojourn_shm::futex::Woken::Look);
    b.withdraw_reader();
    assert_eq!((attention(&of_b), b.take_arrivals()), (vec![9], 1));
    // Bytes that have been read are no less heard of.
    write(&a, 1);
    assert_eq!(read(&b, 4096), 506);
    assert_eq!((attention(&of_b), b.take_arrivals()), (vec![9], 1));
    b.hear_arrivals(false);
    write(&a, 1);
    assert_eq!((attention(&of_b), b.take_arrivals()), (vec![], 0));
    b.hear_arrivals(true);
    b.attention();
    write(&a, 1);
    write(&a, 1);
    a.freeze();
    assert_eq!((b.take_arrivals(), b.take_arrivals()), (1, 0), "what is frozen goes home");
}

#[test]
fn room_is_heard_of_from_what_was_wanted_on_until_it_is_forgotten() {
    let [of_a, to_a] = inbox();
    let [_, to_b] = inbox();
    let [a, b] = pair_with([4096, 4096], [(to_b, SlotNumber(9)), (to_a, SlotNumber(7))]);
    b.consent();
    a.use_ring();
    write(&a, 4096);
    a.hear_of_room(2000);
    assert_eq!(read(&b, 1000), 1000);
    assert!(attention(&of_a).is_empty());
    assert_eq!(read(&b, 1000), 1000);
    assert_eq!(attention(&of_a), [7]);
    a.forget_room();
    assert_eq!(read(&b, 1000), 1000);
    assert!(attention(&of_a).is_empty());
}
