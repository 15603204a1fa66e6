//! The carrier's part in a move: what the server tells it to do, and what it says of sessions.
//!
//! The steps: `out` (out of the kernel), `end` (into it again), `attend` (which of them), `home`
//! (who asks for it); what is known of a session whose program is silent: `numbers`. Read the head
//! of `carrier` and `docs/understand/moves.md` first.

mod attend;
mod end;
mod home;
mod numbers;
mod out;

use crate::carrier::Carrier;
use crate::commands::Command;
use sojourn_session::EventT;

impl Carrier {
    /// Commands, and what the server says of sessions.
    pub(crate) fn take_commands(&mut self) {
        self.commands.quiet();
        while let Some(command) = self.commands.next() {
            match command {
                Command::Socket(socket) => {
                    // Its session may have been here before, and have been left while it was kept
                    // waiting: that comes first.
                    self.take_events();
                    self.offer(socket);
                }
                Command::Registered { stream, pid } => self.registered(stream, pid),
                Command::AllHome => self.all_home(),
                Command::Back { token, has_ended, record } => {
                    self.given_back(token, has_ended, &record);
                }
                Command::InTransit { token, packets } => self.say_in_transit(token, &packets),
                Command::AskWay { local, to } => self.tell_way(local, to),
            }
        }
        self.take_events();
    }

    fn take_events(&mut self) {
        loop {
            match self.sessions.next() {
                EventT::None => return,
                EventT::Join(join) => self.joined(&join),
                EventT::Recall(recall) => self.recalled(&recall),
                EventT::Refused(refusal) => {
                    self.table.remove(&refusal.local);
                }
                // To libraries only.
                EventT::Lend(_) | EventT::Rerouted(_) | EventT::Wanted(_) | EventT::Way(_) => {}
            }
        }
    }
}
