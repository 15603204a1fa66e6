//! The order in which the carrier takes what comes to it by two ways: commands and events.
//!
//! Each way keeps its own order, and neither knows of the other. Two orders across them matter:
//!
//! * A library gives datagrams back by a command ([`Command::Back`]) before it says that the
//!   session has left, which the carrier hears as an event. So commands are taken after each look
//!   at the events, and before the event that was found there. Taken the other way round, a
//!   command that came between the two looks would name a session that is not known any more, and
//!   the datagrams would be lost.
//! * A socket comes by a command ([`Command::Socket`]) after its earlier session has left. So
//!   sockets are put aside until a later look has found no event.
//!
//! Whoever sends commands without end has no event wait for all of them, nor the carrier keep all
//! sockets: commands that come faster than they are taken may be taken late.
//!
//! Not here: what is done about each (`moves`), where they come from (`commands`, `sessions`).

use crate::commands::{Command, Offered};
use sojourn_session::EventT;
use std::collections::VecDeque;

/// The next thing that the carrier has to do.
#[derive(Debug)]
pub(crate) enum Incoming {
    Command(Command),
    Event(EventT),
}

/// The most commands that are taken between an event's coming and its turn: more than the few of
/// one library that may have come before it, of many users in turn (`commands`).
const BEFORE_EVENT_MAX: usize = 64;
/// The most sockets that are put aside, about.
const SOCKETS_MAX: usize = 4096;

/// The event, and the sockets, that were taken from their queues and are not handled yet.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    event: Option<EventT>,
    /// Commands that were taken since the last look at the events.
    since_look: usize,
    sockets: VecDeque<Offered>,
}

impl Taken {
    /// Returns what has to be done next; `None` if there is nothing. `command` and `event` take
    /// the next one of each way.
    pub(crate) fn next(
        &mut self,
        mut command: impl FnMut() -> Option<Command>,
        mut event: impl FnMut() -> EventT,
    ) -> Option<Incoming> {
        loop {
            if self.event.is_none() {
                self.event = Some(event()).filter(|event| !matches!(event, EventT::None));
                self.since_look = 0;
            }
            let before = self.sockets.len();
            while self.since_look < BEFORE_EVENT_MAX
                && self.sockets.len() < SOCKETS_MAX
                && let Some(command) = command()
            {
                self.since_look += 1;
                match command {
                    Command::Socket(socket) => self.sockets.push_back(socket),
                    other => return Some(Incoming::Command(other)),
                }
            }
            if let Some(event) = self.event.take() {
                return Some(Incoming::Event(event));
            }
            if before > 0 {
                let socket = self.sockets.pop_front()?;
                return Some(Incoming::Command(Command::Socket(socket)));
            }
            // A socket that came just now may have come after an event that came just now.
            if self.sockets.is_empty() {
                return None;
            }
        }
    }
}

#[cfg(test)]
#[path = "incoming_tests.rs"]
mod tests;
