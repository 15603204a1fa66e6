//! The thread that turns the driver where no call does: for timers that are due, and for packets
//! that no call waits for.
//!
//! Not here: turns by calls (`net`), and who sleeps for packets (`watch`).

use super::{EVENTS, NEVER, Net, SLACK_US, TICK, WAKE};
use crate::host::lock::lock;
use crate::process::engine::Engine;
use core::sync::atomic::Ordering;
use rustix::event::Timespec;
use rustix::event::epoll;
use rustix::fd::AsRawFd;
use rustix::io::Errno;
use sojourn_proto::time::Instant;
use sojourn_pump::{Pump, now};

impl Net {
    /// Runs the thread. It ends if the program has closed the thread's set, a number that is not
    /// its own: then calls alone turn the pump.
    pub(super) fn serve(&self, engine: &Engine) {
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            let was_turned = self.was_turned.load(Ordering::Relaxed);
            let mut pump = lock(&self.pump);
            let at = now();
            pump.turn(false, at);
            let soon = was_turned.then(|| Instant::from_micros(at.as_micros() + SLACK_US));
            let idle = self.close_idle_links(engine, &mut pump);
            let next = [soon, idle, pump.next_timeout()].into_iter().flatten().min();
            self.looks_at.store(next.map_or(NEVER, Instant::as_micros), Ordering::Relaxed);
            self.leave(pump);
            // This turn was not a call's. If a call has turned meanwhile, its next turn sets the
            // flag in time.
            self.was_turned.store(false, Ordering::Relaxed);
            if engine.is_ending() || self.sleep(&mut events, next).is_err() {
                return;
            }
        }
    }

    /// Sleeps until there is something to do for sessions.
    fn sleep(&self, events: &mut Vec<epoll::Event>, next: Option<Instant>) -> Result<(), Errno> {
        let mut is_idle = true;
        while is_idle {
            let limit = next.map(|next| next.since(now()).as_micros()).map(|us| Timespec {
                tv_sec: i64::try_from(us / 1_000_000).unwrap_or(i64::MAX),
                tv_nsec: (us % 1_000_000 * 1000) as i64,
            });
            events.clear();
            let spare = rustix::buffer::spare_capacity(events);
            match epoll::wait(self.watch.set(), spare, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
            is_idle = !events.is_empty();
            for event in events.iter() {
                match event.data.u64() {
                    TICK if !self.watch.tick(now().as_micros()) => continue,
                    WAKE => drop(rustix::io::read(&self.wake, &mut [0; 8])),
                    _ => {}
                }
                is_idle = false;
            }
        }
        Ok(())
    }

    /// Closes interfaces that have not been used for a while. Returns the time of the next look.
    fn close_idle_links(&self, engine: &Engine, pump: &mut Pump) -> Option<Instant> {
        while let Some(packets) = pump.take_idle_link(now()) {
            if let Some(fd) = packets.wait_fd() {
                self.watch.remove(fd);
                engine.own.forget(fd.as_raw_fd());
                let beside = lock(&self.beside).remove(&fd.as_raw_fd());
                beside.into_iter().for_each(|number| engine.own.forget(number));
            }
        }
        pump.next_idle_link()
    }
}
