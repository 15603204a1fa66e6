//! The laws of the registry, which hold for all processes and any order of their calls. Random
//! histories are checked against them.
//!
//! Not here: single cases (`tests`).

use super::end::State;
use super::tests::{Fake, args, client, info, limits, pipe, socket};
use super::*;
use proptest::prelude::*;
use sojourn_session::InboxNumber;
use std::collections::{BTreeMap, HashSet};

const PROCESSES: u32 = 4;

/// What a process may do; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Offer { process: u32, end: u8, is_sole: bool, set: u32 },
    Counted { which: usize, is_sole: bool },
    Next { process: u32 },
    Left { process: u32, which: usize },
    Adopt { process: u32, end: u8, stream: u64, side: u8 },
    Gone { process: u32 },
    Recall { which: usize },
    Poor { regions: u32, inboxes: u32 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = 0..PROCESSES;
    let step = prop_oneof![
        6 => (process.clone(), 0..12u8, prop::bool::weighted(0.8), 0..2u32)
            .prop_map(|(process, end, is_sole, set)| Step::Offer { process, end, is_sole, set }),
        2 => (0..9usize, any::<bool>()).prop_map(|(which, is_sole)| Step::Counted { which, is_sole }),
        6 => process.clone().prop_map(|process| Step::Next { process }),
        3 => (process.clone(), 0..9usize).prop_map(|(process, which)| Step::Left { process, which }),
        1 => (process.clone(), 0..12u8, 1..4u64, 0..2u8)
            .prop_map(|(process, end, stream, side)| Step::Adopt { process, end, stream, side }),
        1 => process.prop_map(|process| Step::Gone { process }),
        1 => (0..9usize).prop_map(|which| Step::Recall { which }),
        1 => (0..5u32, 0..5u32).prop_map(|(regions, inboxes)| Step::Poor { regions, inboxes }),
    ];
    prop::collection::vec(step, 1..120)
}

/// Twelve ends: four connections and two pipes.
fn end(number: u8) -> Identity {
    let object = u64::from(number / 2);
    let is_second = number % 2 == 1;
    match object {
        0..4 if is_second => socket(200 + object, 100 + object),
        0..4 => socket(100 + object, 200 + object),
        _ => pipe(object, is_second),
    }
}

/// A process as its library sees it.
#[derive(Debug, Default)]
struct Library {
    generation: u32,
    next_local: u64,
    locals: Vec<LocalNumber>,
    /// Inboxes that joined sessions name.
    joined: BTreeMap<LocalNumber, [InboxNumber; 2]>,
}

impl Library {
    fn id(&self, index: u32) -> ClientId {
        ClientId { generation: self.generation, ..client(index) }
    }

    fn knows(&self, inbox: InboxNumber) -> bool {
        self.joined.values().flatten().any(|known| *known == inbox)
    }

    /// The rule of `inbox_t`: descriptors come exactly with what the library does not have.
    fn take(&mut self, join: &JoinOut) {
        for inbox in [&join.own, &join.peer] {
            assert_eq!(inbox.descriptors[0].is_none(), self.knows(inbox.id), "{join:?}");
        }
        let before = self.joined.insert(join.local, [join.own.id, join.peer.id]);
        assert!(before.is_none(), "joined twice");
    }
}

struct World {
    registry: Registry,
    memory: Fake,
    libraries: Vec<Library>,
    counts: Vec<ToCount>,
}

impl World {
    fn new() -> Self {
        let mut registry = Registry::new(limits(), 1);
        let mut libraries = Vec::new();
        for index in 0..PROCESSES {
            registry.hello(client(index), info(10 + index, 1000)).unwrap();
            libraries.push(Library { generation: 1, ..Library::default() });
        }
        Self { registry, memory: Fake::default(), libraries, counts: Vec::new() }
    }

    fn fresh(&mut self, process: u32) -> EndId {
        let library = &mut self.libraries[process as usize];
        library.next_local += 1;
        let local = LocalNumber(library.next_local);
        library.locals.push(local);
        EndId { process: library.id(process), local }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Offer { process, end: number, is_sole, set } => {
                let id = self.fresh(process);
                let arguments = OfferArguments { is_sole, set, ..args(id.local.0) };
                let offered = self
                    .registry
                    .offer(id.process, Ok(end(number)), arguments, 0, &mut self.memory)
                    .unwrap();
                if let Offered::Count(number) = offered {
                    self.counts.push(ToCount { end: id, number });
                }
            }
            Step::Counted { which, is_sole } if !self.counts.is_empty() => {
                let counted = self.counts.swap_remove(which % self.counts.len());
                let verdict = if is_sole { Ok(()) } else { Err(ReasonT::SeveralHolders) };
                self.registry.counted(counted, verdict, 0, &mut self.memory);
            }
            Step::Next { process } => self.collect(process),
            Step::Left { process, which } => {
                let library = &mut self.libraries[process as usize];
                if library.locals.is_empty() {
                    return;
                }
                let at = which % library.locals.len();
                let local = library.locals.swap_remove(at);
                library.joined.remove(&local);
                let id = EndId { process: library.id(process), local };
                self.registry.left(id, ReasonT::Operation, 7, 0, &self.memory);
            }
            Step::Adopt { process, end: number, stream, side } => {
                let id = self.fresh(process);
                let part = StreamSide { stream: StreamNumber(stream), side };
                let arguments = args(id.local.0);
                self.registry.adopt(id.process, end(number), arguments, part, 0).unwrap();
            }
            Step::Gone { process } => {
                let library = &mut self.libraries[process as usize];
                self.registry.gone(library.id(process), 0, &self.memory);
                *library = Library { generation: library.generation + 1, ..Library::default() };
                self.registry.hello(library.id(process), info(10 + process, 1000)).unwrap();
            }
            Step::Recall { which } => {
                let stream = self.registry.streams.keys().nth(which).copied();
                stream.map(|stream| self.registry.recall_for(stream, Uid::ROOT, 0));
            }
            Step::Poor { regions, inboxes } => {
                self.memory = Fake { regions, inboxes, ..Fake::default() };
            }
            Step::Counted { .. } => {}
        }
    }

    fn collect(&mut self, process: u32) {
        let library = &mut self.libraries[process as usize];
        let event = self.registry.next(library.id(process)).unwrap();
        match event {
            Some(Delivery::Join(join)) => library.take(&join),
            Some(Delivery::Refused { local, .. }) => {
                assert!(!library.joined.contains_key(&local), "refused after it was joined");
                library.locals.retain(|known| *known != local);
            }
            Some(Delivery::Recall { local, .. }) => assert!(library.locals.contains(&local)),
            Some(Delivery::CarrierMessage(_)) => unreachable!("there is no carrier"),
            Some(Delivery::Wanted { .. }) => unreachable!("there is no administrator"),
            None => {}
        }
    }

    fn check(&self) {
        let registry = &self.registry;
        let ends = registry.processes.iter().flat_map(|(id, process)| {
            let id = |local| EndId { process: *id, local };
            process.ends.iter().map(move |(local, end)| (id(*local), end))
        });
        let mut count = 0;
        for (id, end) in ends {
            count += 1;
            assert_eq!(registry.keys.get(&end.identity.key), Some(&id));
            let other = registry.keys.get(&end.identity.key.mirror());
            let other = other.and_then(|id| registry.end(*id));
            if let (State::Waiting, Some(other)) = (end.state, other) {
                assert_ne!(other.state, State::Waiting, "mirror images that both wait");
            }
            if let State::Joined { stream, side, .. } = end.state {
                assert_eq!(registry.streams[&stream].sides[side as usize], Some(id));
            }
        }
        assert_eq!(count, registry.keys.len());
        self.check_streams();
    }

    fn check_streams(&self) {
        let registry = &self.registry;
        let mut places = HashSet::new();
        let mut adopted = 0;
        for (number, stream) in &registry.streams {
            let ends: Vec<_> = stream.sides.iter().flatten().collect();
            assert!(!ends.is_empty(), "a stream without sides");
            for id in &ends {
                let end = registry.end(**id).expect("a side that is not there");
                assert!(matches!(end.state, State::Joined { stream, .. } if stream == *number));
            }
            if let [a, b] = ends[..] {
                let key = |id: EndId| registry.end(id).unwrap().identity.key;
                assert_eq!(key(*a), key(*b).mirror(), "never with a third");
                assert_ne!(a.process, b.process);
            }
            adopted += usize::from(stream.places == [None; 2]);
            for place in stream.places.iter().flatten() {
                assert!(places.insert(*place), "slot {place:?} is used twice");
                assert!(registry.inboxes.get(place.inbox).is_some() && place.slot < limits().slots);
            }
        }
        assert_eq!(places.len(), registry.inboxes.in_use());
        assert_eq!(places.len(), 2 * (registry.streams.len() - adopted));
        let of_user = registry.users.get(&Uid::from_raw(1000)).copied().unwrap_or(0);
        assert_eq!(of_user, registry.streams.len());
        let ends = registry.processes.values().map(|process| process.ends.len()).sum::<usize>();
        assert_eq!(registry.ends.of(Uid::from_raw(1000)), ends);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_laws_hold_and_nothing_is_left_over(steps in steps()) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        for (index, library) in world.libraries.iter().enumerate() {
            world.registry.gone(library.id(index as u32), 0, &world.memory);
        }
        let registry = &world.registry;
        prop_assert!(registry.streams.is_empty() && registry.keys.is_empty());
        prop_assert!(registry.inboxes.is_empty() && registry.users.is_empty());
        prop_assert!(registry.processes.is_empty());
        prop_assert!(registry.ends.is_empty() && registry.descriptors.is_empty());
    }
}
