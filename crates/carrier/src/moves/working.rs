//! Sessions on whose sockets assistants work: handing the work over, and what becomes of a session
//! when it is done.
//!
//! What is asked for meanwhile is noted ([`Asked`]) and done afterwards. Not here: the work
//! (`work`), the choice of an assistant (`assistants`).

use crate::assistants::{Heard, What};
use crate::carrier::Carrier;
use crate::program_socket::ProgramSocket;
use crate::session::{Asked, Leaving, Parked, Phase, Session, Way, Working};
use crate::work::{Done, Finished, Work};
use sojourn_filter::Key;
use sojourn_pump::now;
use sojourn_session::LocalNumber;
use std::sync::Arc;

impl Carrier {
    /// Has an assistant do that work for a session on its way out, which is not in the table now.
    pub(super) fn work(&mut self, local: LocalNumber, key: Key, parked: Parked, work: Work) {
        if let Parked::Nudged(waiting)
        | Parked::TakenOut(waiting, _)
        | Parked::Released(waiting, _) = &parked
        {
            let mut beside = Vec::new();
            if let Parked::TakenOut(_, export) = &parked {
                beside.push(Arc::clone(&export.file));
                beside.extend(self.unfiltered.as_ref().map(|it| Arc::clone(it.reporter())));
            }
            self.assistants.give(local, &waiting.socket, work, beside);
        }
        self.park(local, key, parked);
    }

    /// Has an assistant do the last work with a socket: its session becomes the kernel's.
    pub(super) fn last_work(
        &mut self,
        local: LocalNumber,
        key: Key,
        leaving: Leaving,
        socket: ProgramSocket,
        work: Work,
    ) {
        let mut beside = Vec::new();
        if let Way::PutBack { interface, .. } = leaving.way {
            beside.extend(self.links.rules(interface));
            beside.extend(self.unfiltered.as_ref().map(|it| Arc::clone(it.silencer())));
        }
        self.assistants.give_last(local, socket.give_up(), work, beside);
        self.park(local, key, Parked::Leaving(Box::new(leaving)));
    }

    fn park(&mut self, local: LocalNumber, key: Key, parked: Parked) {
        let working = Working { parked, asked: Asked::default() };
        let phase = Phase::Working(Box::new(working));
        self.table.insert(local, Session { key, phase });
    }

    /// Handles what assistants have said.
    pub(crate) fn hear_assistants(&mut self) {
        for Heard { local, what } in self.assistants.heard() {
            match what {
                What::Hear(number) => {
                    self.packets_back(local);
                    self.assistants.answer(number);
                }
                What::Finished(Finished { done: Done::Inspected(inspected), .. }) => {
                    self.inspected(local, Some(*inspected));
                }
                What::Finished(finished) => self.finished(local, finished),
            }
        }
    }

    /// Does that in the middle of other work, which may take a while: those who are done wait for
    /// their next work.
    pub(crate) fn keep_assistants_busy(&mut self) {
        if self.assistants.are_busy() {
            self.hear_assistants();
        }
    }

    /// Gives a session's packets back to the kernel: its socket has everything.
    fn packets_back(&mut self, local: LocalNumber) {
        let Self { table, links, .. } = self;
        let Some(Session { key, phase: Phase::Working(working) }) = table.get_mut(&local) else {
            return;
        };
        let key = *key;
        if let Parked::Leaving(leaving) = &mut working.parked
            && let Way::PutBack { interface, link, is_heard, .. } = &mut leaving.way
            && !core::mem::replace(is_heard, true)
        {
            links.give_back(*interface, *link, &key);
            self.end_absence(&key);
        }
    }

    /// Takes up a session whose work is done.
    fn finished(&mut self, local: LocalNumber, Finished { done, file }: Finished) {
        if self.new.contains_key(&local) {
            // The assistant has ended over a look.
            return self.inspected(local, None);
        }
        // After this the packets of a session that is put back are the kernel's in any case.
        self.packets_back(local);
        let (key, Working { parked, asked }) = match self.table.remove(&local) {
            Some(Session { key, phase: Phase::Working(working) }) => (key, *working),
            // A socket was closed.
            None => return,
            Some(other) => return drop(self.table.insert(local, other)),
        };
        match (parked, done) {
            (Parked::Nudged(waiting), _) => {
                self.table.insert(local, Session { key, phase: Phase::Waiting(waiting) });
                self.timers.set(local, Some(now()));
                self.catch_up(local, asked);
            }
            (Parked::TakenOut(waiting, export), done) => {
                self.taken_out(local, key, waiting, export, done);
                // The program may have frozen the stream.
                self.catch_up(local, Asked { attention: true, ..asked });
            }
            (Parked::Released(waiting, export), done) => {
                self.released(local, key, waiting, export, Finished { done, file });
                self.catch_up(local, Asked { attention: true, ..asked });
            }
            (Parked::Leaving(leaving), done) => self.left(local, key, *leaving, done),
        }
    }

    /// Does what was asked for while an assistant worked on the session's socket.
    fn catch_up(&mut self, local: LocalNumber, asked: Asked) {
        let Asked { attention, review, home, end } = asked;
        if end {
            return self.end(local);
        }
        if review {
            self.look_at_next_hop(local);
            self.judge(local);
        }
        if let Some(reason) = home {
            self.send_home(local, reason);
        }
        if attention {
            self.attend(local);
        }
    }
}
