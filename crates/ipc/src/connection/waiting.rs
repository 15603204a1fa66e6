//! Waiting: spinning, then sleeping on the bell, then sleeping on the socket.
//!
//! Not here: the length of a spin ([`sojourn_shm::wait`]). Read `docs/understand/ipc.md`,
//! "Waiting".

use super::{Connection, ON_BELL};
use crate::connect::{self};
use crate::deadline::Deadline;
use crate::fault;
use crate::layout::Region;
use crate::rt::CallError;
use crate::wait::Spun;
use core::time::Duration;
use sojourn_shm::{futex, park};

/// The longest single sleep of a connection that has parted from its socket: without a limit the
/// kernel would restart the wait after a handler with `SA_RESTART` (signal(7)).
const LONG: Duration = Duration::from_secs(3600);

impl Connection {
    /// Waits until `ready` returns true, the deadline passes, or the connection ends. Messages
    /// published before the end still count.
    #[inline]
    pub(super) fn wait(
        &mut self,
        deadline: Deadline,
        ready: impl Fn(&Region) -> bool + Copy,
    ) -> Result<(), CallError> {
        loop {
            let region = &self.parts.region;
            let spun = self.parts.policy.spin(self.server_cpu, deadline, || ready(region));
            if spun == Spun::Ready || ready(region) {
                return Ok(());
            }
            if let Some(reason) = self.ended {
                return Err(CallError::Disconnected(reason));
            }
            if deadline.is_over() {
                return Err(CallError::Timeout);
            }
            if self.parts.policy.parks() {
                self.park(deadline, &ready);
            } else {
                self.drain();
            }
        }
    }

    /// Sleeps first on the bell, on which a wake-up is cheapest, and after a while on the socket,
    /// which shows the death of the server.
    #[inline(never)]
    fn park(&mut self, deadline: Deadline, ready: &dyn Fn(&Region) -> bool) {
        let region = &self.parts.region;
        let bell = region.client_bell();
        park::announce(bell, park::ON_FUTEX);
        fault::point("client.bell");
        let longest = match self.parts.socket.here() {
            Some(_) => ON_BELL,
            // The bell rings at the end of the server, too.
            None => LONG,
        };
        let slice = deadline.left().map_or(longest, |left| left.min(longest));
        let mut woken = futex::Woken::Look;
        if !ready(region) && !self.parts.socket.is_over() {
            woken = futex::wait(bell, park::ON_FUTEX, Some(slice));
        }
        park::withdraw(bell);
        self.parts.policy.slept();
        let region = &self.parts.region;
        let Some(socket) = self.parts.socket.here() else {
            return if self.parts.socket.is_over() {
                self.drain()
            };
        };
        if woken == futex::Woken::Look || ready(region) {
            return;
        }
        park::announce(region.client_bell(), park::ON_SOCKET);
        fault::point("client.socket");
        if !ready(region) {
            connect::readable(socket, deadline);
        }
        park::withdraw(region.client_bell());
        self.drain();
    }
}
