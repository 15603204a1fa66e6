//! The interface `carry`, and the calls between the server and its carrier.
//!
//! Not here: carrying (`sojourn_carrier`), the carrier's place (`carried`).

use super::ends::offer_arguments;
use super::{Sojournd, State, fault};
use crate::concerned::Texts;
use crate::inspected::Inspected;
use crate::memory::Memory;
use crate::registry::{
    CARRIER, CallError, CarrierMessage, Identity, OfferArguments, ProcessInfo, StreamSide,
};
use rustix::fd::OwnedFd;
use rustix::process::Uid;
use sojourn_carrier::{Command, CommandSender, Offered};
use sojourn_ipc::ClientId;
use sojourn_ipc::rt::{Caller, Descriptor, Fault};
use sojourn_ipc::shares::Share;
use sojourn_session::{
    CarryServer, DelegationToken, FAULT_ARGUMENT, FAULT_NOT_ALLOWED, FAULT_RESOURCES, HomeT,
    LocalNumber, OfferT, ReasonT, StreamNumber,
};
use std::sync::{Mutex, PoisonError};

/// A program, as the carrier's process knows it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NumberedProgram {
    /// A number that no other program has; 0: none.
    pub(crate) number: u64,
    /// It has shown that it may have packets.
    pub(crate) has_packets: bool,
}

/// A stream of an earlier server's, of which the carrier has a side.
pub(crate) struct AdoptedStream {
    pub(crate) number: StreamNumber,
    /// The carrier's side.
    pub(crate) side: u8,
    /// The stream's memory.
    pub(crate) region: Descriptor,
}

impl AdoptedStream {
    fn part(&self) -> StreamSide {
        StreamSide { stream: self.number, side: self.side }
    }
}

impl Sojournd {
    /// Says hello for the carrier.
    pub(crate) fn introduce_carrier(&self, info: ProcessInfo) -> Result<(), CallError> {
        self.lock().registry.hello(CARRIER, info)
    }

    /// Sets the way to the carrier: from now on sessions with other hosts are the carrier's.
    pub(crate) fn set_commands(&self, commands: CommandSender) {
        let _ = self.commands.set(Mutex::new(commands));
    }

    /// Adopts the carrier's side of a stream, which the carrier has from an earlier server.
    pub(crate) fn adopt_carried(
        &self,
        local: LocalNumber,
        inspected: Inspected,
        stream: AdoptedStream,
    ) {
        let inode = inspected.inode;
        // The kernel may have ended the connection meanwhile, and then lists it no more.
        let Ok(seen) = mirrored(inspected) else { return };
        let arguments = OfferArguments {
            local,
            set: 0,
            ring_bytes: 0,
            is_sole: true,
            home: HomeT::Library,
            inode,
        };
        let now_ms = self.now_ms();
        let registry = &mut self.lock().registry;
        if registry.adopt(CARRIER, seen, arguments, stream.part(), now_ms) == Ok(true) {
            registry.set_region(stream.number, stream.region);
        }
    }

    /// Has the carrier bring its sessions home and take no more.
    pub(crate) fn leave_all(&self) {
        self.command(Command::AllHome);
    }

    /// Returns true if the carrier has sessions.
    pub(crate) fn carries(&self) -> bool {
        let commands = self.commands.get();
        commands.is_some_and(|commands| {
            commands.lock().unwrap_or_else(PoisonError::into_inner).count() > 0
        })
    }

    /// Offers, for the carrier, the other end of an end that a program has offered.
    pub(crate) fn offer_carried(&self, inspected: Inspected, what: &OfferT) {
        let arguments = offer_arguments(what, inspected.inode);
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        // An error is a number of the carrier's that is in use: then this offer is none.
        let _ = registry.offer(CARRIER, mirrored(inspected), arguments, self.now_ms(), &mut Memory);
        Self::ring(registry, notifier);
    }

    /// Refuses, for the carrier, an end that a program has offered.
    pub(crate) fn decline_carried(&self, inspected: Inspected, reason: ReasonT) {
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        if let Ok(seen) = mirrored(inspected) {
            registry.decline_carried(&seen, reason, self.now_ms());
        }
        Self::ring(registry, notifier);
    }

    /// Notes, for the carrier, which rule of the host keeps a session in the kernel.
    pub(crate) fn concerned_carried(&self, texts: Texts) {
        self.lock().concerned.note(texts);
    }

    /// Hands the socket of an offer to the carrier, if its peer is on another host.
    pub(super) fn command_carry(&self, kept: Option<OwnedFd>, share: Share) {
        if let Some(socket) = kept {
            let user = share.user();
            self.send(Command::Socket(Offered { socket, user }), Some(share));
        }
    }

    /// Counts one more command of a user's for the carrier. `None` if there is no carrier.
    ///
    /// # Errors
    /// [`ReasonT::Quota`]: the user has too many that wait for it.
    pub(super) fn command_share(&self, user: Uid) -> Result<Option<Share>, ReasonT> {
        let Some(commands) = self.commands.get() else { return Ok(None) };
        let commands = commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.share(user).map(Some).ok_or(ReasonT::Quota)
    }

    /// Returns the program at the other side of a join, by the process that the join names.
    pub(crate) fn program(&self, process: &Descriptor) -> NumberedProgram {
        let found = self.lock().registry.program(process);
        let number = |id: ClientId| u64::from(id.generation) << 32 | u64::from(id.index);
        found.map_or(NumberedProgram::default(), |found| NumberedProgram {
            number: number(found.client),
            has_packets: found.has_packets,
        })
    }

    /// Gives the carrier a command of the server's own, if there is a carrier.
    pub(super) fn command(&self, command: Command) {
        self.send(command, None);
    }

    fn send(&self, command: Command, share: Option<Share>) {
        if let Some(commands) = self.commands.get() {
            commands.lock().unwrap_or_else(PoisonError::into_inner).send(command, share);
        }
    }

    /// Gives the carrier a command of a program. Without a carrier no program has a reason for one.
    ///
    /// # Errors
    /// [`FAULT_NOT_ALLOWED`]; [`FAULT_RESOURCES`]: the user has too many that wait.
    pub(super) fn command_of(&self, caller: &Caller, command: Command) -> Result<(), Fault> {
        let user = self.lock().registry.info(caller.client).map(|info| info.uid);
        let user = user.unwrap_or(Uid::from_raw_unchecked(caller.credentials.uid));
        match self.command_share(user) {
            Ok(Some(share)) => self.send(command, Some(share)),
            Ok(None) => return Err(fault(FAULT_NOT_ALLOWED)),
            Err(_) => return Err(fault(FAULT_RESOURCES)),
        }
        Ok(())
    }

    /// Sends a message of the carrier to the library at the other side of its session.
    pub(crate) fn tell_carried(&self, local: LocalNumber, what: CarrierMessage) {
        let mut state = self.lock();
        let State { registry, notifier, .. } = &mut *state;
        registry.tell_carried(local, what, self.now_ms());
        Self::ring(registry, notifier);
    }
}

/// Returns the carrier's end: the other one of the end that was seen. The carrier has no ends but
/// those whose other ends are programs' here, with peers on other hosts, whatever it says.
fn mirrored(inspected: Inspected) -> Result<Identity, ReasonT> {
    let seen = inspected.seen?;
    if seen.key.is_carried() { Ok(seen.mirrored()) } else { Err(ReasonT::Kind) }
}

impl CarryServer for Sojournd {
    fn give_back(
        &self,
        caller: &Caller,
        token: u64,
        has_ended: bool,
        record: Option<OwnedFd>,
    ) -> Result<(), Fault> {
        let record = record.ok_or(fault(FAULT_ARGUMENT))?;
        let back = Command::Back { token: DelegationToken(token), has_ended, record };
        self.command_of(caller, back)
    }

    fn give_in_transit(
        &self,
        caller: &Caller,
        token: u64,
        packets: Option<OwnedFd>,
    ) -> Result<(), Fault> {
        let packets = packets.ok_or(fault(FAULT_ARGUMENT))?;
        self.command_of(caller, Command::InTransit { token: DelegationToken(token), packets })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::holders::Object;
    use crate::key::Key;
    use sojourn_carrier::{CommandChannel, Commands, command_channel};
    use sojourn_ipc::Credentials;
    use sojourn_session::{Inode, KindT};
    use sojourn_wire::SocketCookie;

    fn seen(key: Key) -> Inspected {
        let object = Object::Socket { inode: Inode(9) };
        let [from, to] = ["one", "other"].map(str::to_owned);
        let identity =
            Identity { key, kind: KindT::Tcp, from, to, holds: [0; 2], object, pin: None };
        Inspected::known(Ok(identity))
    }

    /// The carrier may stand still while a program holds the lock of its socket; what others bring
    /// meanwhile are descriptors of the server's.
    #[test]
    fn commands_that_wait_for_the_carrier_are_shared_by_the_users() {
        let server = Sojournd::new().unwrap();
        let CommandChannel { sender, mut receiver } = command_channel().unwrap();
        server.set_commands(sender);
        let by = |uid| {
            let file = std::fs::File::open("/dev/null").unwrap();
            let credentials = Credentials { uid, ..Credentials::default() };
            let caller = Caller { client: CARRIER, badge: sojourn_ipc::Badge(0), credentials };
            server.give_back(&caller, 1, false, Some(file.into()))
        };
        // Commands wait that have an eighth of the descriptors.
        let most = 20_000;
        let given = (0..most).take_while(|_| by(7).is_ok()).count();
        assert!(given < most);
        assert_eq!(by(7), Err(fault(FAULT_RESOURCES)));
        assert_eq!(by(8), Ok(()), "others go on");
        assert!(matches!(receiver.next(), Some(Command::Back { .. })));
        assert_eq!(by(7), Ok(()), "as soon as the carrier goes on");
    }

    #[test]
    fn the_carrier_has_ends_with_peers_elsewhere_only_whatever_it_says() {
        let (five, none) = (SocketCookie(5), SocketCookie::NONE);
        let own = mirrored(seen(Key::Socket { own: five, peer: none })).unwrap();
        assert_eq!(own.key, Key::Socket { own: none, peer: five });
        assert_eq!((own.from.as_str(), own.to.as_str()), ("other", "one"));
        for key in [
            Key::Socket { own: five, peer: SocketCookie(7) },
            Key::Pipe { object: 3, writes: true },
        ] {
            assert_eq!(mirrored(seen(key)).unwrap_err(), ReasonT::Kind);
        }
        let refused = mirrored(Inspected::refused(ReasonT::State));
        assert_eq!(refused.unwrap_err(), ReasonT::State);
    }
}
