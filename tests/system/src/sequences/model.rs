//! What the generator knows of the actors: what is in their slots, and about how much is on its way
//! in each direction of each session.
//!
//! It is no model of the calls' answers: those come from the plain run. It only keeps scripts
//! meaningful, and amounts within what every kind of session holds.

use crate::random::Random;

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// An end of a session: its number and side.
    End { session: usize, side: usize },
    /// An epoll set.
    Set,
    /// An end of something of the actor's own: a pipe or a pair.
    Own { reads: bool, writes: bool },
    /// A file in memory.
    File,
}

/// A slot of an actor.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) number: usize,
    pub(super) held: Held,
}

/// One direction of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Direction {
    /// At most about so many bytes are on their way.
    pub(super) queued: u64,
    /// More is on its way than anybody knows.
    pub(super) is_full: bool,
}

/// An actor.
#[derive(Clone, Debug, Default)]
pub(super) struct Actor {
    pub(super) is_alive: bool,
    pub(super) slots: Vec<Slot>,
    /// The side of the first actor that it descends from.
    pub(super) side: usize,
}

/// The actors and sessions.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) kinds: Vec<&'static str>,
    pub(super) actors: Vec<Actor>,
    /// By session, then by the side that writes.
    pub(super) directions: Vec<[Direction; 2]>,
    next_slot: usize,
}

/// Number of actors, and of slots of each.
pub(super) const ACTORS: usize = 6;
const SLOTS: usize = 64;

impl Model {
    pub(super) fn new(kinds: Vec<&'static str>) -> Self {
        let mut actors = vec![Actor::default(); ACTORS];
        for (side, actor) in actors.iter_mut().enumerate().take(2) {
            let held = |session| Held::End { session, side };
            let slots = (0..kinds.len()).map(|number| Slot { number, held: held(number) });
            *actor = Actor { is_alive: true, slots: slots.collect(), side };
        }
        let directions = vec![[Direction::default(); 2]; kinds.len()];
        Self { next_slot: kinds.len(), kinds, actors, directions }
    }

    /// Returns a number for a new slot. Old ones are used again when there are no others.
    pub(super) fn new_slot(&mut self) -> usize {
        let number = self.next_slot;
        self.next_slot += 1;
        if self.next_slot == SLOTS {
            self.next_slot = self.kinds.len();
        }
        number
    }

    pub(super) fn put(&mut self, actor: usize, number: usize, held: Held) {
        let slots = &mut self.actors[actor].slots;
        slots.retain(|slot| slot.number != number);
        slots.push(Slot { number, held });
    }

    /// Returns a slot of the actor's of which `is_wanted` says true.
    pub(super) fn slot(
        &self,
        random: &mut Random,
        actor: usize,
        is_wanted: impl Fn(&Self, Held) -> bool,
    ) -> Option<Slot> {
        let slots = self.actors[actor].slots.iter().filter(|slot| is_wanted(self, slot.held));
        let slots: Vec<Slot> = slots.copied().collect();
        random.pick(&slots)
    }

    pub(super) fn kind(&self, held: Held) -> &'static str {
        match held {
            Held::End { session, .. } => self.kinds[session],
            Held::Set => "set",
            Held::Own { .. } => "own",
            Held::File => "file",
        }
    }

    pub(super) fn is_socket(&self, held: Held) -> bool {
        self.is_tcp(held) || matches!(self.kind(held), "unix" | "pair")
    }

    pub(super) fn is_tcp(&self, held: Held) -> bool {
        ["tcp", "near", "far"].iter().any(|tcp| self.kind(held).starts_with(tcp))
    }

    /// Returns true if bytes can be read from it: not so of the writing end of a pipe.
    pub(super) fn reads(&self, held: Held) -> bool {
        match held {
            Held::End { side, .. } => match self.kind(held) {
                "pipe" => side == 1,
                "epip" => side == 0,
                _ => true,
            },
            Held::Own { reads, .. } => reads,
            Held::Set | Held::File => false,
        }
    }

    pub(super) fn writes(&self, held: Held) -> bool {
        match held {
            Held::End { side, .. } => match self.kind(held) {
                "pipe" => side == 0,
                "epip" => side == 1,
                _ => true,
            },
            Held::Own { writes, .. } => writes,
            Held::Set | Held::File => false,
        }
    }

    /// The direction that a write to this goes.
    pub(super) fn out(&mut self, held: Held) -> Option<&mut Direction> {
        let Held::End { session, side } = held else { return None };
        Some(&mut self.directions[session][side])
    }

    /// The direction that a read from this takes from.
    pub(super) fn inward(&mut self, held: Held) -> Option<&mut Direction> {
        let Held::End { session, side } = held else { return None };
        Some(&mut self.directions[session][1 - side])
    }
}
