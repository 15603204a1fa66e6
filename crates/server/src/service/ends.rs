//! Ends that libraries send: the way from the look at an end to the registry.
//!
//! Not here: looking (`proxy`, `identity`), deciding (`registry`).

use super::inspector::Inspector;
use super::peers::has_ended;
use super::{Sojournd, State};
use crate::holders::Object;
use crate::inspected::{Inspected, Kept};
use crate::jobs::Job;
use crate::key::Key;
use crate::log::{self, Level};
use crate::memory::Memory;
use crate::registry::{
    CallError, EndId, Identity, OfferArguments, Offered, Registry, StreamSide, ToCount,
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::Uid;
use sojourn_carrier::Command;
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::Caller;
use sojourn_session::{Inode, LocalNumber, OfferT, ProcessId, ReasonT};
use std::sync::{Arc, PoisonError, Weak};

/// What a client's process is now.
struct Standing {
    pid: ProcessId,
    user: Uid,
    /// The reason why its ends cannot move, if they cannot.
    may_move: Result<(), ReasonT>,
}

impl Sojournd {
    /// Has a client's object looked at; `then` is called sooner or later, with `None` if there is
    /// no answer.
    pub(super) fn inspect(
        &self,
        sent: OwnedFd,
        then: impl FnOnce(&Self, Option<Inspected>) + Send + 'static,
    ) {
        match &self.inspector {
            Inspector::Apart { inspections, .. } => {
                let me = Weak::clone(&self.me);
                let then = move |inspected| {
                    if let Some(server) = me.upgrade() {
                        then(&server, inspected);
                    }
                };
                inspections.ask(sent, Box::new(then));
            }
            Inspector::Here(diag) => {
                let mut diag = diag.lock().unwrap_or_else(PoisonError::into_inner);
                let inspected = Inspected::at_once(sent, &mut diag);
                drop(diag);
                then(self, Some(inspected));
            }
        }
    }

    /// Gives a pipe a key that is no other pipe's, and that stays its own as long as the end is
    /// known.
    fn pinned(&self, mut seen: Identity, kept: Option<&OwnedFd>) -> Result<Identity, ReasonT> {
        let Key::Pipe { writes, .. } = seen.key else { return Ok(seen) };
        let name = kept.ok_or(ReasonT::Resources)?;
        let is_fifo = matches!(seen.object, Object::Fifo { .. });
        let pin = self.prober.pin(name.as_fd()).map_err(|error| match error {
            // A FIFO's mode may be anything. Where that matters this server cannot look into all
            // processes either.
            Errno::ACCESS if is_fifo => ReasonT::HoldersUnknown,
            // Another user made the pipe, and holds or held the other end.
            Errno::ACCESS => ReasonT::OtherUser,
            _ => ReasonT::Resources,
        })?;
        seen.key = pin.key(writes);
        seen.pin = Some(Arc::new(pin));
        Ok(seen)
    }

    fn job(registry: &Registry, counted: ToCount) -> Option<Job> {
        let question = registry.question(counted.end)?;
        Some(Job { counted, question })
    }

    /// Takes the ends whose holders are to be counted although their libraries know them.
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

    /// Takes the scanner's results.
    pub(crate) fn counted(&self, jobs: &[Job], verdicts: &[Result<(), ReasonT>]) {
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        registry.count_scan();
        let now_ms = self.now_ms();
        for (job, verdict) in jobs.iter().zip(verdicts) {
            // The look was for a process number. The number was this process's during the look only
            // if the process is still there.
            let process = registry.info(job.counted.end.process).map(|info| info.process.clone());
            let is_there = process.is_none_or(|it| it.as_fd().is_some_and(|fd| !has_ended(fd)));
            let verdict = if is_there { *verdict } else { Err(ReasonT::Closed) };
            registry.counted(job.counted, verdict, now_ms, &mut Memory);
        }
        Self::ring(registry, notifier);
        let jobs = Self::jobs(registry);
        drop(state);
        self.count(jobs);
    }

    /// Finds out as whom a client's process runs now. It may have connected as root, or with the
    /// right to become others (`CAP_SETUID`), and have become another user right afterwards: root's
    /// then counts as that user's, and moves nothing of another's, since its memory and bells are
    /// shared with those whom it connected as. Its number may be another process's by now, but a
    /// look by number can only take rights away, never give any.
    ///
    /// # Errors
    /// [`CallError::NoHello`].
    fn standing(&self, client: ClientId) -> Result<Standing, CallError> {
        let info = self.lock().registry.info(client).map(|info| (info.pid, info.uid));
        let (pid, before) = info.ok_or(CallError::NoHello)?;
        // The prober is asked without the lock: nothing is waited for under it.
        // A server for one user has nobody to keep apart from that user.
        let asked = match before.is_root() || self.is_public {
            true => self.prober.user_of(pid).map(|now| now.filter(|now| !now.is_root())),
            false => Ok(None),
        };
        let (user, is_another) = match asked {
            // What was root's process belongs to that user from now on.
            Ok(Some(now)) if before.is_root() => {
                self.lock().registry.has_become(client, now);
                (now, false)
            }
            now => (before, now.ok().flatten().is_some_and(|now| now != before)),
        };
        let may_move = match (pid, asked) {
            // A process of another PID name space: its holders could not be counted, nor its end be
            // seen.
            (ProcessId::NONE, _) => Err(ReasonT::Namespace),
            // Without an answer nobody knows which rights the process has.
            (_, Err(_)) => Err(ReasonT::Resources),
            _ if is_another || !self.serves(user) => Err(ReasonT::OtherUser),
            _ => Ok(()),
        };
        Ok(Standing { pid, user, may_move })
    }

    /// Offers an end that was looked at. Returns true if it is not decided yet.
    pub(super) fn offered(
        &self,
        caller: &Caller,
        inspected: Inspected,
        what: &OfferT,
    ) -> Result<bool, CallError> {
        let mut kept = Kept(inspected.kept);
        let Standing { pid, user, may_move } = self.standing(caller.client)?;
        let seen = may_move.and(inspected.seen);
        let mut share = None;
        let identity = seen.and_then(|seen| {
            if seen.key.is_carried() {
                share = self.command_share(user)?;
            }
            self.pinned(seen, kept.0.as_ref())
        });
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        if let Err(reason) = &identity {
            log::say(
                Level::Debug,
                format_args!("{pid} offers what cannot move: {}", reason.word()),
            );
        }
        let mut arguments = offer_arguments(what, inspected.inode);
        // Anybody may have opened a FIFO while it had a name, and its library cannot know that.
        let is_fifo = |seen: &Identity| matches!(seen.object, Object::Fifo { .. });
        arguments.is_sole &= !identity.as_ref().is_ok_and(is_fifo);
        let now_ms = self.now_ms();
        let offered = registry.offer(caller.client, identity, arguments, now_ms, &mut Memory)?;
        if offered != Offered::Decided
            && let Some(share) = share
        {
            self.command_carry(kept.0.take(), share);
        }
        Self::ring(registry, notifier);
        let mut jobs = Self::jobs(registry);
        if let Offered::Count(number) = offered {
            let end = EndId { process: caller.client, local: arguments.local };
            jobs.extend(Self::job(registry, ToCount { end, number }));
        }
        drop(state);
        self.count(jobs);
        Ok(offered != Offered::Decided)
    }

    /// Looks at an end at once and offers it; returns true if it waits.
    #[cfg(any(debug_assertions, fuzzing))]
    pub(crate) fn offers(&self, caller: &Caller, end: OwnedFd, what: &OfferT) -> bool {
        let Inspector::Here(diag) = &self.inspector else { return false };
        let inspected =
            Inspected::at(end, &mut diag.lock().unwrap_or_else(PoisonError::into_inner));
        self.offered(caller, inspected, what) == Ok(true)
    }

    /// Adopts an end that was looked at and is joined already.
    pub(super) fn adopted(
        &self,
        caller: &Caller,
        inspected: Inspected,
        what: &OfferT,
        part: StreamSide,
    ) -> Result<bool, CallError> {
        let kept = Kept(inspected.kept);
        let Standing { pid, may_move, .. } = self.standing(caller.client)?;
        let seen = may_move.and(inspected.seen);
        let seen = seen.and_then(|seen| self.pinned(seen, kept.0.as_ref()));
        let Ok(seen) = seen else { return Ok(false) };
        let arguments = offer_arguments(what, inspected.inode);
        let mut state = self.lock();
        let registry = &mut state.registry;
        let now_ms = self.now_ms();
        let (is_carried, client) = (seen.key.is_carried(), caller.client);
        if is_carried && !registry.has_stream(part.stream) {
            // The carrier has not adopted this stream, so nobody here takes its packets.
            return Ok(false);
        }
        let is_adopted = registry.adopt(client, seen, arguments, part, now_ms)?;
        drop(state);
        if is_carried && is_adopted {
            self.command(Command::Registered { stream: part.stream, pid });
        }
        Ok(is_adopted)
    }
}

pub(super) fn offer_arguments(what: &OfferT, inode: Inode) -> OfferArguments {
    let OfferT { local, set, ring_bytes, is_sole, home } = *what;
    OfferArguments { local: LocalNumber(local), set, ring_bytes, is_sole, home, inode }
}
