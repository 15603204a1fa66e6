//! The threads of the process that sleep in polls, and how they wake each other.
//!
//! Why they have to: the head of `poll_sleep`. Not here: what a thread sleeps for.

use crate::host::epoll::bit;
use crate::host::kernel::PollFd;
use crate::host::lock::lock;
use sojourn_shm::Held;
use sojourn_shm::wait::Policy;
use sojourn_stream::Inbox;
use std::sync::{Arc, Mutex};

/// The threads of the process that sleep in polls.
#[derive(Debug, Default)]
pub(crate) struct Pollers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sleeping: Vec<Sleeper>,
    spare_events: Vec<Held>,
    spare_policies: Vec<Policy>,
}

#[derive(Debug)]
struct Sleeper {
    /// A bit for every 64th slot.
    interest: u64,
    event: Held,
    is_nudged: bool,
}

impl Pollers {
    /// A thread is about to sleep for sessions in slots of these bits; `event` is to wake it.
    pub(crate) fn sleeps(&self, interest: u64, event: Held) {
        lock(&self.state).sleeping.push(Sleeper { interest, event, is_nudged: false });
    }

    /// An event that a sleeper had before.
    pub(crate) fn spare_event(&self) -> Option<Held> {
        lock(&self.state).spare_events.pop()
    }

    /// What a waiter has learnt, for the next one.
    pub(crate) fn spare_policy(&self) -> Option<Policy> {
        lock(&self.state).spare_policies.pop()
    }

    pub(crate) fn keep_policy(&self, policy: Policy) {
        lock(&self.state).spare_policies.push(policy);
    }

    /// The thread with the event `number` is awake; `extra` is what the kernel said of inboxes and
    /// event.
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
                // The program has closed the number by a way around us; it is not ours to close.
                sleeper.event.place().move_to(None);
            } else {
                state.spare_events.push(sleeper.event);
            }
        }
        for (inbox, said) in inboxes.iter().zip(extra) {
            if said.revents != 0 {
                let mut bits = 0;
                inbox.take_ready(&mut |slot, _| bits |= 1u64 << (slot % 64));
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
