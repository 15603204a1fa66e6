//! The carrier's part in moves: the server's commands, and its events about sessions.
//!
//! The steps are in `offer`, `join` and `out` (out of the kernel), `end` (into it again), `attend`
//! (the choice between them), `working` (what assistants do for sessions), `home` (requests for a
//! return), `held` (programs that do not answer these), `hung_up` (sockets without a connection),
//! `numbers` (the state of a session whose program is silent). Not here: the loop of the thread
//! (`run`), the order of commands and events (`incoming`). Read the head of `carrier` and
//! `docs/understand/moves.md` first.

mod attend;
mod end;
mod held;
mod home;
mod hung_up;
mod join;
mod numbers;
mod offer;
mod out;
mod working;

use crate::carrier::Carrier;
use crate::commands::Command;
use crate::incoming::Incoming;
use sojourn_session::{EventT, LocalNumber};

/// Commands and events that are handled before everything else has its turn: who sends them without
/// end holds up neither timers nor rules.
const AT_ONCE: usize = 256;

impl Carrier {
    /// Does the waiting commands, and handles the server's events.
    pub(crate) fn take_commands(&mut self) {
        self.commands.quiet();
        for _ in 0..AT_ONCE {
            self.keep_assistants_busy();
            let Self { commands, sessions, taken, .. } = self;
            match taken.next(|| commands.next(), || sessions.next()) {
                Some(Incoming::Command(command)) => self.obey(command),
                Some(Incoming::Event(event)) => self.handle(event),
                None => {
                    self.has_more = false;
                    return;
                }
            }
        }
        self.has_more = true;
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Socket(socket) => self.offer(socket),
            Command::Registered { stream, pid } => self.registered(stream, pid),
            Command::AllHome => self.all_home(),
            Command::Back { token, has_ended, record } => {
                self.given_back(token, has_ended, &record);
            }
            Command::InTransit { token, packets } => self.say_in_transit(token, &packets),
            Command::AskRoute { local, to } => self.tell_route(local, to),
        }
    }

    fn handle(&mut self, event: EventT) {
        match event {
            EventT::Join(join) => self.joined(&join),
            EventT::Recall(recall) => self.recalled(&recall),
            EventT::Refused(refusal) => {
                self.table.remove(&LocalNumber(refusal.local));
            }
            // The server sends these to libraries only.
            EventT::None
            | EventT::Delegate(_)
            | EventT::Rerouted(_)
            | EventT::Wanted(_)
            | EventT::Route(_) => {}
        }
    }
}
