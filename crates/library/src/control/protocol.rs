//! The protocol thread: talks to the server, and watches peers and the kernel's descriptors of
//! sessions that are away.
//!
//! The thread starts with the first hot session and never touches data. It works on the program's
//! descriptors. What it opens and receives itself has no number among them: a second thread holds
//! that, and sleeps for both (`outside`). When the server is gone the thread looks for a new one
//! now and then, as long as sessions are away. Its connection with the server is in `server`, the
//! server's messages are in `messages`, the needs of joined sessions in `joins`. Not here: joining
//! and going home (`crate::moves::join`, `crate::moves::home`). Read `docs/understand/streams.md`
//! first.

mod allowance;
mod attention;
mod corks;
mod events;
mod joined;
mod joins;
mod life;
mod living;
mod messages;
mod numbers;
mod outside;
mod server;
mod serving;
mod signals;
mod thread;

use crate::control::search::Search;
use crate::control::wanted::Wanted;
use crate::fds::entry::mark;
use crate::fds::slot::Slot;
use crate::host::descriptors::OpenDescriptors;
use crate::host::kernel;
use crate::host::lock::lock;
use crate::moves::offer::Offer;
use crate::policy::kept::KeptDescriptor;
use crate::process::engine::{Engine, Job, TakenJobs};
use crate::process::library::{Library, OwnSession};
use crate::remote::carry_server::ANSWER_LIMIT;
use crate::session::progress::TrialRates;
use core::sync::atomic::Ordering;
use core::time::Duration;
use events::{DOORBELL, EVENTS, FLUSH, INBOX, LIVING, PEER, SERVED, SERVER, SESSION, WHAT};
use living::ThreadWatch;
use outside::{Outside, ProgramDescriptors, ServerMessage, take_watched};
use rustix::fd::{AsFd, BorrowedFd};
use sojourn_ipc::rt::CallError;
use sojourn_ipc::{Connection, Deadline};
use sojourn_session::{
    HomeT, Inode, KindT, LocalNumber, ProcessId, ReasonT, SessionClient, WhereT,
};
use sojourn_shm::aside::{self};
use sojourn_shm::fault;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Instant;
use thread::{Serving, Thread};

/// Runs the protocol thread.
pub(crate) fn run(library: &'static Library, engine: &'static Engine) {
    engine.runs_here();
    engine.note_serving();
    let Some(mut thread) = Thread::new(library, engine) else {
        engine.gives_up(library);
        return;
    };
    if engine.is_preparing() {
        // The program waits for the greeting.
        thread.prepare();
    }
    // This is measured before the first session joins, and not on a thread of the program's: it
    // takes about half a millisecond, once.
    sojourn_shm::wait::sleep_cost_ns();
    thread.serve();
}

impl Thread {
    fn new(library: &'static Library, engine: &'static Engine) -> Option<Self> {
        let known = engine.known_number().and_then(|fd| kernel::at(fd).ok());
        let kit = engine.own.make_kit(true, known)?;
        let far = engine.own.take_far()?;
        let number = far.number();
        let aside::Sides { aside, worker } = aside::pair();
        let work = move || worker.serve(|| Outside::new(number));
        if !engine.spawn(library.host(), "sojourn-aside", work) {
            library.is_prohibited();
            return None;
        }
        let mut thread = Self {
            library,
            engine,
            kit,
            aside,
            tid: rustix::thread::gettid(),
            has_client: false,
            server_messages: VecDeque::new(),
            placing: None,
            search: Search::new(),
            living: ThreadWatch::First,
            corks_at: None,
            signals: Vec::new(),
            served_since: Instant::now(),
            when_hot: library.host().when_hot(),
            offers: HashMap::new(),
            joined: HashMap::new(),
            own_inboxes: HashMap::new(),
            peer_inboxes: HashMap::new(),
            serving: Serving::default(),
            peers: HashMap::new(),
        };
        if thread.with_descriptor(kit.watched.as_fd(), |outside| outside.watch_set()) != Some(true)
        {
            // The second thread has no table of its own: the kernel cannot give it one, or a filter
            // forbids that.
            library.is_prohibited();
            return None;
        }
        drop(far);
        // Jobs may have been left before there was a bell.
        engine.ring();
        Some(thread)
    }

    /// Has the second thread do `work`, after sending it a descriptor of the program's.
    fn with_descriptor<R: Send>(
        &mut self,
        fd: BorrowedFd<'_>,
        work: impl FnOnce(&mut Outside) -> R + Send,
    ) -> Option<R> {
        if self.engine.own.pass(fd).is_err() {
            // The bell's socket is full, of rings as a rule; emptied, it has room.
            self.aside.call(|outside| outside.empty_bell())?;
            self.engine.own.pass(fd).ok()?;
        }
        self.aside.call(work)
    }

    /// Says something to the server; `None` if there is no server.
    fn tell<R: Send>(
        &mut self,
        say: impl FnOnce(&mut SessionClient<Connection>) -> Result<R, CallError> + Send,
    ) -> Option<Result<R, CallError>> {
        if !self.has_client {
            return None;
        }
        self.aside.call(|outside| outside.client.as_mut().map(say)).flatten()
    }

    fn serve(&mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            fault::point("library.sleep");
            let limit = self.sleeps_for();
            let woken = self.signal_and_wait(limit);
            if self.engine.is_ending() {
                self.engine.stop_serving();
                self.engine.gives_up(self.library);
                return;
            }
            let is_there = take_watched(self.kit.watched.as_fd(), &mut events).is_ok();
            let Some(words) = woken.filter(|_| is_there) else {
                // The program has closed the library's set, a number that is not its own.
                self.library.all_home(ReasonT::Resources, true);
                self.engine.stop_serving();
                self.library.host().show(ReasonT::StoodDown);
                return;
            };
            let reported = events.iter().map(|event| event.data.u64());
            words.into_iter().chain(reported).for_each(|word| self.handle(word));
            self.engine.serve_board(self.library);
            self.do_jobs();
            self.take_messages();
            self.look_after_lost();
            self.look_at_corks();
            self.look_for_life();
            self.hear_again();
            if self.has_sessions()
                && lock(&self.engine.rings).look(|| self.library.has_ring_unseen())
            {
                self.leave_for_rings();
            }
            if !self.has_client && !self.joined.is_empty() {
                self.connect();
            }
        }
    }

    /// Returns the time for which nothing is due unless something rings. While sessions are away,
    /// rings are looked for, and a server if there is none (`search`).
    fn sleeps_for(&self) -> Option<Duration> {
        let has_sessions = !self.joined.is_empty();
        let rings = self.has_sessions().then(|| lock(&self.engine.rings).left());
        let search = (has_sessions && !self.has_client).then(|| self.search.left());
        let placed = self.placing.and_then(|placing| placing.left());
        let life = self.living.period(self.library);
        let lost = self.serving.sleeps_for();
        let corks = self.corks_at.map(|at| at.saturating_duration_since(Instant::now()));
        [rings, search, placed, life, lost, corks, self.unheard_for()].into_iter().flatten().min()
    }

    fn handle(&mut self, data: u64) {
        let rest = data & !WHAT;
        match data & WHAT {
            DOORBELL => self.take_events(),
            SERVER => self.lose_server(),
            SESSION => {
                if let Some(session) = self.library.session_in(Slot::from_event(rest)) {
                    session.kernel_event();
                }
            }
            PEER => self.peer_died(ProcessId(rest as u32)),
            FLUSH => {
                if let Some(session) = self.library.session_in(Slot::from_event(rest)) {
                    session.room_came();
                }
            }
            INBOX => self.attend_asked(rest),
            SERVED => self.hear_protocol_server(),
            LIVING => self.living = ThreadWatch::Unwatched,
            _ => {}
        }
    }

    fn do_jobs(&mut self) {
        let mut left = Vec::new();
        // Only the jobs taken here are done before the sessions that went home are forgotten: a
        // busy program always has another job.
        let TakenJobs { jobs, number } = self.engine.take_jobs();
        for job in jobs {
            fault::point("library.job");
            match job {
                Job::Offer { fd, version, kind } => {
                    self.note_hot();
                    if let Some(offer) = self.prepare_offer(fd, version, kind) {
                        self.offer(offer);
                    } else if let Some(entry) = self.library.table.known(fd) {
                        entry.unmark(mark::OFFERED);
                    }
                }
                Job::Left { local, reason, sent, received, stream } => {
                    // A delegation on its way may bring packets of this session, which would be
                    // lost after `left`.
                    self.await_delegation(local);
                    left.extend(self.unwatch(local, reason));
                    self.tell_left(local, reason, sent, received);
                    drop(stream);
                }
                Job::Wanted { inode, home } => {
                    self.note_hot();
                    self.offer_wanted(inode, home);
                }
                Job::Withdraw { fd } => self.withdraw(fd),
                Job::Flush { slot } => self.follow(slot),
                Job::AskRoute { local, to } => self.ask_route(local, to),
                Job::Kept { fd, version } => self.tell_kept(fd, version),
                Job::CodeCame => self.look_at_code(),
                Job::Corked => self.begin_looks_at_corks(),
                Job::Prepare => self.prepare(),
                Job::Share { fd, version, token } => self.share(fd, version, token),
                Job::ServiceLost => self.lose_protocol_server(),
                Job::ServiceEnded { slot } => self.follow_service(slot),
                Job::RoomCame { fd, version } => self.tell_room(fd, version),
            }
        }
        if !left.is_empty() {
            // Joins that the server made before it heard of these returns may name what the
            // sessions named.
            self.take_events();
            self.server_messages
                .extend(left.into_iter().map(|joined| ServerMessage::Forget(Box::new(joined))));
            self.take_messages();
        }
        self.engine.did_jobs(number);
    }

    fn prepare_offer(&mut self, fd: i32, version: u32, kind: KindT) -> Option<Offer> {
        let mut descriptors = ProgramDescriptors(&mut self.aside, self.tid);
        self.library.prepare_offer(fd, version, kind, &mut descriptors)
    }

    /// Tells the shell of the first hot session.
    fn note_hot(&mut self) {
        if let Some(note) = self.when_hot.take() {
            self.aside.call(|_| note());
        }
    }

    fn look_at_code(&mut self) {
        let host = self.library.host();
        ProgramDescriptors(&mut self.aside, self.tid).own_calls(host, &[]);
    }

    fn tell_left(&mut self, local: LocalNumber, reason: ReasonT, sent: u64, received: u64) {
        fault::point("library.left");
        let limit = Deadline::after(ANSWER_LIMIT);
        let told =
            self.tell(|client| client.with_deadline(limit).left(local.0, reason, sent, received));
        self.lose_server_unless_heard(told);
    }

    fn lose_server_unless_heard<R>(&mut self, told: Option<Result<R, CallError>>) {
        if matches!(told, Some(Err(_))) {
            self.lose_server();
        }
    }

    fn withdraw(&mut self, fd: i32) {
        let found: Vec<LocalNumber> = self
            .offers
            .iter()
            .filter(|(_, offer)| offer.fd == fd)
            .map(|(local, _)| *local)
            .collect();
        for local in found {
            self.offers.remove(&local);
            self.tell_left(local, ReasonT::Closed, 0, 0);
        }
    }

    fn offer(&mut self, offer: Offer) {
        if !self.has_client {
            self.connect();
        }
        let Ok(end) = kernel::at(offer.fd) else { return };
        if !self.has_client {
            self.decline(&offer);
            return;
        }
        fault::point("library.offer");
        let what = &offer.what;
        self.engine.offering.store(offer.fd, Ordering::SeqCst);
        let told = self.with_descriptor(end, |outside| {
            let end = outside.take_passed()?;
            let client = outside.client.as_mut()?;
            let deadline = Deadline::after(ANSWER_LIMIT);
            Some(client.with_deadline(deadline).offer(Some(end.as_fd()), what).map(drop))
        });
        self.engine.offering.store(-1, Ordering::SeqCst);
        match told.flatten() {
            Some(Ok(())) => {
                fault::point("library.offered");
                self.offers.insert(offer.local, offer);
                self.take_events();
            }
            // The descriptor could not be sent: the program has closed it.
            Some(Err(CallError::Fault(_))) | None => self.decline(&offer),
            Some(Err(_)) => {
                self.decline(&offer);
                self.lose_server();
            }
        }
    }

    /// Drops an offer; it may be made again when the session has been hot for longer.
    fn decline(&self, offer: &Offer) {
        if let Some(entry) = self.library.table.known(offer.fd)
            && entry.version.load(Ordering::SeqCst) == offer.version
        {
            entry.unmark(mark::OFFERED);
            entry.was_refused();
        }
    }

    /// Keeps an offer's descriptor in the kernel for good.
    fn fix(&self, offer: &Offer) {
        if let Some(entry) = self.library.table.known(offer.fd)
            && entry.version.load(Ordering::SeqCst) == offer.version
        {
            entry.keep(ReasonT::Kind);
            // The server itself has said so, and need not be told.
            entry.unmark(mark::UNTOLD);
        }
    }

    /// Offers the descriptors of an inode that an administrator wants away, or sends them home.
    fn offer_wanted(&mut self, inode: Inode, home: HomeT) {
        let descriptors = &mut ProgramDescriptors(&mut self.aside, self.tid);
        match self.library.wanted(inode, home, descriptors) {
            Wanted::Offer(offers) => offers.into_iter().for_each(|offer| self.offer(offer)),
            Wanted::Done => {}
            // The return is told by a job that has been left before this one.
            Wanted::Later => self.engine.push(self.library, Job::Wanted { inode, home }),
            Wanted::Not(reason) => {
                self.decline_inode(inode, reason, TrialRates::default());
            }
        }
    }

    /// Tells the server that a descriptor is kept in the kernel. Without a server that is told when
    /// there is one.
    fn tell_kept(&mut self, fd: i32, version: u32) {
        if !self.has_client {
            self.connect();
            return;
        }
        let known = self.library.table.known(fd);
        if known.is_some_and(|entry| entry.version.load(Ordering::SeqCst) == version)
            && let Some(KeptDescriptor { inode, reason }) = self.library.kept(fd)
        {
            self.decline_inode(inode, reason, self.library.figures(fd, reason));
        }
    }

    /// Tells the server why the descriptors of an inode stay in the kernel.
    fn decline_inode(&mut self, inode: Inode, reason: ReasonT, figures: TrialRates) {
        let limit = Deadline::after(ANSWER_LIMIT);
        let TrialRates { in_kernel, away } = figures;
        let told = self
            .tell(|client| client.with_deadline(limit).declined(inode.0, reason, in_kernel, away));
        self.lose_server_unless_heard(told);
    }

    fn ask_route(&mut self, local: LocalNumber, to: IpAddr) {
        let to = match to {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let place = WhereT { local: local.0, to: to.octets() };
        let limit = Deadline::after(ANSWER_LIMIT);
        let told = self.tell(|client| client.with_deadline(limit).ask_route(&place));
        self.lose_server_unless_heard(told);
    }

    fn session(&self, local: LocalNumber) -> Option<OwnSession<'static>> {
        self.library.session_in(self.joined.get(&local)?.slot)
    }

    fn peer_died(&mut self, pid: ProcessId) {
        let of_peer: Vec<Slot> = self
            .joined
            .values()
            .filter(|joined| joined.peer_pid == pid)
            .map(|joined| joined.slot)
            .collect();
        self.aside.call(|outside| outside.peer_died(pid));
        let sessions = of_peer.iter().filter_map(|slot| self.library.session_in(*slot));
        sessions.for_each(|session| lock(&session.facts).peer_has_ended = true);
        for slot in of_peer {
            if let Some(session) = self.library.session_in(slot) {
                session.leave(ReasonT::PeerDied, false);
            }
        }
    }
}
