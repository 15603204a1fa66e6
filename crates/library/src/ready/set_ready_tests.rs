//! The ready list against a model of epoll(7), operation by operation.

use crate::host::epoll::{Interest, bit};
use crate::ready::set_order::{ReportedEvents, Round};
use crate::ready::set_readiness::{ReadinessSource, RingReadiness};
use crate::ready::set_ready::{PlaceInSet, ReadyList, ReadyMember};
use core::cell::{Cell, RefCell};
use proptest::prelude::*;
use std::collections::VecDeque;

/// A place in the set's first inbox.
fn place(slot: u32) -> PlaceInSet {
    PlaceInSet { inbox: 0, slot }
}

fn asked(events: u32, data: u64) -> Interest {
    Interest { events, data }
}

/// A session as its peer and its kernel descriptor leave it.
#[derive(Clone, Copy, Debug, Default)]
struct Fake {
    bytes: u32,
    is_full: bool,
    /// `None` for `output`: not switched to the ring.
    is_in_kernel: bool,
    kernel: u32,
    armed_input: bool,
    armed_output: bool,
    is_broken: bool,
    is_home: bool,
}

/// Sessions by number; the number is their slot as well.
#[derive(Debug, Default)]
struct Fakes {
    all: RefCell<Vec<Fake>>,
    kernel_asked: Cell<u32>,
}

impl Fakes {
    fn new(count: usize) -> Self {
        Self { all: RefCell::new(vec![Fake::default(); count]), kernel_asked: Cell::new(0) }
    }

    fn with<T>(&self, fd: i32, f: impl FnOnce(&mut Fake) -> T) -> T {
        f(&mut self.all.borrow_mut()[fd as usize])
    }

    /// The peer writes; returns true if it rings.
    fn publish(&self, fd: i32) -> bool {
        self.with(fd, |fake| {
            fake.bytes += 1;
            core::mem::take(&mut fake.armed_input)
        })
    }

    /// The peer reads; returns true if it rings.
    fn make_room(&self, fd: i32) -> bool {
        self.with(fd, |fake| {
            fake.is_full = false;
            core::mem::take(&mut fake.armed_output)
        })
    }
}

impl ReadinessSource for Fakes {
    fn ring(&self, fd: i32) -> RingReadiness {
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

fn collect(list: &mut ReadyList, fakes: &Fakes, room: usize) -> Vec<ReadyMember> {
    let mut found = Vec::new();
    let since = list.begin_round();
    tell(list, fakes, since, room, &mut |one| found.push(ReadyMember { at_ns: 0, ..one }));
    found
}

/// Looks over the list and reports, with nothing to ask the kernel for.
fn tell(
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
fn ring(list: &mut ReadyList, slot: u32) {
    list.rang(0, slot, 0);
    list.list_rung(0, 0);
}

fn said(fd: i32, events: u32, data: u64) -> ReadyMember {
    ReadyMember { fd, events, data, is_spent: false, at_ns: 0 }
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
    assert!(!fakes.publish(0), "nobody rings for what is on the list");
    fakes.with(0, |fake| fake.bytes = 0);
    assert_eq!(collect(&mut list, &fakes, 9), []);
    assert!(fakes.publish(0));
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

/// A step of a program, its peers or the kernel.
#[derive(Clone, Debug)]
enum Step {
    Publish(i32),
    ReadAll(i32),
    ReadSome(i32),
    Fill(i32),
    MakeRoom(i32),
    Change(i32, u32),
    Remove(i32),
    Add(i32, u32),
    KernelSays(i32, u32),
    Wait(usize),
}

const SESSIONS: i32 = 4;

fn step() -> impl Strategy<Value = Step> {
    let fd = 0..SESSIONS;
    let mode =
        prop_oneof![Just(0), Just(bit::ET), Just(bit::ONESHOT), Just(bit::ET | bit::ONESHOT)];
    let events = (prop_oneof![Just(bit::IN), Just(bit::OUT), Just(bit::IN | bit::OUT)], mode)
        .prop_map(|(what, mode)| what | mode);
    let kernel = prop_oneof![Just(0), Just(bit::IN), Just(bit::IN | bit::HUP)];
    prop_oneof![
        4 => fd.clone().prop_map(Step::Publish),
        2 => fd.clone().prop_map(Step::ReadAll),
        1 => fd.clone().prop_map(Step::ReadSome),
        2 => fd.clone().prop_map(Step::Fill),
        2 => fd.clone().prop_map(Step::MakeRoom),
        2 => (fd.clone(), events.clone()).prop_map(|(fd, events)| Step::Change(fd, events)),
        1 => fd.clone().prop_map(Step::Remove),
        2 => (fd.clone(), events).prop_map(|(fd, events)| Step::Add(fd, events)),
        1 => (fd, kernel).prop_map(|(fd, kernel)| Step::KernelSays(fd, kernel)),
        6 => (1..6usize).prop_map(Step::Wait),
    ]
}

/// A model of epoll(7) for one session. It knows if an event came since the last look
/// (`is_pending`), and if that was the ring's alone (`is_rung`): events of the kernel are in front
/// of that and were reported before.
#[derive(Clone, Copy, Debug)]
struct Model {
    member: u32,
    events: u32,
    is_pending: bool,
    is_rung: bool,
    is_spent: bool,
}

#[derive(Debug)]
struct World {
    fakes: Fakes,
    list: ReadyList,
    models: Vec<Option<Model>>,
}

impl World {
    fn new() -> Self {
        let models = vec![None; SESSIONS as usize];
        Self { fakes: Fakes::new(SESSIONS as usize), list: ReadyList::default(), models }
    }

    /// Returns the state that the ring would report, and the state that the kernel would report if
    /// it had everything.
    fn now(&self, fd: i32) -> (u32, u32) {
        self.fakes.with(fd, |fake| {
            let input = if fake.bytes > 0 { bit::IN } else { 0 };
            let output = if fake.is_full { 0 } else { bit::OUT };
            (input | output, input | output | fake.kernel)
        })
    }

    /// Some of `events` happened; the kernel notes those for which a registration asks.
    fn happened(&mut self, fd: i32, rang: bool, events: u32) {
        if rang {
            ring(&mut self.list, fd as u32);
        }
        if let Some(model) = &mut self.models[fd as usize] {
            // A bell armed for an earlier registration still rings once: an edge too many, which
            // epoll allows.
            model.is_rung |= rang || events & (model.events | bit::ALWAYS) != 0;
        }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Publish(fd) => {
                let rang = self.fakes.publish(fd);
                self.happened(fd, rang, bit::IN);
            }
            Step::ReadAll(fd) => self.fakes.with(fd, |fake| fake.bytes = 0),
            Step::ReadSome(fd) => {
                self.fakes.with(fd, |fake| fake.bytes = fake.bytes.saturating_sub(1));
            }
            Step::Fill(fd) => {
                // As the send path does when it finds no room (`Set::full`).
                self.fakes.with(fd, |fake| fake.is_full = true);
                if self.models[fd as usize].is_some_and(|model| model.events & bit::OUT != 0) {
                    self.fakes.arm(fd, false, true);
                }
            }
            Step::MakeRoom(fd) => {
                let was_full = self.fakes.with(fd, |fake| fake.is_full);
                let rang = self.fakes.make_room(fd);
                if was_full {
                    self.happened(fd, rang, bit::OUT);
                }
            }
            Step::KernelSays(fd, events) => {
                let before =
                    self.fakes.with(fd, |fake| core::mem::replace(&mut fake.kernel, events));
                let news = events & !before;
                if let Some(model) = self.models[fd as usize].filter(|_| news != 0) {
                    self.list.kernel_said(model.member, news);
                    let model = self.models[fd as usize].as_mut().unwrap();
                    model.is_pending |= news & (model.events | bit::ALWAYS) != 0;
                }
            }
            Step::Change(fd, events) => {
                let Some(model) = &mut self.models[fd as usize] else { return };
                *model = Model { events, is_pending: true, is_spent: false, ..*model };
                self.list.change(model.member, events, fd as u64);
                // The change of the registration makes the kernel report its state again.
                self.list.kernel_said(model.member, self.fakes.with(fd, |fake| fake.kernel));
            }
            Step::Remove(fd) => {
                if let Some(model) = self.models[fd as usize].take() {
                    self.list.remove(model.member);
                }
            }
            Step::Add(fd, events) => {
                if self.models[fd as usize].is_none() {
                    let member = self.list.add(fd, place(fd as u32), asked(events, fd as u64));
                    let (is_pending, is_rung, is_spent) = (true, true, false);
                    self.models[fd as usize] =
                        Some(Model { member, events, is_pending, is_rung, is_spent });
                    if self.fakes.with(fd, |fake| fake.kernel) != 0 {
                        self.list.kernel_said(member, !0);
                    }
                }
            }
            Step::Wait(room) => self.wait(room),
        }
    }

    fn wait(&mut self, room: usize) {
        let due: Vec<(i32, u32)> = (0..SESSIONS)
            .filter_map(|fd| {
                let model = self.models[fd as usize]?;
                let (ring, all) = self.now(fd);
                let events = all & (model.events | bit::ALWAYS);
                let is_rung = model.is_rung && ring & model.events != 0;
                let is_due = model.events & bit::ET == 0 || model.is_pending || is_rung;
                (events != 0 && !model.is_spent && is_due).then_some((fd, events))
            })
            .collect();
        let found = collect(&mut self.list, &self.fakes, room);
        assert_eq!(found.len(), due.len().min(room), "{found:?} of {due:?}");
        for one in &found {
            assert!(due.contains(&(one.fd, one.events)), "{one:?} of {due:?}");
            assert_eq!(one.data, one.fd as u64);
            let model = self.models[one.fd as usize].as_mut().unwrap();
            (model.is_pending, model.is_rung) = (false, false);
            model.is_spent = model.events & bit::ONESHOT != 0;
            assert_eq!(one.is_spent, model.is_spent);
        }
        // With room to spare every session was looked at, and one that was not ready has used up
        // its event.
        if found.len() < room {
            for (fd, model) in self.models.iter_mut().enumerate() {
                if !due.iter().any(|(due, _)| *due == fd as i32)
                    && let Some(model) = model
                {
                    (model.is_pending, model.is_rung) = (false, false);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn the_list_says_what_epoll_says(steps in prop::collection::vec(step(), 1..60)) {
        let mut world = World::new();
        for step in &steps {
            world.run(step);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Like in the kernel's list, a session that is rung goes behind the others, in the order of
    /// the times and not of the bits, and so does a session that was reported and is still ready.
    #[test]
    fn the_list_tells_in_the_order_of_epoll(steps in prop::collection::vec((0..8i32, 0..6usize), 1..80)) {
        const MEMBERS: i32 = 6;
        let (fakes, mut list) = (Fakes::new(MEMBERS as usize), ReadyList::default());
        for fd in 0..MEMBERS {
            list.add(fd, place(fd as u32), asked(bit::IN, fd as u64));
        }
        assert_eq!(collect(&mut list, &fakes, 9), []);
        let (mut model, mut rung, mut now) = (VecDeque::new(), vec![], 0);
        for (what, room) in steps {
            now += 1;
            if what < MEMBERS && room > 0 {
                if fakes.publish(what) {
                    rung.push((what, now));
                    model.push_back(what);
                }
                continue;
            }
            if what < MEMBERS {
                fakes.with(what, |fake| fake.bytes = 0);
                continue;
            }
            rung.sort_unstable();
            rung.drain(..).for_each(|(fd, at_ns)| list.rang(0, fd as u32, at_ns));
            list.list_rung(0, now);
            let mut told = vec![];
            for _ in 0..model.len() {
                if told.len() == room + 1 {
                    break;
                }
                let fd = model.pop_front().unwrap();
                if fakes.with(fd, |fake| fake.bytes > 0) {
                    told.push(fd);
                    model.push_back(fd);
                }
            }
            let found = collect(&mut list, &fakes, room + 1);
            prop_assert_eq!(found.iter().map(|one| one.fd).collect::<Vec<_>>(), told);
        }
    }
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
