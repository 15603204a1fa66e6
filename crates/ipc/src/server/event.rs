//! The events that a server thread receives.

use super::request::Request;
use super::{Found, Server};
use crate::ancillary;
use crate::deadline::Deadline;
use crate::fault;
use crate::layout::Kind;
use crate::reply::ReadyReply;
use crate::rt::Reason;
use crate::rt::{Badge, ClientId, Credentials};
use crate::wait::Spun;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// The reason why no event was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecvError {
    /// The deadline passed.
    #[error("nothing came before the deadline")]
    TimedOut,
    /// The endpoint was closed and its last client is gone.
    #[error("the endpoint is closed")]
    Closed,
}

/// An event of a server thread.
#[derive(Debug)]
pub enum Event<'s> {
    /// A request that wants an answer.
    Call(Request<'s>),
    /// A request that wants none.
    Send(Request<'s>),
    /// A client set notification bits. Bits set several times arrive once.
    Notify {
        /// The client.
        client: ClientId,
        /// The client's badge.
        badge: Badge,
        /// The bits, never 0.
        bits: u64,
    },
    /// A client has connected to this thread.
    Connected {
        /// The client.
        client: ClientId,
        /// The client's credentials from the kernel.
        credentials: Credentials,
    },
    /// A client is gone, and its contexts must be run down.
    Gone {
        /// The client.
        client: ClientId,
        /// The client's badge.
        badge: Badge,
        /// The reason.
        reason: Reason,
    },
}

impl Server {
    /// Waits for the next request or event.
    ///
    /// # Errors
    /// [`RecvError`].
    pub fn recv(&mut self, deadline: Deadline) -> Result<Event<'_>, RecvError> {
        self.reply_wait(None, deadline)
    }

    /// Publishes an answer and waits for the next request or event, as one operation: the answer
    /// costs a store (and a wake-up if the client sleeps), and the client's next request is checked
    /// for at once.
    ///
    /// An answer to a client that has gone is dropped; [`Event::Gone`] follows.
    ///
    /// # Errors
    /// [`RecvError`].
    #[inline]
    pub fn reply_wait(
        &mut self,
        reply: Option<ReadyReply>,
        deadline: Deadline,
    ) -> Result<Event<'_>, RecvError> {
        if let Some(index) = self.unclaimed.take() {
            self.drop_unclaimed(index);
        }
        if self.loan.is_some() {
            self.return_loan();
        }
        if let Some(index) = self.held.take() {
            self.release(index);
        }
        let cpu = self.policy.cpu();
        self.mailbox.set_cpu(cpu);
        if let Some(Ok(link)) = reply.map(ReadyReply::send_and_return) {
            self.give_back(link);
        }
        fault::point("server.answered");
        let found = self.find(deadline)?;
        Ok(self.event(found))
    }

    #[inline]
    fn event(&mut self, found: Found) -> Event<'_> {
        match found {
            Found::Message(index) => {
                let is_call = self.incoming.header.kind == Kind::Call;
                self.unclaimed = is_call.then_some(index);
                let request = Request { server: self, index };
                if is_call { Event::Call(request) } else { Event::Send(request) }
            }
            Found::Notify(client, badge, bits) => Event::Notify { client, badge, bits },
            Found::Connected(client, credentials) => Event::Connected { client, credentials },
            Found::Gone(client, badge, reason) => Event::Gone { client, badge, reason },
        }
    }

    #[inline]
    fn find(&mut self, deadline: Deadline) -> Result<Found, RecvError> {
        loop {
            if let Some(found) = self.round() {
                return Ok(found);
            }
            if self.spin(deadline) == Spun::Ready {
                continue;
            }
            if self.is_over() {
                return Err(RecvError::Closed);
            }
            if deadline.is_over() {
                return Err(RecvError::TimedOut);
            }
            if self.policy.parks() {
                self.park(deadline);
            }
        }
    }

    /// Returns a pidfd of the process that made a client's connection, which is readable once the
    /// process has ended. The process number may have been reused by then, and the connection may
    /// have been passed to another process.
    ///
    /// # Errors
    /// Those of getsockopt(2): `ENOPROTOOPT` before Linux 6.5, others if the process has ended and
    /// was reaped.
    pub fn process(&self, client: ClientId) -> Result<OwnedFd, Errno> {
        let lane = self.lanes.iter().flatten().find(|lane| lane.link.id == client);
        ancillary::peer_process(lane.ok_or(Errno::NOTCONN)?.link.socket.as_fd())
    }
}
