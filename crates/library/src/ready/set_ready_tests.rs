//! The ready list, rule by rule of epoll(7). Not here: the comparison with a model
//! (`set_ready_model_tests`).

use crate::host::epoll::{Interest, bit};
use crate::ready::set_order::{ReportedEvents, Round};
use crate::ready::set_readiness::{ReadinessSource, RingReadiness};
use crate::ready::set_ready::{PlaceInSet, ReadyList, ReadyMember};
use core::cell::{Cell, RefCell};
use sojourn_stream::SlotNumber;

/// A place in the set's first inbox.
pub(super) fn place(slot: u32) -> PlaceInSet {
    PlaceInSet { inbox: 0, slot: SlotNumber(slot) }
}

pub(super) fn asked(events: u32, data: u64) -> Interest {
    Interest { events, data }
}

/// A session as its peer and its kernel descriptor leave it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fake {
    pub(super) bytes: u32,
    pub(super) is_full: bool,
    /// `None` for `output`: not switched to the ring.
    pub(super) is_in_kernel: bool,
    pub(super) kernel: u32,
    pub(super) armed_input: bool,
    pub(super) armed_output: bool,
    pub(super) is_broken: bool,
    pub(super) is_home: bool,
}

/// Sessions by number; the number is their slot as well.
#[derive(Debug, Default)]
pub(super) struct Fakes {
    all: RefCell<Vec<Fake>>,
    kernel_asked: Cell<u32>,
    looks: Cell<u32>,
}

impl Fakes {
    pub(super) fn new(count: usize) -> Self {
        Self {
            all: RefCell::new(vec![Fake::default(); count]),
            kernel_asked: Cell::new(0),
            looks: Cell::new(0),
        }
    }

    /// Looks at rings until now.
    fn looks(&self) -> u32 {
        self.looks.get()
    }

    pub(super) fn with<T>(&self, fd: i32, f: impl FnOnce(&mut Fake) -> T) -> T {
        f(&mut self.all.borrow_mut()[fd as usize])
    }

    /// The peer writes; returns true if it rings.
    pub(super) fn publish(&self, fd: i32) -> bool {
        self.with(fd, |fake| {
            fake.bytes += 1;
            core::mem::take(&mut fake.armed_input)
        })
    }

    /// The peer reads; returns true if it rings.
    pub(super) fn make_room(&self, fd: i32) -> bool {
        self.with(fd, |fake| {
            fake.is_full = false;
            core::mem::take(&mut fake.armed_output)
        })
    }
}

impl ReadinessSource for Fakes {
    fn kernel_decides_room(&self, fd: i32) -> bool {
        self.with(fd, |fake| fake.is_in_kernel)
    }

    fn ring(&self, fd: i32, _wanted: u32) -> RingReadiness {
        self.looks.set(self.looks.get() + 1);
        self.with(fd, |fake| RingReadiness {
            input: fake.bytes > 0,
            output: (!fake.is_in_kernel).then_some(!fake.is_full),
            error: fake.is_broken,
            is_home: fake.is_home,
            is_in_kernel: fake.is_in_kernel,
            others: 0,
        })
    }

    fn arm(&self, fd: i32, input: bool, output: bool) {
        self.with(fd, |fake| {
            fake.armed_input |= input;
            fake.armed_output |= output;
        });
    }

    fn kernel(&self, fd: i32, events: u32) -> u32 {
        self.kernel_asked.set(self.kernel_asked.get() + 1);
        self.with(fd, |fake| fake.kernel & (events | bit::ALWAYS))
    }

    fn note_kernel_event(&self, _fd: i32) {}
}

pub(super) fn collect(list: &mut ReadyList, fakes: &Fakes, room: usize) -> Vec<ReadyMember> {
    let mut found = Vec::new();
    let since = list.begin_round();
    tell(list, fakes, since, room, &mut |one| found.push(ReadyMember { at_ns: 0, ..one }));
    found
}

/// Looks over the list and reports, with nothing to ask the kernel for.
pub(super) fn tell(
    list: &mut ReadyList,
    fakes: &Fakes,
    since: u64,
    room: usize,
    report: &mut dyn FnMut(ReadyMember),
) {
    let round = Round::new(since, list.begin_round(), &ReportedEvents::default());
    let seen = list.look_over(&round, 0, room, fakes);
    assert_eq!(list.report(&round, u64::MAX, room, fakes, report), seen.count);
}

/// A bell is rung.
pub(super) fn ring(list: &mut ReadyList, slot: u32) {
    list.rang(0, SlotNumber(slot), 0);
    list.list_rung(0, 0);
}

pub(super) fn said(fd: i32, events: u32, data: u64) -> ReadyMember {
    ReadyMember { fd, events, data, is_spent: false, at_ns: 0 }
}

/// A peer that says times to come has the bits taken several times in a row.
#[test]
fn a_peer_that_rings_again_and_again_takes_no_others_place() {
    let (fakes, mut list) = (Fakes::new(2), ReadyList::default());
    for fd in 0..2 {
        list.add(fd, place(fd as u32), asked(bit::IN, 7));
    }
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(fakes.publish(1), "it was armed, so its bell rings once and not again");
    (0..3).for_each(|_| list.rang(0, SlotNumber(0), u64::MAX));
    list.rang(0, SlotNumber(1), 1);
    assert!(list.rang_after(1));
    list.list_rung(0, 2);
    assert_eq!(collect(&mut list, &fakes, 9), [said(1, bit::IN, 7)]);
    // The next time, too.
    fakes.with(1, |fake| fake.bytes = 0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(fakes.publish(1));
    ring(&mut list, 1);
    assert_eq!(collect(&mut list, &fakes, 9), [said(1, bit::IN, 7)]);
}

#[test]
fn level_triggered_is_said_while_it_is_so_and_then_needs_a_ring() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    list.add(0, place(0), asked(bit::IN, 7));
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(list.is_idle());
    assert!(fakes.publish(0), "it was armed when it was found not to be ready");
    ring(&mut list, 0);
    for _ in 0..3 {
        assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    }
    assert!(fakes.publish(0), "it was armed once, when it was expected not to be ready");
    ring(&mut list, 0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    assert!(!fakes.publish(0), "nobody rings for what stays on the list");
    fakes.with(0, |fake| fake.bytes = 0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(fakes.publish(0));
}

#[test]
fn a_look_is_enough_for_what_is_received_whole_each_time() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    list.add(0, place(0), asked(bit::IN, 7));
    assert_eq!(collect(&mut list, &fakes, 9), []);
    for _ in 0..3 {
        assert!(fakes.publish(0));
        ring(&mut list, 0);
        let before = fakes.looks();
        assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
        assert_eq!(fakes.looks() - before, 1, "looked at once to find and to report it");
        fakes.with(0, |fake| fake.bytes = 0);
        let before = fakes.looks();
        assert_eq!(collect(&mut list, &fakes, 9), []);
        assert_eq!(fakes.looks() - before, 1, "armed before the look, which is then enough");
    }
}

#[test]
fn an_edge_that_rings_between_the_look_and_the_report_is_armed_again() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    list.add(0, place(0), asked(bit::IN | bit::ET, 7));
    assert!(!fakes.publish(0), "not armed yet");
    let since = list.begin_round();
    let round = Round::new(since, since, &ReportedEvents::default());
    assert_eq!(list.look_over(&round, 0, 9, &fakes).count, 1);
    assert!(fakes.publish(0), "armed by the look");
    ring(&mut list, 0);
    let mut found = 0;
    list.report(&round, u64::MAX, 9, &fakes, &mut |_| found += 1);
    assert_eq!(found, 1);
    fakes.with(0, |fake| fake.bytes = 0);
    assert!(fakes.publish(0), "armed by the report");
}

#[test]
fn a_change_between_the_look_and_the_report_is_looked_at_again() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    let member = list.add(0, place(0), asked(bit::IN, 7));
    fakes.with(0, |fake| (fake.bytes, fake.is_full) = (1, true));
    let round = |list: &mut ReadyList| {
        let since = list.begin_round();
        let round = Round::new(since, since, &ReportedEvents::default());
        assert_eq!(list.look_over(&round, 0, 9, &fakes).count, 1);
        round
    };
    let report = |list: &mut ReadyList, round: &Round| {
        let mut found = Vec::new();
        list.report(round, u64::MAX, 9, &fakes, &mut |one| {
            found.push(ReadyMember { at_ns: 0, ..one });
        });
        found
    };
    let first = round(&mut list);
    list.change(member, bit::OUT, 8);
    assert_eq!(report(&mut list, &first), [], "there is no room");
    list.change(member, bit::IN, 9);
    let second = round(&mut list);
    list.spend(member);
    assert_eq!(report(&mut list, &second), [], "out of the set");
    list.change(member, bit::IN | bit::RDHUP, 9);
    let third = round(&mut list);
    fakes.with(0, |fake| fake.kernel = bit::RDHUP);
    list.kernel_said(member, bit::RDHUP);
    assert_eq!(report(&mut list, &third), [said(0, bit::IN | bit::RDHUP, 9)]);
}

#[test]
fn edge_triggered_is_said_once_for_each_ring() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    list.add(0, place(0), asked(bit::IN | bit::ET, 7));
    fakes.publish(0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(fakes.publish(0), "armed again before it was said");
    ring(&mut list, 0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    assert_eq!(collect(&mut list, &fakes, 9), []);
}

#[test]
fn an_edge_says_all_that_is_so() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    list.add(0, place(0), asked(bit::IN | bit::OUT | bit::RDHUP | bit::ET, 7));
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::OUT, 7)]);
    assert!(fakes.publish(0));
    ring(&mut list, 0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN | bit::OUT, 7)]);
}

#[test]
fn readers_do_not_ring_a_writer_that_has_room() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    list.add(0, place(0), asked(bit::OUT | bit::ET, 7));
    collect(&mut list, &fakes, 9);
    assert!(!fakes.make_room(0));
    fakes.with(0, |fake| fake.is_full = true);
    list.change(0, bit::OUT | bit::ET, 7);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(fakes.make_room(0));
}

#[test]
fn a_spent_one_shot_says_nothing_until_it_is_changed() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    let member = list.add(0, place(0), asked(bit::IN | bit::ONESHOT, 7));
    fakes.publish(0);
    let shot = ReadyMember { is_spent: true, ..said(0, bit::IN, 7) };
    assert_eq!(collect(&mut list, &fakes, 9), [shot]);
    ring(&mut list, 0);
    list.kernel_said(member, !0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    list.change(member, bit::IN | bit::ONESHOT, 8);
    assert_eq!(collect(&mut list, &fakes, 9), [ReadyMember { data: 8, ..shot }]);
}

#[test]
fn what_joins_spent_stays_spent() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    let member = list.add(0, place(0), asked(bit::IN | bit::ONESHOT, 7));
    list.spend(member);
    fakes.publish(0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
}

#[test]
fn the_kernel_is_asked_only_after_it_spoke_and_until_it_has_nothing() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    let member = list.add(0, place(0), asked(bit::IN | bit::RDHUP, 7));
    collect(&mut list, &fakes, 9);
    fakes.with(0, |fake| fake.kernel = bit::IN | bit::RDHUP | bit::HUP);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert_eq!(fakes.kernel_asked.get(), 0);
    list.kernel_said(member, !0);
    let all = bit::IN | bit::RDHUP | bit::HUP;
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, all, 7)]);
    fakes.with(0, |fake| fake.kernel = 0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    let asked = fakes.kernel_asked.get();
    fakes.publish(0);
    ring(&mut list, 0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    assert_eq!(fakes.kernel_asked.get(), asked);
}

#[test]
fn what_the_kernel_said_while_nobody_wanted_it_is_told_when_somebody_does() {
    for how in [0, bit::ET] {
        let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
        let member = list.add(0, place(0), asked(bit::OUT | how, 7));
        fakes.with(0, |fake| fake.is_full = true);
        collect(&mut list, &fakes, 9);
        fakes.with(0, |fake| fake.kernel = bit::IN);
        list.kernel_said(member, bit::IN);
        assert_eq!(collect(&mut list, &fakes, 9), []);
        list.change(member, bit::IN | how, 7);
        assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    }
}

#[test]
fn room_is_the_kernels_word_only_while_bytes_go_there() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    let member = list.add(0, place(0), asked(bit::OUT, 7));
    fakes.with(0, |fake| (fake.is_in_kernel, fake.kernel) = (true, bit::OUT));
    list.kernel_said(member, !0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::OUT, 7)]);
    // Switched, and the ring is full, while the kernel's buffer is empty.
    fakes.with(0, |fake| (fake.is_in_kernel, fake.is_full) = (false, true));
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(fakes.make_room(0));
}

#[test]
fn an_error_is_said_unasked() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    list.add(0, place(0), asked(bit::IN | bit::ET, 7));
    assert_eq!(collect(&mut list, &fakes, 9), []);
    fakes.with(0, |fake| fake.is_broken = true);
    ring(&mut list, 0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::ERR, 7)]);
}

#[test]
fn what_is_home_says_nothing() {
    let (fakes, mut list) = (Fakes::new(1), ReadyList::default());
    let member = list.add(0, place(0), asked(bit::IN, 7));
    fakes.with(0, |fake| (fake.bytes, fake.kernel, fake.is_home) = (1, bit::IN, true));
    list.kernel_said(member, !0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
}

#[test]
fn a_member_that_left_while_listed_leaves_nothing_behind() {
    let (fakes, mut list) = (Fakes::new(2), ReadyList::default());
    let first = list.add(0, place(0), asked(bit::IN, 7));
    fakes.publish(0);
    list.remove(first);
    let second = list.add(1, place(1), asked(bit::IN, 8));
    assert_ne!(first, second, "its place is taken only when the list has let go of it");
    fakes.publish(1);
    assert_eq!(collect(&mut list, &fakes, 9), [said(1, bit::IN, 8)]);
    ring(&mut list, 0);
    assert_eq!(collect(&mut list, &fakes, 9), [said(1, bit::IN, 8)]);
    assert_eq!(list.add(0, place(0), asked(bit::IN, 9)), first);
    assert_eq!(list.len(), 2);
}

#[test]
fn all_have_their_turn_where_there_is_room_for_one() {
    let (fakes, mut list) = (Fakes::new(5), ReadyList::default());
    for fd in 0..5 {
        list.add(fd, place(fd as u32), asked(bit::IN, fd as u64));
        fakes.publish(fd);
    }
    let turns: Vec<i32> = (0..10).map(|_| collect(&mut list, &fakes, 1)[0].fd).collect();
    assert_eq!(turns, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
}

#[test]
fn a_wait_that_looks_twice_says_nothing_twice() {
    let (fakes, mut list) = (Fakes::new(2), ReadyList::default());
    list.add(0, place(0), asked(bit::IN, 7));
    list.add(1, place(1), asked(bit::IN, 8));
    fakes.publish(0);
    fakes.publish(1);
    let since = list.begin_round();
    let mut found = Vec::new();
    tell(&mut list, &fakes, since, 1, &mut |one| found.push(one.fd));
    // Another wait, between the two looks.
    assert_eq!(collect(&mut list, &fakes, 1), [said(1, bit::IN, 8)]);
    tell(&mut list, &fakes, since, 9, &mut |one| found.push(one.fd));
    assert_eq!(found, [0]);
    assert_eq!(collect(&mut list, &fakes, 9).len(), 2);
}

#[test]
fn a_bell_that_brings_nothing_is_no_edge_for_bytes_of_the_kernels() {
    let fakes = Fakes::new(1);
    let mut list = ReadyList::default();
    let member = list.add(0, place(0), asked(bit::IN | bit::ET, 7));
    collect(&mut list, &fakes, 9);
    fakes.with(0, |fake| fake.kernel = bit::IN);
    list.kernel_said(member, bit::IN);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    // Some are left; the peer rings for another reason.
    ring(&mut list, 0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    list.kernel_said(member, bit::IN);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 7)]);
    list.change(member, bit::IN | bit::ET, 8);
    assert_eq!(collect(&mut list, &fakes, 9), [said(0, bit::IN, 8)]);
}
