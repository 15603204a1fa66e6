//! The parts of a session that the next server may need: its numbers, which are the name under
//! which a keeper holds it, and its descriptors.
//!
//! Not here: the keeper (`keeping`), and the adoption of what it holds (`adopt`).

use crate::metastate::Mac;
use rustix::fd::BorrowedFd;
use sojourn_filter::OwnerId;
use sojourn_ipc::rt::Descriptor;
use sojourn_pump::LinkId;
use sojourn_session::{DelegationToken, InboxNumber, InboxSlot, ProcessId, StreamNumber};
use sojourn_wire::SocketCookie;
use std::fmt;
use std::str::FromStr;

/// A session's numbers, which the keeper has as the name of its descriptors (`FDNAME` in
/// sd_pid_notify_with_fds(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FdName {
    pub(crate) token: DelegationToken,
    pub(crate) stream: StreamNumber,
    /// The carrier's side of the stream.
    pub(crate) side: u8,
    pub(crate) ring_bytes: [u32; 2],
    pub(crate) peer: InboxSlot,
    pub(crate) pid: ProcessId,
    pub(crate) interface: u32,
    pub(crate) owner: OwnerId,
    pub(crate) link: LinkId,
    /// The link address from which a port's frames are sent.
    pub(crate) port: Option<Mac>,
    /// The rest, of a UDP socket's session.
    pub(crate) datagrams: Option<OfDatagrams>,
}

/// The facts about a UDP socket that the next server needs, as only the program has the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfDatagrams {
    pub(crate) cookie: SocketCookie,
    /// The socket gets datagrams of both families.
    pub(crate) is_both: bool,
    /// The inbox and slot by which the library asks for the carrier's attention.
    pub(crate) own: InboxSlot,
}

const SESSION: &str = "session";
impl fmt::Display for FdName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            token: DelegationToken(token), stream, side, ring_bytes: [ring0, ring1], ..
        } = self;
        let Self { peer, pid, interface, owner: OwnerId(owner), link: LinkId(link), .. } = self;
        let InboxSlot { inbox: InboxNumber(peer_inbox), slot: peer_slot } = peer;
        // All zeroes stand for no port: no interface has this address.
        let [a, b, c, d, e, g] = self.port.unwrap_or_default();
        let port = u64::from_be_bytes([0, 0, a, b, c, d, e, g]);
        write!(f, "{SESSION} {token} {stream} {side} {ring0} {ring1} {peer_inbox} {peer_slot} ")?;
        write!(f, "{pid} {interface} {owner} {link} {port}")?;
        let Some(OfDatagrams { cookie, is_both, own }) = self.datagrams else { return Ok(()) };
        let InboxSlot { inbox: InboxNumber(own_inbox), slot: own_slot } = own;
        write!(f, " {} {} {own_inbox} {own_slot}", cookie.0, u8::from(is_both))
    }
}

impl FromStr for FdName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        if words.next() != Some(SESSION) {
            return Err(());
        }
        let mut next = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(());
        let narrow = |number: u64| u32::try_from(number).map_err(drop);
        let mut fd_name = Self {
            token: DelegationToken(next()?),
            stream: StreamNumber(next()?),
            side: u8::try_from(next()?).map_err(drop)?,
            ring_bytes: [narrow(next()?)?, narrow(next()?)?],
            peer: InboxSlot { inbox: InboxNumber(next()?), slot: narrow(next()?)? },
            pid: ProcessId(narrow(next()?)?),
            interface: narrow(next()?)?,
            owner: OwnerId(narrow(next()?)?),
            link: LinkId(next()?),
            port: mac_of(next()?)?,
            datagrams: None,
        };
        if let Ok(cookie) = next() {
            let is_both = next()? != 0;
            let own = InboxSlot { inbox: InboxNumber(next()?), slot: narrow(next()?)? };
            let cookie = SocketCookie(cookie);
            fd_name.datagrams = Some(OfDatagrams { cookie, is_both, own });
        }
        if words.next().is_none() && fd_name.side < 2 { Ok(fd_name) } else { Err(()) }
    }
}

/// Decodes a link address from its number; 0 is none.
fn mac_of(number: u64) -> Result<Option<Mac>, ()> {
    let [0, 0, mac @ ..] = number.to_be_bytes() else { return Err(()) };
    Ok((number != 0).then_some(mac))
}

/// The descriptors that the next server may need of a session, beside its socket and its record.
pub(crate) struct Kept {
    pub(crate) fd_name: FdName,
    pub(crate) region: Descriptor,
    /// Memory, ready event, attention event: of the program's inbox, and of the carrier's if it is
    /// a UDP socket's session.
    pub(crate) inbox: [Descriptor; 3],
    pub(crate) own: Option<[Descriptor; 3]>,
}

impl Kept {
    /// Lists the descriptors that a keeper holds of a session, in this order: socket (TCP), record,
    /// region, the program's inbox, the carrier's inbox (UDP).
    pub(crate) fn fds<'k>(
        &'k self,
        socket: Option<BorrowedFd<'k>>,
        record: BorrowedFd<'k>,
    ) -> Option<Vec<BorrowedFd<'k>>> {
        let region = self.region.as_fd()?;
        let inboxes = self.inbox.iter().chain(self.own.iter().flatten());
        let inboxes = inboxes.map(|fd| fd.as_fd()).collect::<Option<Vec<_>>>()?;
        Some(socket.into_iter().chain([record, region]).chain(inboxes).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_come_back() {
        let fd_name = FdName {
            token: DelegationToken(u64::MAX),
            stream: StreamNumber(7),
            side: 1,
            ring_bytes: [4096, 8192],
            peer: InboxSlot { inbox: InboxNumber(9), slot: 3 },
            pid: ProcessId(1234),
            interface: 2,
            owner: OwnerId(5),
            link: LinkId(11),
            port: Some([2, 0, 0, 0, 0, 7]),
            datagrams: None,
        };
        let text = fd_name.to_string();
        assert_eq!(text.parse(), Ok(fd_name));
        let fd_name = FdName { port: None, ..fd_name };
        assert_eq!(fd_name.to_string().parse(), Ok(fd_name));
        assert_eq!(format!("{text} 1").parse::<FdName>(), Err(()));
        let own = InboxSlot { inbox: InboxNumber(u64::MAX), slot: 8 };
        let of_datagrams = OfDatagrams { cookie: SocketCookie(u64::MAX), is_both: true, own };
        let fd_name = FdName { datagrams: Some(of_datagrams), ..fd_name };
        let udp = fd_name.to_string();
        assert_eq!(udp.parse(), Ok(fd_name));
        assert_eq!(format!("{udp} 1").parse::<FdName>(), Err(()));
        assert_eq!(text.replace(" 1 ", " 2 ").parse::<FdName>(), Err(()));
        assert_eq!("link 3 sojourn_link".parse::<FdName>(), Err(()));
    }
}
