//! Models of an inbox: for any posters, and any number of the owner's threads that sleep, no bit is
//! lost, none comes twice, no thread sleeps while there is something for it, and the first post is
//! reported first.
//!
//! Changes seen to fail here: no fence in `Bits::post` or after `Bits::take`'s last swap, in
//! `Doorbell::must_ring` or `announce`; `asleep` taken by the ringer; `withdraw` that clears it
//! while others sleep; a cleared event without another look at the bits, or `rung` cleared before
//! it; no second look at the list; a time noted after the bit, or not left to the first post; no
//! second take after a post that came while bits were taken.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod loom_common;

use loom::sync::{Arc, Mutex};
use loom::thread;
use loom_common::{Event, check};
use sojourn_stream::arrivals::Arrivals;
use sojourn_stream::bits::Bits;
use sojourn_stream::doorbell::{Doorbell, LocalSleepers};

struct Inbox {
    doorbell: Doorbell,
    bits: Bits,
    event: Event,
    within: LocalSleepers,
    /// The lock of the set, and the slots that were taken from the bits and not yet dealt with.
    list: Mutex<Vec<u32>>,
}

impl Inbox {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            doorbell: Doorbell::new(),
            bits: Bits::new(),
            event: Event::new(),
            within: LocalSleepers::default(),
            list: Mutex::new(vec![]),
        })
    }

    fn post(&self, slot: u32) {
        self.bits.post(slot);
        if self.doorbell.must_ring() {
            self.event.write();
        }
    }

    fn clear_event(&self) {
        self.event.drain();
        self.doorbell.cleared();
        if self.bits.has_any() && self.doorbell.ring() {
            self.event.write();
        }
    }

    /// Looks without sleeping, and takes slot 0 if it is there; leaves others on the list.
    fn pass_by(&self) {
        let mut list = self.list.lock().unwrap();
        self.bits.take(&mut |slot| list.push(slot));
        if list.is_empty() {
            self.clear_event();
        }
        list.retain(|slot| *slot != 0);
    }

    /// Takes one slot, sleeping as `inbox` prescribes.
    fn take_one(&self) -> u32 {
        loop {
            let mut list = self.list.lock().unwrap();
            self.bits.take(&mut |slot| list.push(slot));
            if let Some(slot) = list.pop() {
                return slot;
            }
            self.clear_event();
            drop(list);
            self.doorbell.announce(&self.within);
            if !self.bits.has_any() && self.list.lock().unwrap().is_empty() {
                self.event.wait();
            }
            self.doorbell.withdraw(&self.within);
        }
    }
}

fn posters(inbox: &Arc<Inbox>, slots: [u32; 2]) -> [thread::JoinHandle<()>; 2] {
    slots.map(|slot| {
        let inbox = Arc::clone(inbox);
        thread::spawn(move || inbox.post(slot))
    })
}

fn one_owner(bound: usize, slots: [u32; 2]) {
    check(bound, move || {
        let inbox = Inbox::new();
        let posters = posters(&inbox, slots);
        let mut got = [inbox.take_one(), inbox.take_one()];
        got.sort_unstable();
        assert_eq!(got, slots);
        posters.into_iter().for_each(|poster| poster.join().unwrap());
    });
}

#[test]
fn bits_of_one_word() {
    one_owner(2, [0, 1]);
}

#[test]
fn bits_of_one_summary_word() {
    one_owner(2, [0, 2]);
}

#[test]
fn bits_of_two_summary_words() {
    one_owner(2, [1, 7]);
}

/// One thread that takes both must not leave the other asleep, nor one that takes one and goes
/// away.
#[test]
fn two_owners_share_an_event() {
    check(2, || {
        let inbox = Inbox::new();
        let posters = posters(&inbox, [0, 1]);
        let other = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || inbox.take_one())
        };
        let mut got = [inbox.take_one(), other.join().unwrap()];
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
        posters.into_iter().for_each(|poster| poster.join().unwrap());
    });
}

/// A thread that polls and never sleeps takes a bit, finds nothing, clears the event and is gone: a
/// thread that sleeps is still woken for later posts.
#[test]
fn a_passer_by_leaves_no_sleeper_behind() {
    check(3, || {
        let inbox = Inbox::new();
        let poster = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || [0, 7].map(|slot| inbox.post(slot)))
        };
        let passer_by = {
            let inbox = Arc::clone(&inbox);
            thread::spawn(move || (0..2).for_each(|_| inbox.pass_by()))
        };
        while inbox.take_one() != 7 {}
        poster.join().unwrap();
        passer_by.join().unwrap();
    });
}

/// The same slot posted twice may come once or twice, but after the last post it comes.
#[test]
fn a_slot_posted_again_comes_again() {
    check(3, || {
        let inbox = Inbox::new();
        let word = Arc::new(sojourn_shm::AtomicU32::new(0));
        let poster = {
            let (inbox, word) = (Arc::clone(&inbox), Arc::clone(&word));
            thread::spawn(move || {
                for count in 1..=2 {
                    word.store(count, sojourn_shm::Ordering::Release);
                    inbox.post(3);
                }
            })
        };
        while word.load(sojourn_shm::Ordering::Acquire) != 2 {
            assert_eq!(inbox.take_one(), 3);
        }
        poster.join().unwrap();
    });
}

/// A clock that never shows the same twice.
struct Clock(sojourn_shm::AtomicU64);

impl Clock {
    fn now(&self) -> u64 {
        self.0.fetch_add(1, sojourn_shm::Ordering::SeqCst) + 1
    }
}

/// Takes as a set does: again while something came after the take began. Slots in the order of
/// their times.
fn take_in_order(bits: &Bits, arrivals: &Arrivals, clock: &Clock) -> Vec<u32> {
    let mut found = vec![];
    loop {
        let began = clock.now();
        bits.take(&mut |slot| found.push((arrivals.take(slot), slot)));
        if found.iter().all(|(time, _)| *time <= began) {
            break;
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, slot)| slot).collect()
}

/// A post that is known to be before another is reported before it, whichever words their bits are
/// in. The second poster's word of the bitmap has been in use, so that the taker is on its way
/// there.
#[test]
fn what_was_posted_first_is_told_first() {
    check(3, || {
        let all = Arc::new((Bits::new(), Arrivals::new(), Clock(sojourn_shm::AtomicU64::new(0))));
        let post = |all: &(Bits, Arrivals, Clock), slot: u32| {
            all.1.note(slot, all.2.now());
            all.0.post(slot);
        };
        post(&all, 3);
        let poster = {
            let all = Arc::clone(&all);
            thread::spawn(move || [0, 2].map(|slot| post(&all, slot)))
        };
        let mut told = take_in_order(&all.0, &all.1, &all.2);
        poster.join().unwrap();
        told.extend(take_in_order(&all.0, &all.1, &all.2));
        assert_eq!(told, [3, 0, 2]);
    });
}

/// Of two posts of a slot the first one's time counts, if nothing was taken between them.
#[test]
fn a_slot_stands_where_it_was_posted_first() {
    check(3, || {
        let all = Arc::new((Bits::new(), Arrivals::new(), Clock(sojourn_shm::AtomicU64::new(0))));
        let poster = {
            let all = Arc::clone(&all);
            thread::spawn(move || {
                for slot in [1, 6, 1] {
                    all.1.note(slot, all.2.now());
                    all.0.post(slot);
                }
            })
        };
        poster.join().unwrap();
        assert_eq!(take_in_order(&all.0, &all.1, &all.2), [1, 6]);
    });
}
