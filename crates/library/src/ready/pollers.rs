//! The threads of the process that sleep in polls, and how they wake each other.
//!
//! Not here: the reason for that (the head of `poll_sleep`), and the events slept for.

use crate::host::epoll::bit;
use crate::host::kernel::PollFd;
use crate::host::lock::lock;
use sojourn_shm::MovableFd;
use sojourn_shm::wait::Policy;
use sojourn_stream::{Inbox, SlotNumber};
use std::sync::{Arc, Mutex};

/// The threads of the process that sleep in polls.
#[derive(Debug, Default)]
pub(crate) struct Pollers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sleeping: Vec<Sleeper>,
    spare_events: Vec<MovableFd>,
    spare_policies: Vec<Policy>,
}

#[derive(Debug)]
struct Sleeper {
    /// The slots slept for: see [`interest_in`].
    interest: u64,
    event: MovableFd,
    is_nudged: bool,
}

/// Returns the bit that stands for a slot in a sleeper's interest: bit n is that of every slot that
/// is n modulo 64.
pub(crate) fn interest_in(slot: SlotNumber) -> u64 {
    1 << (slot.0 % 64)
}

impl Pollers {
    /// Adds a thread that is about to sleep for sessions in slots of these bits; `event` wakes it.
    pub(crate) fn sleeps(&self, interest: u64, event: MovableFd) {
        lock(&self.state).sleeping.push(Sleeper { interest, event, is_nudged: false });
    }

    /// Returns an event descriptor that a sleeper had before, if there is one.
    pub(crate) fn spare_event(&self) -> Option<MovableFd> {
        lock(&self.state).spare_events.pop()
    }

    /// Returns the spinning policy of an earlier wait, with what it has learnt.
    pub(crate) fn spare_policy(&self) -> Option<Policy> {
        lock(&self.state).spare_policies.pop()
    }

    pub(crate) fn keep_policy(&self, policy: Policy) {
        lock(&self.state).spare_policies.push(policy);
    }

    /// Takes out the awake thread with the event `number`; `extra` has the kernel's answers about
    /// the inboxes and that event.
    pub(crate) fn woke(&self, inboxes: &[Arc<Inbox>], number: i32, extra: &[PollFd]) {
        let mut state = lock(&self.state);
        let at = state.sleeping.iter().position(|sleeper| sleeper.event.number() == number);
        if let Some(sleeper) = at.map(|at| state.sleeping.swap_remove(at)) {
            let is_lost = extra
                .iter()
                .any(|said| said.fd == number && u32::from(said.revents as u16) & bit::NVAL != 0);
            if sleeper.is_nudged && !is_lost {
                let _ = rustix::io::read(&sleeper.event, &mut [0; 8]);
            }
            if is_lost {
                // The program has closed the number past the library, so the number is no longer
                // the library's to close.
                sleeper.event.place().move_to(None);
            } else {
                state.spare_events.push(sleeper.event);
            }
        }
        for (inbox, said) in inboxes.iter().zip(extra) {
            if said.revents != 0 {
                // Taking the bits hides them from the other sleepers, so these are nudged.
                let mut bits = 0;
                inbox.take_ready(&mut |slot, _| bits |= interest_in(slot));
                state.nudge(bits);
                inbox.clear_event();
            }
        }
    }
}

impl State {
    fn nudge(&mut self, bits: u64) {
        for sleeper in &mut self.sleeping {
            if sleeper.interest & bits != 0 && !sleeper.is_nudged {
                sleeper.is_nudged = true;
                let _ = rustix::io::write(&sleeper.event, &1u64.to_ne_bytes());
            }
        }
    }
}
