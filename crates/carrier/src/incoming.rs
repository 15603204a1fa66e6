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
//! Not here: what is done about each (`moves`), where they come from (`commands`, `sessions`).

use crate::commands::Command;
use rustix::fd::OwnedFd;
use sojourn_session::EventT;
use std::collections::VecDeque;

/// The next thing that the carrier has to do.
#[derive(Debug)]
pub(crate) enum Incoming {
    Command(Command),
    Event(EventT),
}

/// The event, and the sockets, that were taken from their queues and are not handled yet.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    event: Option<EventT>,
    sockets: VecDeque<OwnedFd>,
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
            }
            let before = self.sockets.len();
            while let Some(command) = command() {
                match command {
                    Command::Socket(socket) => self.sockets.push_back(socket),
                    other => return Some(Incoming::Command(other)),
                }
            }
            if let Some(event) = self.event.take() {
                return Some(Incoming::Event(event));
            }
            // A socket that came just now may have come after an event that came just now.
            if self.sockets.len() == before {
                let socket = self.sockets.pop_front()?;
                return Some(Incoming::Command(Command::Socket(socket)));
            }
        }
    }
}

#[cfg(test)]
#[path = "incoming_tests.rs"]
mod tests;
