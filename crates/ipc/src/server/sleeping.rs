//! Hot and cold lanes, and the sleep of a server thread.
//!
//! Read the theory of operation in the parent module first.

use super::{FALSE_RINGS_MAX, HOT_MAX, IDLE_MAX, Server};
use crate::deadline::Deadline;
use crate::fault;
use crate::rt::Reason;
use core::sync::atomic::Ordering;
use sojourn_shm::futex::{self, Woken};
use sojourn_shm::park;

impl Server {
    /// Makes a lane hot. If there are too many, the lane that has been idle longest becomes cold.
    pub(super) fn warm(&mut self, index: u32) {
        if self.hot.contains(&index) {
            return;
        }
        if let Some(Some(lane)) = self.lanes.get_mut(index as usize) {
            lane.idle = 0;
            lane.link.cold.end(lane.link.region.server_bell());
        }
        if self.hot.len() == HOT_MAX {
            let lanes = &self.lanes;
            let idle =
                |index: u32| lanes[index as usize].as_ref().map_or(u32::MAX, |lane| lane.idle);
            if let Some(at) = (0..self.hot.len()).max_by_key(|at| idle(self.hot[*at])) {
                let index = self.hot[at];
                if self.put_lane_to_sleep(index) {
                    self.hot.swap_remove(at);
                }
            }
        }
        self.hot.push(index);
    }

    /// Puts a lane to sleep on its control socket. Returns false if the lane has a request after
    /// all.
    fn put_lane_to_sleep(&mut self, index: u32) -> bool {
        let Some(Some(lane)) = self.lanes.get_mut(index as usize) else { return true };
        lane.link.cold.begin(lane.link.region.server_bell());
        if lane.has_something() {
            lane.link.cold.end(lane.link.region.server_bell());
            return false;
        }
        true
    }

    /// Sleeps until a hot lane or the mailbox is rung, or the deadline.
    #[inline(never)]
    pub(super) fn park(&mut self, deadline: Deadline) {
        if !self.can_wait_any {
            return self.park_on_mailbox(deadline);
        }
        self.cool_idle();
        let poke = self.mailbox.poke.load(Ordering::Acquire);
        self.waits.clear();
        // SAFETY: the mailbox outlives the wait below.
        let mut is_full = !unsafe { self.waits.push(&raw const self.mailbox.poke, poke) };
        let mut ready = self.mailbox.has_notes.load(Ordering::Acquire) || self.is_over();
        for index in &self.hot {
            let Some(Some(lane)) = self.lanes.get_mut(*index as usize) else { continue };
            let bell = lane.link.region.server_bell();
            park::announce(bell, park::ON_FUTEX);
            // SAFETY: the lane, and with it the region, is ours until after the wait below.
            is_full |= !unsafe { self.waits.push(bell, park::ON_FUTEX) };
            ready |= lane.has_something();
        }
        fault::point("server.park");
        if !ready && !is_full && self.waits.wait_any(deadline.since_zero()) == Woken::Look {
            self.count_rings();
        }
        self.policy.slept();
        for index in &self.hot {
            if let Some(Some(lane)) = self.lanes.get_mut(*index as usize) {
                park::withdraw(lane.link.region.server_bell());
            }
        }
    }

    /// Sleeps on a kernel that cannot wait on several futexes at once. All lanes are cold
    /// meanwhile, so a client with a request wakes the control thread, which posts a note.
    #[cold]
    fn park_on_mailbox(&mut self, deadline: Deadline) {
        let poke = self.mailbox.poke.load(Ordering::Acquire);
        for at in (0..self.hot.len()).rev() {
            let index = self.hot[at];
            if self.put_lane_to_sleep(index) {
                self.hot.swap_remove(at);
            }
        }
        let ready = self.mailbox.has_notes.load(Ordering::Acquire) || self.is_over();
        fault::point("server.park");
        if self.hot.is_empty() && !ready {
            futex::wait(&self.mailbox.poke, poke, deadline.left());
        }
        self.policy.slept();
    }

    /// Counts needless wake-ups by client, and disconnects clients that cause too many.
    fn count_rings(&mut self) {
        let mut flooder = None;
        for index in &self.hot {
            let Some(Some(lane)) = self.lanes.get_mut(*index as usize) else { continue };
            let rang = lane.link.region.server_bell().load(Ordering::Relaxed) != park::ON_FUTEX;
            if rang && !lane.has_something() {
                lane.false_rings += 1;
                if lane.false_rings > FALSE_RINGS_MAX {
                    flooder = Some(*index);
                }
            }
        }
        if let Some(index) = flooder {
            self.expel_lane(index, Reason::DoorbellFlood);
        }
    }

    fn cool_idle(&mut self) {
        let mut at = 0;
        while at < self.hot.len() {
            let index = self.hot[at];
            let is_idle = match &mut self.lanes[index as usize] {
                Some(lane) => {
                    lane.idle += 1;
                    lane.idle > IDLE_MAX
                }
                None => true,
            };
            if is_idle && self.hot.len() > 1 && self.put_lane_to_sleep(index) {
                self.hot.swap_remove(at);
            } else {
                at += 1;
            }
        }
    }
}
