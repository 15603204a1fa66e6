//! The interface `carry`, and what the server and its carrier tell each other. Not here: carrying
//! (`sojourn_carrier`), the carrier's place (`carried`).

use super::ends::wish_of;
use super::looker::Looker;
use super::{Sojournd, State, fault};
use crate::identity::{self, Diag};
use crate::memory::Memory;
use crate::registry::{CARRIER, CallError, Carried, Identity, Who, Wish};
use rustix::fd::{BorrowedFd, OwnedFd};
use sojourn_carrier::{Adopted, Command, CommandSender};
use sojourn_ipc::rt::{Caller, Descriptor, Fault};
use sojourn_session::{CarryServer, FAULT_ARGUMENT, FAULT_NOT_ALLOWED, OfferT, ReasonT};
use std::sync::{Mutex, MutexGuard, PoisonError};

impl Sojournd {
    /// The carrier says hello.
    pub(crate) fn introduce_carrier(&self, who: Who) -> Result<(), CallError> {
        self.lock().registry.hello(CARRIER, who)
    }

    /// From now on sessions with other hosts are the carrier's, which hears commands here.
    pub(crate) fn set_commands(&self, commands: CommandSender) {
        let _ = self.commands.set(Mutex::new(commands));
    }

    /// There is going to be a carrier: sockets whose peers are on other hosts have a place.
    pub(crate) fn expect_carried(&self) {
        if let Looker::Apart { proxies, .. } = &self.looker {
            proxies.carry();
        }
        self.carriers_diag().carries();
    }

    /// Held by the carrier's thread alone: what it has may be a program's, and who asks what that
    /// is may wait.
    fn carriers_diag(&self) -> MutexGuard<'_, Diag> {
        self.carriers_diag.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The carrier has its side of a stream from an earlier server.
    pub(crate) fn adopt_carried(
        &self,
        local: u64,
        what: Adopted<'_>,
        stream: u64,
        side: u8,
        region: Descriptor,
    ) {
        let (identity, inode) = match what {
            Adopted::Socket(socket) => match identity::look(socket, &mut self.carriers_diag()) {
                Ok(seen) => (seen, identity::inode(socket)),
                // One that the kernel has ended meanwhile is not listed.
                Err(_) => return,
            },
            Adopted::Datagrams { cookie, local, remote } => {
                (identity::of_datagrams(cookie, local, remote), 0)
            }
        };
        let wish = Wish { local, set: 0, ring_bytes: 0, is_sole: true, inode };
        let now_ms = self.now_ms();
        let registry = &mut self.lock().registry;
        if registry.adopt(CARRIER, identity.mirrored(), wish, stream, side, now_ms) == Ok(true) {
            registry.set_region(stream, region);
        }
    }

    /// Has the carrier bring its sessions home. It takes no more.
    pub(crate) fn leave_all(&self) {
        self.command(Command::AllHome);
    }

    /// Whether the carrier has sessions.
    pub(crate) fn carries(&self) -> bool {
        let commands = self.commands.get();
        commands.is_some_and(|commands| {
            commands.lock().unwrap_or_else(PoisonError::into_inner).count() > 0
        })
    }

    /// The carrier offers the other end of what a program has offered.
    pub(crate) fn offer_carried(&self, end: BorrowedFd<'_>, what: &OfferT) {
        let seen = identity::look(end, &mut self.carriers_diag());
        let seen = seen.map(Identity::mirrored);
        let wish = wish_of(what, identity::inode(end));
        let mut state = self.lock();
        let State { registry, notifier } = &mut *state;
        // It has said hello, and its numbers are its own.
        let _ = registry.offer(CARRIER, seen, wish, self.now_ms(), &mut Memory);
        Self::ring(registry, notifier);
    }

    /// The carrier does not want what a program has offered.
    pub(crate) fn decline_carried(&self, end: BorrowedFd<'_>, reason: ReasonT) {
        let seen = identity::look(end, &mut self.carriers_diag());
        let mut state = self.lock();
        let State { registry, notifier } = &mut *state;
        if let Ok(seen) = seen {
            registry.decline_carried(&seen.mirrored(), reason, self.now_ms());
        }
        Self::ring(registry, notifier);
    }

    /// Hands the socket of an offer to the carrier, if its peer is on another host.
    pub(super) fn command_carry(&self, kept: Option<OwnedFd>) {
        if let Some(socket) = kept {
            self.command(Command::Socket(socket));
        }
    }

    /// Whether the process, as a join names it, has shown that it may have packets.
    pub(crate) fn has_packets(&self, process: &Descriptor) -> bool {
        self.lock().registry.has_packets(process)
    }

    /// Gives the carrier a command. Whether there is one.
    pub(super) fn command(&self, command: Command) -> bool {
        let Some(commands) = self.commands.get() else { return false };
        commands.lock().unwrap_or_else(PoisonError::into_inner).send(command);
        true
    }

    /// The same for what a program gives. Without a carrier it has no reason to.
    fn command_given(&self, command: Command) -> Result<(), Fault> {
        if self.command(command) { Ok(()) } else { Err(fault(FAULT_NOT_ALLOWED)) }
    }

    /// The carrier has something to say to the library at the other side of its session.
    pub(crate) fn tell_carried(&self, local: u64, what: Carried) {
        let mut state = self.lock();
        let State { registry, notifier } = &mut *state;
        registry.tell_carried(local, what, self.now_ms());
        Self::ring(registry, notifier);
    }
}

impl CarryServer for Sojournd {
    fn give_back(
        &self,
        _: &Caller,
        token: u64,
        has_ended: bool,
        record: Option<OwnedFd>,
    ) -> Result<(), Fault> {
        let record = record.ok_or(fault(FAULT_ARGUMENT))?;
        self.command_given(Command::Back { token, has_ended, record })
    }

    fn give_late(&self, _: &Caller, token: u64, packets: Option<OwnedFd>) -> Result<(), Fault> {
        let packets = packets.ok_or(fault(FAULT_ARGUMENT))?;
        self.command_given(Command::InTransit { token, packets })
    }
}
