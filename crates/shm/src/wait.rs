//! The waiting policy: the time to spin before sleeping.
//!
//! The rule (`docs/understand/ipc.md`, "Waiting"): spinning pays while it costs less processor time
//! than the sleep and the wake-up that it saves (`cost`), and while the awaited event mostly comes
//! within that time (`pace`). Spinning never pays if the peer last ran on this processor, because
//! the peer cannot run while this thread spins, nor if more threads want to run than there are
//! processors (`load`), nor in too many threads at once (`spinners`). Not here: the sleeping, which
//! each caller does in its own way.

mod cost;
mod load;
mod pace;
mod spinners;

pub use cost::sleep_cost_ns;
pub use load::{learn_machine, read_load_from};

use crate::deadline::{Deadline, now_ns};
use core::time::Duration;
use cost::GivenUp;
use load::{is_known_crowd, is_oversubscribed};
use pace::{Pace, Spin};
use spinners::Spinners;

/// How a side waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Spin for the processor time that a sleep and its wake-up cost on this machine, if that can
    /// pay; then sleep.
    #[default]
    Adaptive,
    /// Spin; with a limit, sleep afterwards.
    Spin(Option<Duration>),
    /// Sleep at once.
    Park,
    /// Spin, and yield the processor to other threads: for more spinning threads than processors,
    /// which wait for each other.
    Yield,
}

/// The number of uses of a processor number before it is read again.
const CPU_USES: u32 = 256;
/// Iterations without a pause instruction, so that an answer that is about to arrive is seen at
/// once.
const EAGER: u32 = 1000;
/// Iterations without a pause instruction if recent waits were long.
const EAGER_WHERE_SLOW: u32 = 30;

/// The longest uninterrupted spin of a pure spinner, in nanoseconds.
const AIR_NS: u64 = 1_000_000;
/// Looks between two yields of the processor.
const TURN_LOOKS: u32 = 20;
/// Looks for packets of another host between two readings of the clock.
const FAR_LOOKS: u32 = 16;
/// The time to spin for another host, in costs of a sleep.
const FAR_COSTS: u64 = 4;

/// The waiting policy of one connection or server thread, with the state that it has learnt.
#[derive(Debug)]
pub struct Policy {
    wait: Wait,
    pace: Pace,
    given_up: GivenUp,
    /// The processor on which this thread ran at the last reading, and the number of uses left
    /// until the next one. Threads mostly migrate while they sleep, and a reading costs as much as
    /// a cache miss.
    cpu: u16,
    cpu_uses: u32,
    quiet: Quiet,
    /// Among whom an adaptive spin needs a permission.
    spinners: Option<&'static Spinners>,
}

/// The result of a spin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spun {
    /// The awaited event has come.
    Ready,
    /// The event has not come, and spinning on does not pay: the caller must sleep.
    GaveUp,
}

/// The time for which a waiter does not look at the line after it has published a request.
///
/// A look at a cache line that the peer is about to write makes both processors share the line, and
/// the peer must get it back exclusively before it can write: that costs more than a whole one-way
/// transfer. So a waiter first leaves the line alone for about the time that recent answers took.
/// The time is learnt: a look that came too early makes it longer by a step, and several looks in
/// time make it shorter.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    steps: u32,
    in_time: u32,
}

impl Quiet {
    /// The largest number of steps; for longer waits the cost of an early look is small beside the
    /// wait.
    const STEPS_MAX: u32 = 64;
    /// Looks in time before a shorter quiet time is tried.
    const IN_TIME_MAX: u32 = 6;
    /// Looks from which on the answer was late for another reason.
    const EARLY_MAX: u32 = 400;

    /// Waits for the quiet time, about six nanoseconds a step, without accessing memory.
    #[inline(always)]
    fn keep(self) {
        let mut number = u64::from(self.steps);
        for _ in 0..self.steps * 8 {
            number = core::hint::black_box(number.wrapping_mul(3));
        }
    }

    /// Learns from the number of looks until the answer came.
    #[inline(always)]
    fn learn(&mut self, looks: u32) {
        if looks == 0 {
            self.in_time += 1;
            if self.in_time == Self::IN_TIME_MAX {
                self.in_time = 0;
                self.steps = self.steps.saturating_sub(1);
            }
        } else if looks < Self::EARLY_MAX {
            self.in_time = 0;
            self.steps = (self.steps + 1).min(Self::STEPS_MAX);
        } else {
            self.steps /= 2;
        }
    }
}

/// The result of a spin, and the time spent.
struct SpinResult {
    spun: Spun,
    spun_ns: u64,
}

impl Policy {
    /// Creates a policy that has learnt nothing yet. The first adaptive policy of a process
    /// measures the cost of a sleep.
    pub fn new(wait: Wait) -> Self {
        if wait == Wait::Adaptive {
            sleep_cost_ns();
        }
        let (pace, given_up, quiet) = (Pace::default(), GivenUp::default(), Quiet::default());
        Self { wait, pace, given_up, cpu: 0, cpu_uses: 0, quiet, spinners: None }
    }

    /// Creates a policy like [`Policy::new`] for waits that are all for other processes: adaptive
    /// ones of this kind spin only while few others of this process do.
    pub fn for_other_processes(wait: Wait) -> Self {
        Self { spinners: Some(&spinners::HERE), ..Self::new(wait) }
    }

    /// Changes the way of waiting, keeps the learnt state, and returns the old way.
    #[inline]
    pub fn set_wait(&mut self, wait: Wait) -> Wait {
        if wait == Wait::Adaptive {
            // Measured here, as in `new`, and not in the middle of the first wait.
            sleep_cost_ns();
        }
        core::mem::replace(&mut self.wait, wait)
    }

    /// Returns the way of waiting.
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// Returns the number of the current processor plus one.
    #[inline]
    pub fn cpu(&mut self) -> u16 {
        if self.cpu_uses == 0 {
            self.cpu = cpu();
            self.cpu_uses = CPU_USES;
        }
        self.cpu_uses -= 1;
        self.cpu
    }

    /// Notes that the thread slept, after which it may run on another processor.
    pub fn slept(&mut self) {
        self.cpu_uses = 0;
    }

    /// Spins until `ready` returns true, as long as this policy allows for a peer last seen on
    /// processor `peer_cpu` (as in a header), and not beyond `deadline`.
    #[inline]
    pub fn spin(
        &mut self,
        peer_cpu: u16,
        deadline: Deadline,
        mut ready: impl FnMut() -> bool,
    ) -> Spun {
        let cpu = self.cpu();
        if let Some(slept_ns) = self.given_up.take() {
            self.pace.slept(slept_ns, sleep_cost_ns());
        }
        let budget = match self.wait {
            Wait::Park => return Spun::GaveUp,
            Wait::Yield => return spin_by_turns(deadline, &mut ready),
            Wait::Adaptive if peer_cpu != 0 && peer_cpu == cpu => return Spun::GaveUp,
            Wait::Spin(None) => Some(u64::MAX),
            Wait::Spin(Some(limit)) => Some(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX)),
            // Not even a short spin pays, because the peer may be waiting for this processor.
            Wait::Adaptive if is_known_crowd() && is_oversubscribed() => return Spun::GaveUp,
            Wait::Adaptive => None,
        };
        let eager = if budget.is_none() && self.pace.skips() {
            EAGER_WHERE_SLOW
        } else {
            self.quiet.keep();
            EAGER
        };
        for looks in 0..eager {
            if ready() {
                self.pace.met();
                self.quiet.learn(looks);
                return Spun::Ready;
            }
        }
        self.quiet.learn(EAGER);
        match budget {
            Some(budget) => self.spin_for(budget, deadline, &mut ready).spun,
            None => self.spin_adaptively(deadline, &mut ready),
        }
    }

    /// Spins for the time that has paid lately.
    #[inline(never)]
    fn spin_adaptively(&mut self, deadline: Deadline, ready: &mut dyn FnMut() -> bool) -> Spun {
        let cost_ns = sleep_cost_ns();
        let budget = self.adaptive_budget(cost_ns);
        let spinners = self.spinners.filter(|_| budget > 0);
        let permit = spinners.map(|spinners| spinners.permit(now_ns(), budget));
        let may_spin = budget > 0 && !matches!(permit, Some(None));
        if may_spin {
            let SpinResult { spun, spun_ns } = self.spin_for(budget, deadline, ready);
            match spun {
                Spun::Ready if spun_ns <= pace::SHORT * cost_ns => self.pace.met(),
                Spun::Ready => self.pace.met_late(),
                Spun::GaveUp => self.pace.failed(),
            }
            if spun == Spun::Ready {
                return spun;
            }
        }
        self.given_up = GivenUp::now();
        Spun::GaveUp
    }

    /// Spins for up to `budget` nanoseconds.
    fn spin_for(
        &self,
        budget: u64,
        deadline: Deadline,
        ready: &mut dyn FnMut() -> bool,
    ) -> SpinResult {
        // A pure spinner returns now and then, so that the caller can check that the peer still
        // exists.
        let (start, budget) = (now_ns(), budget.min(AIR_NS));
        loop {
            let is_ready = (0..16).any(|_| {
                core::hint::spin_loop();
                ready()
            });
            let spun_ns = now_ns() - start;
            if is_ready {
                return SpinResult { spun: Spun::Ready, spun_ns };
            }
            if spun_ns >= budget || deadline.is_over() {
                return SpinResult { spun: Spun::GaveUp, spun_ns };
            }
        }
    }

    /// Spins like [`Policy::spin`] for packets of another host: each look receives packets and
    /// costs as much as twenty looks at a cache line, and no local peer needs the processor.
    /// `has_asked` is true if an answer is awaited. Unasked data and room come at any time: if they
    /// take longer than a wake-up costs, spinning did not pay, and the next waits sleep at once, as
    /// after a failed spin.
    pub fn spin_far(
        &mut self,
        has_asked: bool,
        deadline: Deadline,
        mut ready: impl FnMut() -> bool,
    ) -> Spun {
        let is_adaptive = self.wait == Wait::Adaptive;
        let budget = match self.wait {
            Wait::Park => return Spun::GaveUp,
            Wait::Spin(None) | Wait::Yield => AIR_NS,
            Wait::Spin(Some(limit)) => u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            Wait::Adaptive if is_known_crowd() && is_oversubscribed() => return Spun::GaveUp,
            Wait::Adaptive => match self.adaptive_budget(sleep_cost_ns()) {
                0 => return Spun::GaveUp,
                // Sleeping until packets arrive costs more, and takes longer, than sleeping on a
                // bell.
                _ => FAR_COSTS * sleep_cost_ns(),
            },
        };
        let start = now_ns();
        let mut now = start;
        while now - start < budget.min(AIR_NS) && !deadline.is_over() {
            for _ in 0..FAR_LOOKS {
                if ready() {
                    let was_late = is_late(has_asked, now - start, FAR_COSTS * sleep_cost_ns() / 2);
                    self.learn_far(is_adaptive && was_late);
                    return Spun::Ready;
                }
            }
            now = now_ns();
        }
        self.learn_far(is_adaptive);
        Spun::GaveUp
    }

    /// Notes a success or a failure; after a failure the next waits are less likely to spin.
    fn learn_far(&mut self, has_failed: bool) {
        if has_failed { self.pace.failed() } else { self.pace.met() }
    }

    /// Returns the time to spin, if a sleep costs `cost_ns`; 0 for no spin.
    fn adaptive_budget(&mut self, cost_ns: u64) -> u64 {
        match self.pace.next() {
            Spin::No => 0,
            _ if is_oversubscribed() => 0,
            Spin::Short => pace::SHORT * cost_ns,
            Spin::Long => pace::LONG * cost_ns,
        }
    }

    /// Returns true if this side may sleep.
    pub fn parks(&self) -> bool {
        !matches!(self.wait, Wait::Spin(None) | Wait::Yield)
    }
}

/// Spins and yields to other threads by turns, at most for [`AIR_NS`].
fn spin_by_turns(deadline: Deadline, ready: &mut dyn FnMut() -> bool) -> Spun {
    let start = now_ns();
    loop {
        if (0..TURN_LOOKS).any(|_| ready()) {
            return Spun::Ready;
        }
        std::thread::yield_now();
        if now_ns() - start >= AIR_NS || deadline.is_over() {
            return if ready() { Spun::Ready } else { Spun::GaveUp };
        }
    }
}

/// Returns true if data from another host came so late that the spin of `spun_ns` did not pay, if a
/// wake-up costs `cost_ns`.
fn is_late(has_asked: bool, spun_ns: u64, cost_ns: u64) -> bool {
    !has_asked && spun_ns > cost_ns
}

/// Returns the number of the current processor plus one, the form for headers; 0 if it is unknown.
#[inline(always)]
pub fn cpu() -> u16 {
    // SAFETY: no arguments; answers -1 where it cannot know.
    let cpu = unsafe { libc::sched_getcpu() };
    (cpu + 1) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parking_never_spins_and_spinning_sees_what_is_ready() {
        let mut park = Policy::new(Wait::Park);
        assert_eq!(park.spin(0, Deadline::NEVER, || true), Spun::GaveUp);
        let mut by_turns = Policy::new(Wait::Yield);
        let mut looks = 0;
        let mut third_turn = || {
            looks += 1;
            looks > 2 * TURN_LOOKS
        };
        // Where others have the processor for long, or instrumented code is slow, a call has one
        // turn or less.
        let mut calls = (0..1000).map(|_| by_turns.spin(cpu(), Deadline::NEVER, &mut third_turn));
        assert!(calls.any(|spun| spun == Spun::Ready));
        assert_eq!(by_turns.spin(0, Deadline::NEVER, || false), Spun::GaveUp, "for air");
        assert!(!by_turns.parks());
        let mut spin = Policy::new(Wait::Spin(Some(Duration::from_micros(10))));
        assert_eq!(spin.spin(cpu(), Deadline::NEVER, || true), Spun::Ready);
        assert_eq!(spin.spin(cpu(), Deadline::NEVER, || false), Spun::GaveUp);
    }

    #[test]
    fn what_comes_from_afar_unasked_and_late_is_not_spun_for_again() {
        assert!(is_late(false, 11, 10));
        assert!(!is_late(false, 10, 10), "sleeping would not have been sooner");
        assert!(!is_late(true, 1000, 10), "an answer is always waited for");
        // The learnt state holds in every way of waiting, and only for a few waits; then a spin is
        // tried again.
        let mut policy = Policy::new(Wait::Park);
        policy.learn_far(true);
        policy.learn_far(true);
        let skipped = (0..1000).take_while(|_| policy.adaptive_budget(10) == 0).count();
        assert!((1..1000).contains(&skipped) || is_known_crowd(), "{skipped}");
        assert_eq!(policy.spin_far(true, Deadline::NEVER, || true), Spun::GaveUp);
        // A pure spinner does not learn to sleep.
        policy.set_wait(Wait::Spin(None));
        policy.learn_far(true);
        assert_eq!(policy.spin_far(false, Deadline::NEVER, || true), Spun::Ready);
    }

    #[test]
    fn a_policy_can_change_and_says_what_it_was() {
        let mut policy = Policy::new(Wait::Spin(None));
        assert!(!policy.parks());
        assert_eq!(policy.set_wait(Wait::Park), Wait::Spin(None));
        assert!(policy.parks());
        assert_eq!(policy.wait(), Wait::Park);
        assert_eq!(policy.spin(0, Deadline::NEVER, || true), Spun::GaveUp);
        assert_eq!(policy.set_wait(Wait::Adaptive), Wait::Park);
        assert_eq!(policy.set_wait(Wait::Spin(None)), Wait::Adaptive);
        assert_eq!(policy.spin(0, Deadline::NEVER, || true), Spun::Ready);
    }

    #[test]
    fn a_peer_on_this_processor_is_not_spun_for() {
        let mut adaptive = Policy::new(Wait::Adaptive);
        // The scheduler may migrate the thread between the two calls, but not in all of many tries.
        let gave_up =
            (0..100).any(|_| adaptive.spin(cpu(), Deadline::NEVER, || true) == Spun::GaveUp);
        assert!(gave_up);
    }
}
