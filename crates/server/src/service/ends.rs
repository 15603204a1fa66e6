//! Ends that libraries send: who looks at them, and what becomes of them then.
//!
//! Not here: looking (`proxy`, `identity`), deciding (`registry`).

use super::looker::Looker;
use super::peers::has_ended;
use super::{Sojournd, State};
use crate::holders;
use crate::jobs::Job;
use crate::key::Key;
use crate::log::{self, Level};
use crate::looked::Looked;
use crate::memory::Memory;
use crate::registry::{CallError, Identity, Offered, Registry, Wish};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use sojourn_carrier::Command;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Caller;
use sojourn_session::{OfferT, ReasonT};
use std::sync::{Arc, PoisonError, Weak};

impl Sojournd {
    /// Has it looked at what a client of that user has sent; `then` is called sooner or later, with
    /// nothing if there is no answer.
    pub(super) fn look(
        &self,
        sent: OwnedFd,
        then: impl FnOnce(&Self, Option<Looked>) + Send + 'static,
    ) {
        match &self.looker {
            Looker::Apart { looks, .. } => {
                let me = Weak::clone(&self.me);
                let then = move |looked| {
                    if let Some(server) = me.upgrade() {
                        then(&server, looked);
                    }
                };
                looks.ask(sent, Box::new(then));
            }
            Looker::Here(diag) => {
                let mut diag = diag.lock().unwrap_or_else(PoisonError::into_inner);
                let looked = Looked::at(sent, &mut diag);
                drop(diag);
                then(self, Some(looked));
            }
        }
    }

    /// A pipe gets a key that is no other's, and keeps it for as long as the end is known.
    fn pinned(&self, mut seen: Identity, kept: Option<&OwnedFd>) -> Result<Identity, ReasonT> {
        let Key::Pipe { writes, .. } = seen.key else { return Ok(seen) };
        let name = kept.ok_or(ReasonT::Resources)?;
        let pin = self.pins.pin(name.as_fd()).map_err(|error| match error {
            // Somebody else made it, and holds or held the other end.
            Errno::ACCESS => ReasonT::OtherUser,
            _ => ReasonT::Resources,
        })?;
        seen.key = pin.key(writes);
        seen.pin = Some(Arc::new(pin));
        Ok(seen)
    }

    fn job(registry: &Registry, (process, local, number): (ClientId, u64, u64)) -> Option<Job> {
        let (pid, object) = registry.object(process, local)?;
        Some(Job { process, local, number, pid, object })
    }

    /// Ends whose holders are to be counted although their libraries know them.
    pub(super) fn jobs(registry: &mut Registry) -> Vec<Job> {
        let counts = registry.take_counts();
        counts.into_iter().filter_map(|count| Self::job(registry, count)).collect()
    }

    /// Has the scanner count.
    pub(super) fn count(&self, jobs: Vec<Job>) {
        let queue = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        // The scanner lives as long as this object.
        for job in jobs {
            let _ = queue.send(job);
        }
    }

    /// The scanner has counted.
    pub(crate) fn counted(&self, jobs: &[Job], verdicts: &[Result<(), ReasonT>]) {
        let mut state = self.lock();
        let State { registry, notifier } = &mut *state;
        registry.count_scan();
        let now_ms = self.now_ms();
        for (job, verdict) in jobs.iter().zip(verdicts) {
            // The look was for a process number: it was this process's only if that is still there.
            let process = registry.who(job.process).map(|who| who.process.clone());
            let is_there = process.is_none_or(|it| it.as_fd().is_some_and(|fd| !has_ended(fd)));
            let verdict = if is_there { *verdict } else { Err(ReasonT::Closed) };
            registry.counted(job.process, job.local, job.number, verdict, now_ms, &mut Memory);
        }
        Self::ring(registry, notifier);
        let jobs = Self::jobs(registry);
        drop(state);
        self.count(jobs);
    }

    /// Takes an end that was looked at as an offer. True: it is not decided yet.
    pub(super) fn offered(
        &self,
        caller: &Caller,
        looked: Looked,
        what: &OfferT,
    ) -> Result<bool, CallError> {
        let mut state = self.lock();
        let State { registry, notifier } = &mut *state;
        let who = registry.who(caller.client).ok_or(CallError::NoHello)?;
        let (pid, mut uid) = (who.pid, who.uid);
        if uid == 0
            && let Some(now) = holders::user_of(pid).filter(|now| *now != 0)
        {
            // It has connected before it gave up its rights. (From the number of a process only
            // less follows than from the connection.)
            registry.has_become(caller.client, now);
            uid = now;
        }
        let seen = match pid {
            // Its holders could not be counted, nor its death be seen.
            0 => Err(ReasonT::Namespace),
            _ if !self.serves(uid) => Err(ReasonT::OtherUser),
            _ => looked.seen,
        };
        let identity = seen.and_then(|seen| self.pinned(seen, looked.kept.as_ref()));
        let is_carried = identity.as_ref().is_ok_and(|seen| seen.key.is_carried());
        if let Err(reason) = &identity {
            log::say(
                Level::Debug,
                format_args!("{pid} offers what cannot move: {}", reason.word()),
            );
        }
        let wish = wish_of(what, looked.inode);
        let now_ms = self.now_ms();
        let offered = registry.offer(caller.client, identity, wish, now_ms, &mut Memory)?;
        if offered != Offered::Decided && is_carried {
            self.command_carry(looked.kept);
        }
        Self::ring(registry, notifier);
        let mut jobs = Self::jobs(registry);
        if let Offered::Count(number) = offered {
            jobs.extend(Self::job(registry, (caller.client, wish.local, number)));
        }
        drop(state);
        self.count(jobs);
        Ok(offered != Offered::Decided)
    }

    /// Looks at an end at once and takes it as an offer; whether it waits.
    #[cfg(any(debug_assertions, fuzzing))]
    pub(crate) fn offers(&self, caller: &Caller, end: OwnedFd, what: &OfferT) -> bool {
        let Looker::Here(diag) = &self.looker else { return false };
        let looked = Looked::at(end, &mut diag.lock().unwrap_or_else(PoisonError::into_inner));
        self.offered(caller, looked, what) == Ok(true)
    }

    /// Takes an end that was looked at as one that is joined already.
    pub(super) fn adopted(
        &self,
        caller: &Caller,
        looked: Looked,
        what: &OfferT,
        (stream, side): (u64, u8),
    ) -> Result<bool, CallError> {
        let seen = looked.seen.and_then(|seen| self.pinned(seen, looked.kept.as_ref()));
        let Ok(seen) = seen else { return Ok(false) };
        let wish = wish_of(what, looked.inode);
        let mut state = self.lock();
        let registry = &mut state.registry;
        let now_ms = self.now_ms();
        let (is_carried, client) = (seen.key.is_carried(), caller.client);
        if is_carried && !registry.has_stream(stream) {
            // Its packets would not be known here: it is not one that the carrier has adopted.
            return Ok(false);
        }
        let is_adopted = registry.adopt(client, seen, wish, stream, side, now_ms)?;
        let pid = registry.who(client).map_or(0, |who| who.pid);
        drop(state);
        if is_carried && is_adopted {
            self.command(Command::Registered { stream, pid });
        }
        Ok(is_adopted)
    }
}

pub(super) fn wish_of(what: &OfferT, inode: u64) -> Wish {
    let OfferT { local, set, ring_bytes, is_sole } = *what;
    Wish { local, set, ring_bytes, is_sole, inode }
}
