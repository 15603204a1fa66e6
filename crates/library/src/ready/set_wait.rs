//! `epoll_wait(2)` on a set in which sessions have joined.
//!
//! Nothing of the process at large is known here: sessions come in as
//! [`ReadinessSource`](crate::ready::set_readiness::ReadinessSource), signals as
//! [`Host`](crate::host::Host). Read `docs/understand/streams.md`, "Waiting" and "epoll", then
//! `set` and `set_ready`.
//!
//! # Theory of operation
//! A round *gathers* what is ready (`set_round`). If nothing is, the waiter *pauses*: it spins if
//! no other waiter of the set does, then announces itself, looks again, and sleeps in the kernel's
//! set, which contains the inboxes' event descriptors.
//!
//! With a signal mask the waiter does not spin. The mask must hold, without a gap, from the moment
//! at which nothing was found until the call ends, and only the kernel can set it together with
//! sleeping. Setting it for the spin would take two more system calls, and would leave such a gap
//! between spin and sleep.

use crate::host::epoll::EpollEvent;
use crate::host::lock::lock;
use crate::policy::measured::process_time_ns;
use crate::ready::set::Set;
use crate::ready::set_call::ASK_INTERVAL_NS;
use crate::ready::set_call::Call;
use crate::ready::set_round::Answer;
use crate::ready::set_state::{State, has_ready};
use core::time::Duration;
use rustix::io::Errno;
use sojourn_shm::deadline::now_ns;
use sojourn_shm::wait::{Policy, Wait};
use sojourn_stream::Inbox;
use std::sync::{Arc, MutexGuard};

/// Looks at the inboxes between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 64;
/// Vain looks of a wait after which it asks the kernel each time.
const VAIN_MAX: u32 = 4;
/// `EP_MAX_EVENTS` of the kernel (fs/eventpoll.c).
const EVENTS_MAX: usize = i32::MAX as usize / size_of::<EpollEvent>();

/// The outcome of a pause.
enum Pause {
    /// Peers may have posted: look again.
    Look,
    /// The kernel has answered, after a sleep or at once.
    Kernel(Answer),
    /// A signal handler ran.
    Interrupted,
}

/// What the one waiter that spins has taken from the set's state.
struct Spinner {
    policy: Box<Policy>,
    inboxes: Arc<Vec<Option<Arc<Inbox>>>>,
    /// The processor time of the spin is measured, for `siblings`.
    is_measured: bool,
}

impl Set {
    /// Waits, and fills in the events of the call.
    ///
    /// # Errors
    /// Those of `epoll_wait(2)`.
    pub(crate) fn wait(&self, call: &mut Call<'_>) -> Result<usize, Errno> {
        // The kernel says what is wrong with the number of events.
        if call.events.is_empty() || call.events.len() > EVENTS_MAX {
            return call.ask(.., Some(Duration::ZERO), None);
        }
        if self.begin_plain() {
            return self.wait_plainly(call);
        }
        self.wait_for_both(call)
    }

    /// Waits in a set without sessions; one may join during the sleep.
    fn wait_plainly(&self, call: &mut Call<'_>) -> Result<usize, Errno> {
        call.host.wait_begins();
        let result = call.ask(.., call.timeout, call.mask);
        call.host.wait_ends();
        if self.end_plain() {
            return result;
        }
        match self.sort(call, result?) {
            0 => self.wait_for_both(call),
            kept => Ok(kept),
        }
    }

    fn wait_for_both(&self, call: &mut Call<'_>) -> Result<usize, Errno> {
        let mut vain = 0;
        loop {
            let found = self.gather(call)?;
            if found > 0 {
                return Ok(found);
            }
            if call.deadline.is_over() {
                return self.last_look(call);
            }
            let since = lock(&self.state).ready.begin_round();
            let paused = match self.pause(call)? {
                // Peers have posted again and again for sessions that have nothing. Other members
                // of the set must not wait for that.
                Pause::Look if vain >= VAIN_MAX => self.look_in_kernel(call)?,
                Pause::Look => {
                    vain += 1;
                    continue;
                }
                paused => paused,
            };
            match paused {
                Pause::Look => {}
                Pause::Kernel(answer) => {
                    let found = self.after_pause(call, since, answer)?;
                    if found > 0 {
                        return Ok(found);
                    }
                }
                Pause::Interrupted => {
                    // Readiness counts more than a handler that ran, as in the kernel (`ep_poll`).
                    let found = self.gather(call)?;
                    return if found > 0 { Ok(found) } else { Err(Errno::INTR) };
                }
            }
        }
    }

    /// Asks the kernel without waiting.
    fn look_in_kernel(&self, call: &mut Call<'_>) -> Result<Pause, Errno> {
        let (began_ns, room) = (now_ns(), call.events.len());
        let said = call.ask(.., Some(Duration::ZERO), None)?;
        Ok(Pause::Kernel(Answer { began_ns, said, room }))
    }

    /// Looks once more when the time is over: with a mask, a signal that it lets through ends the
    /// call even so.
    fn last_look(&self, call: &mut Call<'_>) -> Result<usize, Errno> {
        if call.mask.is_none() {
            return Ok(0);
        }
        let said = call.ask(.., Some(Duration::ZERO), call.mask)?;
        Ok(self.sort(call, said))
    }

    /// Spins, then sleeps.
    fn pause(&self, call: &mut Call<'_>) -> Result<Pause, Errno> {
        call.host.wait_begins();
        let paused = match self.spin(call) {
            Some(pause) => Ok(pause),
            None => self.sleep(call),
        };
        let is_interrupted = call.is_interrupted();
        call.host.wait_ends();
        match paused {
            // `epoll_wait` is never restarted (signal(7)), so both kinds of handlers end it.
            Ok(Pause::Look | Pause::Kernel(Answer { said: 0, .. })) if is_interrupted => {
                Ok(Pause::Interrupted)
            }
            Err(Errno::INTR) => Ok(Pause::Interrupted),
            other => other,
        }
    }

    /// Becomes the set's spinner, if there is none and spinning is worth a try.
    fn begin_spin(&self, call: &Call<'_>) -> Option<Spinner> {
        let mut state = lock(&self.state);
        if call.mask.is_some() || state.spinners > 0 || state.ready.len() == 0 {
            return None;
        }
        // A registration has changed since the round, and its thread saw no waiter that it would
        // have had to wake. The sleep looks at the list first.
        if !state.ready.is_idle() {
            return None;
        }
        let policy = state.policy.take();
        let policy = policy.unwrap_or_else(|| Box::new(Policy::for_other_processes((call.wait)())));
        // Other ways of waiting are what the user has asked for.
        let is_adaptive = policy.wait() == Wait::Adaptive;
        if is_adaptive && state.siblings.begin() {
            state.policy = Some(policy);
            return None;
        }
        state.spinners += 1;
        let is_measured = is_adaptive && state.siblings.measures();
        Some(Spinner { policy, inboxes: Arc::clone(&state.inboxes), is_measured })
    }

    /// Spins, unless another waiter of the set does; that one wakes the sleepers.
    fn spin(&self, call: &mut Call<'_>) -> Option<Pause> {
        let Spinner { mut policy, inboxes, is_measured } = self.begin_spin(call)?;
        let began = is_measured.then(|| (now_ns(), process_time_ns()));
        let mut said = 0;
        // The kernel is not asked at once: most answers come sooner, and the sleep that follows
        // asks, too.
        let (mut looks, mut next_ns, mut asked_ns) = (0u32, now_ns() + ASK_INTERVAL_NS, 0);
        policy.spin(0, call.deadline, || {
            call.source.turn();
            if has_ready(&inboxes) || call.is_interrupted() {
                return true;
            }
            looks = looks.wrapping_add(1);
            if looks % LOOKS_PER_CLOCK != 1 {
                return false;
            }
            let now = now_ns();
            if now < next_ns {
                return false;
            }
            (asked_ns, next_ns) = (now, now + ASK_INTERVAL_NS);
            // An error shows again in the sleep.
            said = call.ask(.., Some(Duration::ZERO), None).unwrap_or(0);
            said > 0
        });
        // The clocks are read the other way round than before, so that their reading does not look
        // like another thread's work.
        let took = began.map(|(_, cpu_ns)| process_time_ns().saturating_sub(cpu_ns));
        let took = began.zip(took).map(|((at_ns, _), cpu_ns)| (now_ns() - at_ns, cpu_ns));
        let mut state = lock(&self.state);
        state.spinners = state.spinners.saturating_sub(1);
        if let Some((spun_ns, cpu_ns)) = took {
            state.siblings.spun(spun_ns, cpu_ns, processors());
        }
        state.asked_ns = state.asked_ns.max(asked_ns);
        let parks = policy.parks();
        state.policy = Some(policy);
        drop(state);
        if said > 0 {
            let room = call.events.len();
            return Some(Pause::Kernel(Answer { began_ns: asked_ns, said, room }));
        }
        let is_over = has_ready(&inboxes) || call.is_interrupted() || call.deadline.is_over();
        (is_over || !parks).then_some(Pause::Look)
    }

    fn sleep(&self, call: &mut Call<'_>) -> Result<Pause, Errno> {
        let hears_packets = lock(&self.state).packets != 0;
        let watches = hears_packets.then(|| call.source.begin_sleep());
        let slept = self.sleep_now(call);
        if let Some(watches) = watches {
            call.source.end_sleep(watches);
            // A packet may have ended the sleep.
            call.source.turn();
        }
        slept
    }

    fn sleep_now(&self, call: &mut Call<'_>) -> Result<Pause, Errno> {
        call.source.turn();
        let version = {
            let mut state = lock(&self.state);
            state.drain();
            if !state.ready.is_idle() {
                return Ok(Pause::Look);
            }
            state.settle();
            state.sleepers += 1;
            state.each_inbox(Inbox::announce);
            // SYNC: after the announcement; pairs with the peer, which posts and then looks for
            // sleepers.
            if state.has_ready() || call.is_interrupted() {
                state.woke();
                return Ok(Pause::Look);
            }
            state.version
        };
        let began_ns = now_ns();
        let said = call.ask(.., call.deadline.left(), call.mask);
        let mut state: MutexGuard<'_, State> = lock(&self.state);
        if state.version == version {
            state.woke();
        }
        let room = call.events.len();
        said.map(|said| Pause::Kernel(Answer { began_ns, said, room }))
    }
}

/// Returns the number of processors that this thread may use. No file is read for it, as the C
/// library would.
fn processors() -> usize {
    rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count() as usize)
}

impl State {
    /// Ends a sleep: takes back the announcements.
    fn woke(&mut self) {
        self.sleepers -= 1;
        self.each_inbox(Inbox::withdraw);
    }
}
