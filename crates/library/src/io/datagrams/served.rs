//! Datagram calls on a UDP socket that the protocol server serves: each is a call there.
//!
//! The server asks both queues, the engine's and the kernel's, and sends past the kernel or through
//! the socket. Where it cannot, the program's own descriptor of the socket can. A call that is
//! under way while the server dies may have lost its datagram, as UDP allows, and the socket goes
//! on in the kernel. Not here: the calls to the server (`remote::protocol_server`), readiness
//! (`remote::served`), calls on streams (`io::served`).

use super::{Attempt, ReceiveOutcome, UdpSession};
use crate::io::call_flags::Recv;
use crate::io::receive::after_wait;
use crate::io::served::waited;
use crate::process::library::OwnSession;
use crate::remote::direct::Ended;
use crate::remote::served::Asked;
use crate::session::datagram::{Datagram, MessageRoom};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use sojourn_shm::Deadline;
use std::net::SocketAddr;

impl UdpSession<'_> {
    /// Receives; the result is as that of [`UdpSession::receive`].
    pub(in crate::io) fn receive_served(
        &self,
        bufs: &mut [IoSliceMut<'_>],
        how: Recv,
        attempt: &mut Attempt,
    ) -> Option<Result<ReceiveOutcome, Errno>> {
        let session = self.session;
        let may_wait = session.may_wait(how.dont_wait);
        let limit = session.receive_timeout.load(Ordering::Relaxed);
        let mut is_last = false;
        loop {
            let until = match may_wait {
                true => *attempt.deadline.get_or_insert_with(|| Deadline::from_limit(limit)),
                false => Deadline::NEVER,
            };
            let mut into = MessageRoom { bufs: &mut *bufs, messages: &mut attempt.messages };
            let asked = match may_wait && !how.peek {
                true => self.await_datagram(&mut into, until),
                false => self.datagram_now(&mut into, how.peek),
            };
            let waited = match asked {
                // Of a call under way nobody knows: its datagram is lost, or the kernel has it.
                Asked::Home | Asked::Unknown => return None,
                Asked::Answer(ControlFlow::Continue(datagram)) => {
                    session.arm_for_set();
                    return Some(Ok(ReceiveOutcome::Here(datagram)));
                }
                // The server has looked once more before it ended the wait.
                Asked::Answer(ControlFlow::Break(ended)) => {
                    waited(session.library.host(), ended, until)
                }
                Asked::Refused(Errno::AGAIN) if may_wait => session.wait_served(true, false, until),
                Asked::Refused(error) => {
                    if error == Errno::AGAIN {
                        session.arm_for_set();
                    }
                    return Some(Err(error));
                }
            };
            if let Some(error) = after_wait(waited, false, until, &mut is_last) {
                return Some(Err(error));
            }
        }
    }

    /// Asks for a datagram that is there.
    fn datagram_now(
        &self,
        into: &mut MessageRoom<'_, '_>,
        peek: bool,
    ) -> Asked<ControlFlow<Ended, Datagram>> {
        self.session.ask_service(self.generation, |server, number| {
            server.receive_from(number, into, peek).map(ControlFlow::Continue)
        })
    }

    /// Asks for a datagram, and waits for it in the server; if no connection is left for that, asks
    /// for one that is there.
    fn await_datagram(
        &self,
        into: &mut MessageRoom<'_, '_>,
        until: Deadline,
    ) -> Asked<ControlFlow<Ended, Datagram>> {
        self.session.ask_service(self.generation, |server, number| {
            match server.receive_from_waiting(number, into, until) {
                Some(received) => received,
                None => server.receive_from(number, into, false).map(ControlFlow::Continue),
            }
        })
    }

    /// Sends; the result is as that of [`UdpSession::send`].
    pub(in crate::io) fn send_served(
        &self,
        bufs: &[IoSlice<'_>],
        target: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Option<Result<usize, Errno>> {
        let asked = self.session.ask_service(self.generation, |server, number| {
            server.send_to(number, bufs, target, segment)
        });
        match asked {
            // The kernel waits for room, or says that there is none.
            Asked::Home | Asked::Refused(Errno::AGAIN | Errno::OPNOTSUPP) => None,
            // Of a call under way nobody knows: its datagram has been sent, or is lost.
            Asked::Answer(()) | Asked::Unknown => Some(Ok(bufs.iter().map(|buf| buf.len()).sum())),
            Asked::Refused(error) => Some(Err(error)),
        }
    }
}

impl OwnSession<'_> {
    /// Returns the length (bytes) of the next datagram, as the server says.
    pub(super) fn next_datagram_by_service(self) -> Option<usize> {
        let number = self.service.number()?;
        let into = &mut MessageRoom { bufs: &mut [], messages: &mut None };
        let next = self.library.protocol_server()?.receive_from(number, into, true);
        next.ok().map(|datagram| datagram.len)
    }
}
