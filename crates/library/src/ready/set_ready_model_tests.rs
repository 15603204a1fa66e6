//! The ready list against a model of epoll(7), operation by operation.

use crate::host::epoll::bit;
use crate::ready::set_readiness::ReadinessSource;
use crate::ready::set_ready::ReadyList;
use crate::ready::set_ready_tests::{Fakes, asked, collect, place, ring};
use proptest::prelude::*;
use sojourn_stream::SlotNumber;
use std::collections::VecDeque;

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
                    // A session that is listed keeps its place (`ep_poll_callback`).
                    if !model.contains(&what) {
                        model.push_back(what);
                    }
                }
                continue;
            }
            if what < MEMBERS {
                fakes.with(what, |fake| fake.bytes = 0);
                continue;
            }
            rung.sort_unstable();
            rung.drain(..).for_each(|(fd, at_ns)| list.rang(0, SlotNumber(fd as u32), at_ns));
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
