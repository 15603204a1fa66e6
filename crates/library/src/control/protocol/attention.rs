//! The protocol thread's part in attention: it looks after the sessions whose peers ask for it.
//!
//! A look takes one off the inbox's allowance, unless it finds that a signal is due: bytes have
//! come. An inbox that is not listened to for a while delays only peers of one user, as it has no
//! others, and only what their sessions hear of by attention alone. Not here: the number of looks
//! (`allowance`), and what a session does then (`OwnSession::attend`).

use super::thread::{OwnInbox, Thread};
use core::time::Duration;
use std::time::Instant;

impl Thread {
    /// Attends to an inbox whose event was reported.
    pub(super) fn attend_asked(&mut self, number: u64) {
        if self.attend(number) {
            return;
        }
        let Some(inbox) = self.own_inboxes.values_mut().find(|inbox| inbox.number == number) else {
            return;
        };
        if !inbox.allowance.take(Instant::now(), inbox.uses) {
            self.aside.call(|outside| outside.ignore_inbox(number));
        }
    }

    /// Does what was asked for by the slots of an inbox. Returns true if a signal was due.
    pub(super) fn attend(&mut self, number: u64) -> bool {
        let found = self.own_inboxes.values().find(|inbox| inbox.number == number);
        let Some(inbox) = found else { return false };
        let mut slots = Vec::new();
        inbox.inbox.take_attention(&mut |slot| slots.extend(inbox.slots.get(&slot).copied()));
        let mut is_due = false;
        for slot in slots {
            if let Some(session) = self.library.session_in(slot) {
                is_due |= self.signal(&session);
                session.attend();
            }
        }
        is_due
    }

    /// Listens again to the inboxes whose pause is over.
    pub(super) fn hear_again(&mut self) {
        let at = Instant::now();
        let over = |inbox: &mut OwnInbox| inbox.allowance.is_over(at).then_some(inbox.number);
        let over: Vec<u64> = self.own_inboxes.values_mut().filter_map(over).collect();
        for number in over {
            // What was asked for meanwhile is reported at once.
            self.aside.call(|outside| outside.hear_inbox(number));
        }
    }

    /// Returns the time until an inbox is to be listened to again.
    pub(super) fn unheard_for(&self) -> Option<Duration> {
        let until = self.own_inboxes.values().filter_map(|inbox| inbox.allowance.unheard_until);
        until.min().map(|until| until.saturating_duration_since(Instant::now()))
    }
}
