//! The carrier's thread: its event loop.
//!
//! Not here: the steps of a session (`moves`).

use crate::admission::Admission;
use crate::assistants::Assistants;
use crate::carrier::{
    ASSISTANTS, CHANGES, COMMANDS, Carrier, INBOX, ROUTERS, RULES, SOCKET, UNFILTERED,
};
use crate::commands::Commands;
use crate::conntrack::Conntrack;
use crate::fragments::Fragments;
use crate::inboxes::Inboxes;
use crate::incoming::Taken;
use crate::keeping::{KeeperLocation, Keeping};
use crate::links::{Fragmented, Links};
use crate::metastate::Metastate;
use crate::paths::Paths;
use crate::returned::Returned;
use crate::rules::Rules;
use crate::session::{Phase, Session};
use crate::sessions::Sessions;
use crate::sockets::SocketKinds;
use crate::timers::Timers;
use crate::tuning::Tuning;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use sojourn_filter::xdp_socket;
use sojourn_proto::time::Instant;
use sojourn_pump::{now, position};
use sojourn_session::{LocalNumber, ProcessId, ReasonT};
use std::collections::HashMap;
use std::sync::Arc;

const EVENTS: usize = 32;

/// The step at which the carrier's start failed, and the error.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct StartError(&'static str, Errno);

/// Returns true if AF_XDP sockets can be made; else tells the administrator, who has asked for
/// them, why not.
fn can_make_xdp(sessions: &dyn Sessions) -> bool {
    let made = xdp_socket();
    if let Err(error) = &made {
        sessions.warn(format_args!(
            "short frames are not sent by AF_XDP sockets: {error} (in a systemd unit, add \
             RestrictAddressFamilies=AF_XDP)"
        ));
    }
    made.is_ok()
}

impl Carrier {
    /// Makes a carrier in the network namespace of the calling thread. It adopts the sessions that
    /// an earlier server has left with the keeper at `keeper`, and leaves its own there; without a
    /// place no session outlives the server.
    ///
    /// # Errors
    /// The step that failed, and the kernel's error.
    pub fn new(
        sessions: Box<dyn Sessions>,
        commands: Box<dyn Commands>,
        keeper: Option<KeeperLocation>,
    ) -> Result<Self, StartError> {
        let at = |step| move |error| StartError(step, error);
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(at("epoll"))?;
        let metastate = Metastate::new().map_err(at("rtnetlink"))?;
        let has_xdp = sessions.has_xdp() && can_make_xdp(&*sessions);
        let kinds = SocketKinds::new(sessions.has_rings(), has_xdp);
        let links = Links::new(Keeping::at(keeper), kinds, sessions.hand_over());
        let assistants = Assistants::new(sessions.make_look()).map_err(at("epoll"))?;
        let rules = sessions.respects_firewalls().then(|| Rules::new(now()));
        let mut carrier = Self {
            sessions,
            commands,
            set: Arc::new(set),
            metastate,
            conntrack: Conntrack::new(),
            rules,
            links,
            unfiltered: None,
            assistants,
            new: HashMap::new(),
            table: HashMap::new(),
            tuning: Tuning::default(),
            admission: Admission::default(),
            tokens: HashMap::new(),
            flows: HashMap::new(),
            paths: Paths::default(),
            fragments: Fragments::default(),
            returned: Returned::default(),
            slots: HashMap::new(),
            inboxes: Inboxes::default(),
            peer_inboxes: Inboxes::default(),
            timers: Timers::default(),
            last_local: LocalNumber(0),
            programs: HashMap::new(),
            is_leaving: false,
            taken: Taken::default(),
            has_more: false,
        };
        carrier.watch(carrier.commands.bell(), COMMANDS).map_err(at("epoll"))?;
        carrier.watch(carrier.assistants.says_fd(), ASSISTANTS).map_err(at("epoll"))?;
        carrier.watch(carrier.metastate.changes_fd(), CHANGES).map_err(at("epoll"))?;
        for fd in carrier.rules.iter().flat_map(|rules| rules.firewall.changes_fds()) {
            carrier.watch(fd, RULES).map_err(at("epoll"))?;
        }
        carrier.adopt_all();
        Ok(carrier)
    }

    /// Carries sessions until the server is gone.
    pub fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.commands.is_closed() {
            if self.links.keeping.take_loss() {
                self.keep_anew();
            }
            let sessions = self.table.len() + self.new.len();
            self.commands.tell_count(sessions + usize::from(self.has_more));
            self.listen();
            let at = now();
            self.admit(at);
            let idle = self.links.tidy(at);
            let look = self.take_fragmented(at);
            let old = self.take_old_paths(at);
            let survey = self.survey_rules(at);
            let due = [self.timers.next(), self.admission.due()].into_iter().flatten().min();
            let more = self.has_more.then_some(at);
            let work = self.assistants.tidy(at);
            let next = [idle, look, old, survey, due, more, work].into_iter().flatten().min();
            let limit = next.map(|when| when.since(at).as_micros()).map(|us| Timespec {
                tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
                tv_nsec: (us % 1_000_000 * 1000) as i64,
            });
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An error leaves the events empty.
            self.sessions.at_work(false);
            let _ = epoll::wait(&self.set, spare, limit.as_ref());
            self.sessions.at_work(true);
            // Commands that the last round has left, for which no event comes any more.
            if self.has_more {
                self.take_commands();
            }
            for event in &events {
                match event.data.u64() {
                    COMMANDS => self.take_commands(),
                    INBOX => self.take_attention(),
                    CHANGES => self.changed(),
                    RULES => self.look_at_rules(),
                    ROUTERS => self.read_router_messages(),
                    UNFILTERED => self.read_arrivals(),
                    // They are heard below.
                    ASSISTANTS => {}
                    socket if socket & SOCKET != 0 => {
                        self.hung_up(LocalNumber(socket ^ SOCKET));
                    }
                    program => self.program_ended(ProcessId(program as u32)),
                }
            }
            self.hear_assistants();
            self.take_due();
        }
    }

    /// Sends home sessions whose segments come in fragments, which only the kernel reassembles.
    /// Returns the time of the next look.
    fn take_fragmented(&mut self, at: Instant) -> Option<Instant> {
        let Fragmented { sessions: fragmented, next } = self.links.take_fragmented(at);
        let mut cut = Vec::new();
        for (local, session) in &self.table {
            if let Session { key, phase: Phase::Delegated(delegated) } = session
                && fragmented.contains(key)
            {
                let next = position::received_up_to(&delegated.stream.ledger().published());
                if self.fragments.are_real(key, next, at) {
                    cut.push(*local);
                }
            }
        }
        cut.into_iter().for_each(|local| self.send_home(local, ReasonT::Route));
        next
    }

    /// Attends to the sessions for which the other side has asked for attention.
    fn take_attention(&mut self) {
        // Attending changes the table of slots, so the sessions are collected first.
        let mut found = Vec::new();
        self.inboxes.take_attention(&mut |slot| found.extend(self.slots.get(&slot).copied()));
        for local in found {
            self.attend(local);
            self.keep_assistants_busy();
        }
    }

    fn take_due(&mut self) {
        let at = now();
        while let Some(local) = self.timers.take_due(at) {
            self.attend(local);
            self.keep_assistants_busy();
        }
    }
}
