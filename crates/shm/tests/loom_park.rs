//! Model of the parking protocol: no interleaving loses a wake-up.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p sojourn-shm --release --test loom_park`. The
//! sleep is a futex whose compare-and-sleep is atomic, as the kernel's is; everything else is the
//! code that ships. A lost wake-up shows as a deadlock, which loom reports.
#![cfg(loom)]

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use sojourn_shm::{AtomicU32, AtomicU64, Line, Ordering, park};

/// The kernel's half of a futex: compares under its own lock, then sleeps.
struct Futex {
    lock: Mutex<()>,
    sleepers: Condvar,
}

impl Futex {
    fn new() -> Self {
        Self { lock: Mutex::new(()), sleepers: Condvar::new() }
    }

    fn wait(&self, word: &AtomicU32, expected: u32) {
        let guard = self.lock.lock().unwrap();
        if word.load(Ordering::SeqCst) == expected {
            drop(self.sleepers.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        let _guard = self.lock.lock().unwrap();
        self.sleepers.notify_one();
    }
}

/// Waits until the tag is `seq`, parking as the connection does.
fn await_tag(line: &Line, seq: u64, bell: &AtomicU32, futex: &Futex) {
    while line.tag() != seq {
        park::announce(bell, park::ON_FUTEX);
        if line.tag() != seq {
            futex.wait(bell, park::ON_FUTEX);
        }
        park::withdraw(bell);
    }
}

fn publish(line: &Line, seq: u64, word: u64, bell: &AtomicU32, futex: &Futex) {
    line.publish(seq, word, &[]);
    if park::ring(bell) == park::ON_FUTEX {
        futex.wake();
    }
}

#[test]
fn a_waiter_always_sees_what_was_published() {
    loom::model(|| {
        let shared = Arc::new((Line::new(), AtomicU32::new(0), Futex::new()));
        let writer = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || publish(&shared.0, 1, 7, &shared.1, &shared.2))
        };
        await_tag(&shared.0, 1, &shared.1, &shared.2);
        let mut words = [0];
        shared.0.copy_out(&mut words);
        assert_eq!(words, [7]);
        writer.join().unwrap();
    });
}

#[test]
fn call_and_reply_never_both_sleep() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let request = Arc::new((Line::new(), AtomicU32::new(0), Futex::new()));
        let reply = Arc::new((Line::new(), AtomicU32::new(0), Futex::new()));
        let server = {
            let (request, reply) = (Arc::clone(&request), Arc::clone(&reply));
            thread::spawn(move || {
                await_tag(&request.0, 1, &request.1, &request.2);
                publish(&reply.0, 1, 0, &reply.1, &reply.2);
            })
        };
        publish(&request.0, 1, 0, &request.1, &request.2);
        await_tag(&reply.0, 1, &reply.1, &reply.2);
        server.join().unwrap();
    });
}

/// Two sources ring one bell (replies and notifications): neither may consume the other's wake-up.
#[test]
fn two_sources_one_bell() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((Line::new(), AtomicU64::new(0), AtomicU32::new(0), Futex::new()));
        let replier = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || publish(&shared.0, 1, 0, &shared.2, &shared.3))
        };
        let notifier = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.fetch_or(1, Ordering::Release);
                if park::ring(&shared.2) == park::ON_FUTEX {
                    shared.3.wake();
                }
            })
        };
        let (mut replied, mut notified) = (false, false);
        while !(replied && notified) {
            replied |= shared.0.tag() == 1;
            notified |= shared.1.swap(0, Ordering::Acquire) != 0;
            if replied && notified {
                break;
            }
            park::announce(&shared.2, park::ON_FUTEX);
            let more = (!replied && shared.0.tag() == 1)
                || (!notified && shared.1.load(Ordering::Acquire) != 0);
            if !more {
                shared.3.wait(&shared.2, park::ON_FUTEX);
            }
            park::withdraw(&shared.2);
        }
        replier.join().unwrap();
        notifier.join().unwrap();
    });
}
