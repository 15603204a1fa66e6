//! Notifications, and the packets on the control socket: the parts of a connection beside calls.

use super::{BATCHES_MAX, Connection, GrantAnswer};
use crate::connect::{self, wait_for};
use crate::control::{self, Batch, Packet, Received, Topic};
use crate::deadline::Deadline;
use crate::grant::Memory;
use crate::layout::Seq;
use crate::rt::CallError;
use crate::rt::GrantId;
use crate::rt::Reason;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd};
use sojourn_shm::{Access, Ordering};

/// The largest number of packets taken at once, more than an honest server can have sent since the
/// last look.
const PACKETS_AT_ONCE: u32 = 4096;
/// The error of what takes the socket, for a connection that has parted from it.
const APART: CallError = CallError::System(rustix::io::Errno::NOTSOCK.raw_os_error());
/// The largest number of kept answers to registrations, some of whose callers may have given up.
const DONE_MAX: usize = 1024;

impl Connection {
    /// Sets notification bits for the server. Bits that are set several times before the server
    /// looks arrive once.
    ///
    /// # Errors
    /// [`CallError::Disconnected`].
    pub fn notify(&mut self, bits: u64) -> Result<(), CallError> {
        if let Some(reason) = self.ended {
            return Err(CallError::Disconnected(reason));
        }
        // SYNC: release; pairs with the acquire swap in the lane's `take_bits`.
        self.parts.region.to_server().fetch_or(bits, Ordering::Release);
        self.ring_server();
        Ok(())
    }

    /// Waits for notification bits from the server, and takes them.
    ///
    /// # Errors
    /// [`CallError::Timeout`], [`CallError::Disconnected`].
    pub fn wait_notify(&mut self, deadline: Deadline) -> Result<u64, CallError> {
        self.wait(deadline, |region| region.to_client().load(Ordering::Relaxed) != 0)?;
        // SYNC: acquire; pairs with the release in the link's `notify`.
        Ok(self.parts.region.to_client().swap(0, Ordering::Acquire))
    }

    /// Shares memory with the server, to be passed by reference, and returns the grant's number.
    ///
    /// # Errors
    /// [`CallError`]; `TooLarge` if the server allows no more.
    pub fn register(&mut self, memory: &Memory, deadline: Deadline) -> Result<GrantId, CallError> {
        let id = self.next_grant;
        self.next_grant.0 += 1;
        let mut packet = Packet::new(Topic::Register, id.0);
        packet.a = memory.len() as u64;
        packet.b = u64::from(memory.others() == Access::ReadWrite);
        self.send_packet(packet, &[memory.segment.as_fd()], deadline)?;
        match self.await_done(id, deadline)? {
            0 => Ok(id),
            _ => Err(CallError::TooLarge),
        }
    }

    /// Ends the sharing of memory; see [`Memory`] for the limits of that.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn unregister(&mut self, grant: GrantId, deadline: Deadline) -> Result<(), CallError> {
        self.send_packet(Packet::new(Topic::Unregister, grant.0), &[], deadline)?;
        self.await_done(grant, deadline).map(drop)
    }

    fn await_done(&mut self, id: GrantId, deadline: Deadline) -> Result<u64, CallError> {
        // An answer that is there when the deadline passes still counts, a later one does not.
        let mut is_last = false;
        loop {
            if let Some(at) = self.done.iter().position(|answer| answer.id == id) {
                return Ok(self.done.swap_remove(at).code);
            }
            if let Some(reason) = self.ended {
                return Err(CallError::Disconnected(reason));
            }
            let socket = self.parts.socket.here().ok_or(APART)?;
            if is_last || !connect::readable(socket, deadline) {
                return Err(CallError::Timeout);
            }
            is_last = deadline.is_over();
            self.drain();
        }
    }

    pub(crate) fn send_packet(
        &mut self,
        packet: Packet,
        fds: &[BorrowedFd<'_>],
        deadline: Deadline,
    ) -> Result<(), CallError> {
        loop {
            let socket = self.parts.socket.here().ok_or(APART)?;
            match control::send(socket.as_fd(), packet, fds) {
                Ok(()) => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => {
                    // A peer that has shut its side down makes every wait end at once, so the end
                    // must be noticed here.
                    self.drain();
                    if let Some(reason) = self.ended {
                        return Err(CallError::Disconnected(reason));
                    }
                    let socket = self.parts.socket.here().ok_or(APART)?;
                    if deadline.is_over() || !wait_for(socket, PollFlags::OUT, deadline) {
                        return Err(CallError::Timeout);
                    }
                }
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    return Err(self.end(Reason::PeerDied));
                }
                Err(error) => return Err(CallError::System(error.raw_os_error())),
            }
        }
    }

    /// Returns true if a call with that number waits for its answer.
    fn is_awaited(&self, seq: Seq) -> bool {
        let awaited = self.busy & !self.given_up;
        (0..).zip(&self.calls).any(|(line, call)| awaited & 1u128 << line != 0 && *call == seq)
    }

    /// Takes the waiting control packets, but at most [`PACKETS_AT_ONCE`], in case a server sends
    /// them faster than they are taken.
    pub(super) fn drain(&mut self) {
        for _ in 0..PACKETS_AT_ONCE {
            match self.drain_one() {
                Some(Ok(())) => {}
                Some(Err(reason)) => {
                    self.end(reason);
                    return;
                }
                None => return,
            }
        }
    }

    fn drain_one(&mut self) -> Option<Result<(), Reason>> {
        let Some(socket) = self.parts.socket.here() else {
            return self.parts.socket.is_over().then_some(Err(Reason::PeerDied));
        };
        let (packet, fds) = match control::receive(socket.as_fd()) {
            Received::Packet { packet, fds, lost, .. } => {
                self.has_lost_fds |= lost;
                (packet, fds)
            }
            Received::Empty => return None,
            Received::Nonsense => return Some(Err(Reason::BadPacket)),
            Received::Ended => return Some(Err(Reason::PeerDied)),
        };
        Some(match packet.topic {
            Topic::Wake => Ok(()),
            Topic::Done if self.done.len() < DONE_MAX => {
                self.done.push(GrantAnswer { id: GrantId(packet.number), code: packet.a });
                Ok(())
            }
            // Descriptors of an answer that no caller waits for any more are dropped.
            Topic::Descriptors if !self.is_awaited(Seq(packet.number)) => Ok(()),
            Topic::Descriptors => {
                match self
                    .inbox
                    .put(Batch { seq: Seq(packet.number), fds, share: None }, BATCHES_MAX)
                {
                    true => Ok(()),
                    false => Err(Reason::DescriptorFlood),
                }
            }
            _ => Err(Reason::BadPacket),
        })
    }
}
