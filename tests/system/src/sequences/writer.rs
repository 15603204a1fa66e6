//! What writes a script: the model, chance, and the steps so far. Not here: which steps
//! (`generate`, `data_steps`, `descriptor_steps`).

use super::model::{ACTORS, Held, Model, Slot};
use crate::random::Random;

/// Most bytes that are on their way in one direction but for `fillup`. A pipe has 16 places of a
/// page each, and a write that does not fit into the last place takes another.
pub(super) const QUEUED_MAX: u64 = 26_000;
pub(super) const KINDS: [&str; 6] = ["tcp4", "tcp6", "unix", "pair", "pipe", "epip"];
/// Of sessions with another host: the first actor's end is on this one, or on the other.
pub(super) const REMOTE_KINDS: [&str; 4] = ["near4", "near6", "far4", "far6"];
pub(super) const AMOUNTS: [u64; 13] =
    [0, 1, 2, 7, 40, 41, 100, 1000, 4095, 4096, 5000, 9000, 16_384];
pub(super) const EVENTS: [&str; 8] = [
    "POLLIN",
    "POLLOUT",
    "POLLIN|POLLOUT",
    "POLLIN|POLLPRI",
    "POLLRDHUP",
    "POLLIN|POLLOUT|POLLRDHUP",
    "0",
    "POLLRDNORM|POLLWRNORM",
];

/// What a script contains. Much of it sends sessions home, where they stay the longer the more
/// often it happens, so that few scripts may contain everything.
pub(super) struct Profile {
    pub(super) has_recalls: bool,
    pub(super) has_processes: bool,
    /// Calls that only the kernel has, and options.
    pub(super) has_kernel_calls: bool,
    pub(super) has_ends: bool,
    pub(super) has_background: bool,
    /// What fewer programs do.
    pub(super) has_extras: bool,
}

/// An actor with a step in the background, and how many steps others make meanwhile.
pub(super) struct Busy {
    pub(super) actor: usize,
    pub(super) left: u32,
}

pub(super) struct Writer {
    pub(super) model: Model,
    pub(super) random: Random,
    pub(super) steps: Vec<String>,
    pub(super) profile: Profile,
    pub(super) busy: Option<Busy>,
}

impl Writer {
    pub(super) fn emit(&mut self, actor: usize, step: &str) {
        let letter = char::from(b'A' + actor as u8);
        self.steps.push(format!("{letter} {step}"));
    }

    pub(super) fn one_of(&mut self, all: &[&'static str]) -> &'static str {
        self.random.pick(all).unwrap_or("0")
    }

    pub(super) fn actor(&mut self) -> usize {
        let busy = match &mut self.busy {
            Some(busy) if busy.left > 0 => {
                busy.left -= 1;
                Some(busy.actor)
            }
            _ => None,
        };
        let is_free = |actor: &usize| self.model.actors[*actor].is_alive && Some(*actor) != busy;
        let free: Vec<usize> = (0..ACTORS).filter(is_free).collect();
        self.random.pick(&free).unwrap_or(0)
    }

    /// Any slot, at times one that holds nothing.
    pub(super) fn any(&mut self, actor: usize) -> usize {
        if self.random.percent(3) {
            return self.random.below(30);
        }
        let slot = self.model.slot(&mut self.random, actor, |_, _| true);
        slot.map_or(0, |slot| slot.number)
    }

    pub(super) fn session(&mut self, actor: usize) -> Option<Slot> {
        self.model.slot(&mut self.random, actor, |_, held| matches!(held, Held::End { .. }))
    }

    pub(super) fn socket(&mut self, actor: usize) -> Option<Slot> {
        self.model.slot(&mut self.random, actor, Model::is_socket)
    }

    pub(super) fn amount(&mut self) -> u64 {
        self.random.pick(&AMOUNTS).unwrap_or(1)
    }
}
