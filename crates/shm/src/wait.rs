//! How long to spin before sleeping.
//!
//! The rule (`docs/ipc.md`, "Waiting"): spinning pays while it costs less than the wake-up it saves.
//! It never pays when the peer ran on this very processor last, for then it cannot run while we spin,
//! nor when more threads want to run than there are processors. Not here: the sleeping; who waits
//! does that, each in its own way.

use crate::deadline::{Deadline, now_ns};
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use rustix::fd::AsFd;
use std::sync::{Arc, OnceLock};

/// How a side waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Spin for about the cost of a wake-up, measured on this machine, where that can pay; then sleep.
    #[default]
    Adaptive,
    /// Spin; with a limit, sleep after it.
    Spin(Option<Duration>),
    /// Sleep at once.
    Park,
}

/// How often the machine's load is looked at, at most.
const LOAD_INTERVAL_NS: u64 = 10_000_000;
/// The same while it is not clear whether there is a crowd, or a third thread ran for a few microseconds by chance.
const DOUBT_INTERVAL_NS: u64 = 300_000;
/// How firmly a crowd is believed in: so many quiet looks, at most, until it is over.
const CROWDED_MAX: u32 = 16;
/// How many of those one crowded look is worth: where every fourth finds a crowd, there is one.
const CROWDED_LOOK: u32 = 4;
/// How firmly it is believed in now.
static CROWDED: AtomicU32 = AtomicU32::new(0);
/// Bounds of the measured budget.
const BUDGET_NS: core::ops::RangeInclusive<u64> = 2_000..=100_000;
/// Waits that skip spinning once spinning has failed this often in a row, as a power of two.
const BACKOFF_MAX: u32 = 5;
/// How often a processor number is used before it is asked for again.
const CPU_USES: u32 = 256;
/// Iterations without a pause instruction: an answer that is on its way is met at once.
const EAGER: u32 = 1000;

/// A pure spinner spins so long at once.
const AIR_NS: u64 = 1_000_000;
/// Looks at another host between two at the clock.
const FAR_LOOKS: u32 = 16;

/// The waiting policy of one connection or server thread, with what it learnt.
#[derive(Debug)]
pub struct Policy {
    wait: Wait,
    failures: u32,
    skip: u32,
    /// The processor we ran on when last asked, and how often it may still be answered unasked:
    /// threads mostly move while they sleep, and asking costs as much as a cache miss.
    cpu: u16,
    cpu_uses: u32,
    quiet: Quiet,
}

/// How one spin ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spun {
    /// What was waited for is there.
    Ready,
    /// It is not, and spinning on does not pay: sleep.
    GaveUp,
}

/// How long not to look after something was published.
///
/// A look at a cache line that the peer is about to write makes both share it, and the peer has to
/// ask for it back before it can write: that costs more than a whole one-way transfer. So a waiter
/// first leaves the line alone for about as long as the answer has taken lately. The length is learnt:
/// a look that came too early makes it longer by a step, one that was in time now and then shorter.
#[derive(Clone, Copy, Debug, Default)]
struct Quiet {
    steps: u32,
    in_time: u32,
}

impl Quiet {
    /// Steps at most: beyond, what an early look costs is little beside the wait.
    const STEPS_MAX: u32 = 64;
    /// Looks in time before a shorter wait is tried.
    const IN_TIME_MAX: u32 = 6;
    /// Looks after which an answer is one that took long for another reason.
    const EARLY_MAX: u32 = 400;

    /// Lets the time pass: about six nanoseconds a step, on the registers alone.
    #[inline(always)]
    fn keep(self) {
        let mut number = u64::from(self.steps);
        for _ in 0..self.steps * 8 {
            number = core::hint::black_box(number.wrapping_mul(3));
        }
    }

    /// Learns from how many looks it took.
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

impl Policy {
    /// A policy that has learnt nothing yet. Adaptive ones measure what a wake-up costs, once per process.
    pub fn new(wait: Wait) -> Self {
        if wait == Wait::Adaptive {
            wake_cost_ns();
        }
        let quiet = Quiet::default();
        Self { wait, failures: 0, skip: 0, cpu: 0, cpu_uses: 0, quiet }
    }

    /// Waits in another way from now on, keeping what was learnt; answers the way before.
    #[inline]
    pub fn set_wait(&mut self, wait: Wait) -> Wait {
        if wait == Wait::Adaptive {
            // As in `new`: not in the middle of the first wait.
            wake_cost_ns();
        }
        core::mem::replace(&mut self.wait, wait)
    }

    /// How this side waits.
    pub fn wait(&self) -> Wait {
        self.wait
    }

    /// The processor we run on, plus one.
    #[inline]
    pub fn cpu(&mut self) -> u16 {
        if self.cpu_uses == 0 {
            self.cpu = cpu();
            self.cpu_uses = CPU_USES;
        }
        self.cpu_uses -= 1;
        self.cpu
    }

    /// We slept, and may have woken elsewhere.
    pub fn slept(&mut self) {
        self.cpu_uses = 0;
    }

    /// Spins until `ready`, as long as this policy allows for a peer that was last seen on processor
    /// `peer_cpu` (as in a header), and not beyond `deadline`.
    #[inline]
    pub fn spin(
        &mut self,
        peer_cpu: u16,
        deadline: Deadline,
        mut ready: impl FnMut() -> bool,
    ) -> Spun {
        let cpu = self.cpu();
        let budget = match self.wait {
            Wait::Park => return Spun::GaveUp,
            Wait::Adaptive if peer_cpu != 0 && peer_cpu == cpu => return Spun::GaveUp,
            Wait::Spin(None) => u64::MAX,
            Wait::Spin(Some(limit)) => u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            // Not even a short spin: whoever is to answer may be waiting for this processor.
            Wait::Adaptive if is_known_crowd() && is_oversubscribed() => return Spun::GaveUp,
            Wait::Adaptive => u64::MAX - 1,
        };
        self.quiet.keep();
        for looks in 0..EAGER {
            if ready() {
                self.failures = 0;
                self.quiet.learn(looks);
                return Spun::Ready;
            }
        }
        self.quiet.learn(EAGER);
        self.spin_on(budget, deadline, &mut ready)
    }

    #[inline(never)]
    fn spin_on(&mut self, limit: u64, deadline: Deadline, ready: &mut dyn FnMut() -> bool) -> Spun {
        let adaptive = limit == u64::MAX - 1;
        let Some(budget) = (if adaptive { self.adaptive_budget() } else { Some(limit) }) else {
            return Spun::GaveUp;
        };
        // A pure spinner comes up for air now and then, to look whether its peer is still there.
        let end = now_ns().saturating_add(budget.min(AIR_NS));
        loop {
            for _ in 0..16 {
                core::hint::spin_loop();
                if ready() {
                    self.failures = 0;
                    return Spun::Ready;
                }
            }
            if now_ns() >= end || deadline.is_over() {
                break;
            }
        }
        if adaptive {
            self.learn(true);
        }
        Spun::GaveUp
    }

    /// As [`Policy::spin`], for what comes from another host: each look takes packets and costs as much as twenty at a cache line, and nobody
    /// has to be left the processor for. `has_asked`: what is waited for is an answer. What comes unasked, and room, come when they come: if that
    /// takes longer than a wake-up costs, spinning for it did not pay, and the next waits sleep at once, as after a spin in vain.
    pub fn spin_far(
        &mut self,
        has_asked: bool,
        deadline: Deadline,
        mut ready: impl FnMut() -> bool,
    ) -> Spun {
        let is_adaptive = self.wait == Wait::Adaptive;
        let budget = match self.wait {
            Wait::Park => return Spun::GaveUp,
            Wait::Spin(None) => AIR_NS,
            Wait::Spin(Some(limit)) => u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX),
            Wait::Adaptive if is_known_crowd() && is_oversubscribed() => return Spun::GaveUp,
            Wait::Adaptive => match self.adaptive_budget() {
                Some(budget) => budget,
                None => return Spun::GaveUp,
            },
        };
        let start = now_ns();
        let mut now = start;
        while now - start < budget.min(AIR_NS) && !deadline.is_over() {
            for _ in 0..FAR_LOOKS {
                if ready() {
                    let was_late = is_late(has_asked, now - start, wake_cost_ns());
                    self.learn(is_adaptive && was_late);
                    return Spun::Ready;
                }
            }
            now = now_ns();
        }
        self.learn(is_adaptive);
        Spun::GaveUp
    }

    /// Where spinning did not pay it is less likely to pay the next times.
    fn learn(&mut self, has_failed: bool) {
        if has_failed {
            self.failures = (self.failures + 1).min(BACKOFF_MAX);
            self.skip = (1 << self.failures) - 2;
        } else {
            self.failures = 0;
        }
    }

    fn adaptive_budget(&mut self) -> Option<u64> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        // Twice: a peer that sleeps needs one wake-up to come back and may then be met spinning. With
        // less, two sides that have once slept would for ever make each other sleep.
        let budget = 2 * wake_cost_ns();
        (budget > 0 && !is_oversubscribed()).then_some(budget)
    }

    /// Whether this side sleeps at all.
    pub fn parks(&self) -> bool {
        self.wait != Wait::Spin(None)
    }
}

/// Whether what came from another host after a spin of `spun_ns` was not worth that spin, where a wake-up costs `cost_ns`.
fn is_late(has_asked: bool, spun_ns: u64, cost_ns: u64) -> bool {
    !has_asked && spun_ns > cost_ns
}

/// The processor we run on, plus one, as it goes into headers.
#[inline(always)]
pub fn cpu() -> u16 {
    // SAFETY: no arguments; answers -1 where it cannot know.
    let cpu = unsafe { libc::sched_getcpu() };
    (cpu + 1) as u16
}

/// Nanoseconds that waking a sleeper on another processor costs here; 0 on a single processor.
/// Measured once per process, in about a millisecond.
pub fn wake_cost_ns() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(measure_wake_cost)
}

/// Processors of the machine, not those we may run on: the peer may run on others.
fn processors() -> usize {
    // The C library reads a file for it.
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // SAFETY: asks for a number.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(online).unwrap_or(1).max(1)
    })
}

/// Moves this thread away from `processor`, if that is allowed; else the figure is that of one
/// processor, and small.
fn leave(processor: u16) {
    let mut others = rustix::thread::CpuSet::new();
    (0..processors()).filter(|cpu| cpu + 1 != processor as usize).for_each(|cpu| others.set(cpu));
    let _ = rustix::thread::sched_setaffinity(None, &others);
}

fn measure_wake_cost() -> u64 {
    const ROUNDS: u32 = 12;
    if processors() < 2 {
        return 0;
    }
    let word = Arc::new(AtomicU32::new(0));
    let limit = Deadline::after(Duration::from_millis(200));
    let turn = move |word: &AtomicU32, mine: u32| {
        while word.load(Ordering::Acquire) != mine && !limit.is_over() {
            crate::futex::wait(word, 1 - mine, Some(Duration::from_millis(10)));
        }
        word.store(1 - mine, Ordering::Release);
        crate::futex::wake(word);
    };
    let other = {
        let word = Arc::clone(&word);
        let ours = cpu();
        std::thread::Builder::new().name("sojourn-measure".into()).spawn(move || {
            leave(ours);
            (0..ROUNDS).for_each(|_| turn(&word, 1));
        })
    };
    let Ok(other) = other else { return *BUDGET_NS.start() };
    let mut rounds = Vec::with_capacity(ROUNDS as usize);
    for _ in 0..ROUNDS {
        let start = now_ns();
        turn(&word, 0);
        rounds.push(now_ns() - start);
    }
    let _ = other.join();
    rounds.sort_unstable();
    // A round is two hand-overs of which we saw the waiting half; the median shrugs off the start.
    rounds[rounds.len() / 2].clamp(*BUDGET_NS.start(), *BUDGET_NS.end())
}

/// What [`is_oversubscribed`] said last, without a look at the clock.
#[inline(always)]
fn is_known_crowd() -> bool {
    is_crowd(CROWDED.load(Ordering::Relaxed))
}

fn is_crowd(level: u32) -> bool {
    level > CROWDED_LOOK / 2
}

/// Whether more threads want to run than there are processors: from `/proc/loadavg`, mostly once in
/// ten milliseconds per process. Without `/proc` the answer is no.
fn is_oversubscribed() -> bool {
    static NEXT_NS: AtomicU64 = AtomicU64::new(0);
    let now = now_ns();
    let next = NEXT_NS.load(Ordering::Relaxed);
    let usual = now + LOAD_INTERVAL_NS;
    if now >= next
        && NEXT_NS.compare_exchange(next, usual, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        let crowded = runnable().is_some_and(|running| running > processors());
        let level = belief(CROWDED.load(Ordering::Relaxed), crowded);
        CROWDED.store(level, Ordering::Relaxed);
        if (1..=CROWDED_LOOK).contains(&level) {
            NEXT_NS.store(now + DOUBT_INTERVAL_NS, Ordering::Relaxed);
        }
    }
    is_known_crowd()
}

/// How firmly a crowd is believed in after a look. A quiet moment in a crowd is likely: all the more as one that does not spin runs for short
/// times only.
fn belief(before: u32, crowded: bool) -> u32 {
    if crowded { (before + CROWDED_LOOK).min(CROWDED_MAX) } else { before.saturating_sub(1) }
}

/// Where `/proc/loadavg` is open, if it is not this crate that opens it.
static LOAD: AtomicI32 = AtomicI32::new(OWN_FILE);
/// This crate opens it.
const OWN_FILE: i32 = -1;
/// Nobody does.
const NO_FILE: i32 = -2;

/// Has the load read from this number, or not at all: who lives in a program whose descriptors are not its own opens nothing
/// where the program could see it. What is read does not move the file on.
pub fn read_load_from(number: Option<i32>) {
    LOAD.store(number.unwrap_or(NO_FILE), Ordering::Relaxed);
}

/// Learns now what is read from a file once in a process, so that no thread opens that file later.
pub fn learn_machine() {
    processors();
}

/// Threads running or wanting to, this one included.
fn runnable() -> Option<usize> {
    static FILE: OnceLock<Option<std::fs::File>> = OnceLock::new();
    let file = match LOAD.load(Ordering::Relaxed) {
        OWN_FILE => {
            FILE.get_or_init(|| std::fs::File::open("/proc/loadavg").ok()).as_ref()?.as_fd()
        }
        number => crate::descriptor::of_program(number)?,
    };
    let mut text = [0; 64];
    let len = rustix::io::pread(file, &mut text, 0).ok()?;
    let text = core::str::from_utf8(&text[..len]).ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wake_cost_is_measured_and_within_its_bounds() {
        let cost = wake_cost_ns();
        assert!(cost == 0 || BUDGET_NS.contains(&cost), "{cost}");
    }

    #[test]
    fn a_crowd_is_seen_at_once_and_believed_in_while_every_fourth_look_finds_it() {
        assert!(is_crowd(belief(0, true)), "spinning in a crowd costs more than sleeping alone");
        let mut level = 0;
        for look in 0..1000 {
            level = belief(level, look % 4 == 0);
        }
        assert!(
            (0..4).all(|quiet| is_crowd((0..quiet).fold(level, |level, _| belief(level, false))))
        );
        level = (0..CROWDED_MAX).fold(level, |level, _| belief(level, false));
        assert_eq!(level, 0, "and it ends");
    }

    #[test]
    fn this_thread_counts_as_runnable() {
        assert!(runnable().is_none_or(|n| n >= 1));
    }

    #[test]
    fn parking_never_spins_and_spinning_sees_what_is_ready() {
        let mut park = Policy::new(Wait::Park);
        assert_eq!(park.spin(0, Deadline::NEVER, || true), Spun::GaveUp);
        let mut spin = Policy::new(Wait::Spin(Some(Duration::from_micros(10))));
        assert_eq!(spin.spin(cpu(), Deadline::NEVER, || true), Spun::Ready);
        assert_eq!(spin.spin(cpu(), Deadline::NEVER, || false), Spun::GaveUp);
    }

    #[test]
    fn what_comes_from_afar_unasked_and_late_is_not_spun_for_again() {
        assert!(is_late(false, 11, 10));
        assert!(!is_late(false, 10, 10), "sleeping would not have been sooner");
        assert!(!is_late(true, 1000, 10), "an answer is always waited for");
        // What was learnt holds whoever waits, and for few waits: the next is tried again.
        let mut policy = Policy::new(Wait::Park);
        policy.learn(true);
        policy.learn(true);
        let skipped = policy.skip;
        assert!((1..=1 << BACKOFF_MAX).contains(&skipped), "{skipped}");
        for left in (0..skipped).rev() {
            assert_eq!(policy.adaptive_budget(), None);
            assert_eq!(policy.skip, left);
        }
        assert_eq!(policy.spin_far(true, Deadline::NEVER, || true), Spun::GaveUp);
        // Who only spins does not learn to sleep.
        policy.set_wait(Wait::Spin(None));
        policy.learn(true);
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
        // The scheduler may move us between the two calls; one of a few tries will not be moved.
        let gave_up =
            (0..100).any(|_| adaptive.spin(cpu(), Deadline::NEVER, || true) == Spun::GaveUp);
        assert!(gave_up);
    }
}
