//! The kernel's connection tracking, as far as it concerns sessions: whether the kernel translates
//! a session's addresses, and leave for the session to come home.
//!
//! While a session is away its packets go past the kernel's stack, and past the tracking. Two
//! things follow. A session whose addresses or ports the kernel translates (NAT) would send
//! untranslated ones on the wire: it stays in the kernel. And of a session that comes home the
//! tracking knows only old windows: a firewall that drops invalid packets would drop all of its
//! packets. So before a session leaves, the tracking is told to accept any sequence number of that
//! connection (`IP_CT_TCP_FLAG_BE_LIBERAL`), as `nf_conntrack_tcp_be_liberal` would for all
//! connections. A kernel without tracking, or without its netlink, has nothing to say. Not here:
//! rules of packet filters (`firewalls`). nfnetlink's formats:
//! `linux/netfilter/nfnetlink_conntrack.h`.

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use sojourn_filter::Key;
use sojourn_wire::netlink::{RequestSeq, find};
use std::net::{IpAddr, SocketAddr};

/// `IPCTNL_MSG_CT_NEW`, which also changes a connection, and `IPCTNL_MSG_CT_GET`, of the subsystem
/// `NFNL_SUBSYS_CTNETLINK`.
const CHANGE: u16 = 1 << 8;
const GET: u16 = 1 << 8 | 1;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLMSG_ERROR: u16 = 2;
/// Bytes of a netlink header, and of that with nfnetlink's.
const HEADER: usize = 16;
const HEADERS: usize = HEADER + 4;
const NESTED: u16 = 1 << 15;

/// `CTA_*` of a connection: the tuple of the side that began it, which the kernel looks up in both
/// directions; the status; the protocol's own attributes.
const TUPLE: u16 = 1;
const STATUS: u16 = 3;
const PROTOINFO: u16 = 4;
/// Attributes within a tuple.
const TUPLE_IP: u16 = 1;
const TUPLE_PROTO: u16 = 2;
/// `IPS_SRC_NAT`, `IPS_DST_NAT`.
const TRANSLATED: u32 = 1 << 4 | 1 << 5;
/// `IPS_ASSURED`: packets have gone both ways.
const ASSURED: u32 = 1 << 2;
/// `CTA_PROTOINFO_TCP`, and within it the flags of both directions: a byte of flags, and a mask of
/// those that count.
const PROTOINFO_TCP: u16 = 1;
const FLAGS: [u16; 2] = [4, 5];
const LIBERAL: [u8; 2] = [8, 8];

const ANSWER_MAX: usize = 8 * 1024;

/// The tracking's knowledge of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The kernel translates the connection's addresses or ports.
    pub(crate) is_translated: bool,
    /// The connection's next packets are in the state `established`.
    pub(crate) is_established: bool,
}

/// The tracking of the network namespace in which this was made.
#[derive(Debug)]
pub(crate) struct Conntrack {
    socket: OwnedFd,
    sequence: RequestSeq,
}

impl Conntrack {
    /// Connects to the tracking; `None` if this kernel has none that can be asked.
    pub(crate) fn new() -> Option<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket =
            rustix::net::socket_with(family, kind, flags, Some(netlink::NETFILTER)).ok()?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0)).ok()?;
        Some(Self { socket, sequence: RequestSeq::default() })
    }

    /// Asks for the standing of a session; an untracked one has the default.
    pub(crate) fn standing(&mut self, key: &Key) -> Standing {
        let Some(remote) = key.remote() else { return Standing::default() };
        let question = Message::new(GET, key.local().ip()).tuple(key.local(), remote);
        let status = self.ask(question).map_or(0, |answer| status(&answer));
        Standing { is_translated: status & TRANSLATED != 0, is_established: status & ASSURED != 0 }
    }

    /// Has the tracking accept any sequence number of that session from now on.
    pub(crate) fn accept_any_sequence(&mut self, key: &Key) {
        let Some(remote) = key.remote() else { return };
        let change = Message::new(CHANGE, key.local().ip()).tuple(key.local(), remote);
        let change = change.nested(PROTOINFO, |info| {
            info.nested(PROTOINFO_TCP, |tcp| {
                FLAGS.into_iter().fold(tcp, |tcp, direction| tcp.put(direction, &LIBERAL))
            })
        });
        // As a rule there is no such connection, because no rule asks for tracking.
        let _ = self.ask(change);
    }

    /// Sends a message, and gives the attributes of the kernel's answer.
    fn ask(&mut self, message: Message) -> Result<Vec<u8>, Errno> {
        self.sequence = self.sequence.next();
        let bytes = message.finish(self.sequence);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        let mut answer = vec![0; ANSWER_MAX];
        loop {
            // The kernel answers before `send` returns (`netlink_unicast_kernel`), so this does not
            // block.
            let (len, _) = rustix::net::recv(&self.socket, &mut answer[..], RecvFlags::empty())?;
            match read(answer.get(..len).unwrap_or_default()) {
                Some(Answer { sequence, result }) if sequence == self.sequence => {
                    return result.map(<[u8]>::to_vec);
                }
                _ => {}
            }
        }
    }
}

/// A message being written. All numbers but those of netlink's own headers are in network byte
/// order.
struct Message(Vec<u8>);

impl Message {
    fn new(kind: u16, of: IpAddr) -> Self {
        let mut bytes = vec![0; HEADERS];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        bytes[HEADER] = if of.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 } as u8;
        Self(bytes)
    }

    fn put(mut self, name: u16, value: &[u8]) -> Self {
        self.0.extend((4 + value.len() as u16).to_ne_bytes());
        self.0.extend(name.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn nested(mut self, name: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let at = self.0.len();
        self.0.extend([0; 4]);
        let mut message = fill(self);
        let len = (message.0.len() - at) as u16;
        message.0[at..at + 2].copy_from_slice(&len.to_ne_bytes());
        message.0[at + 2..at + 4].copy_from_slice(&(name | NESTED).to_ne_bytes());
        message
    }

    /// Adds the tuple of the connection over which this host sends from `local` to `remote`,
    /// whichever side began it.
    fn tuple(self, local: SocketAddr, remote: SocketAddr) -> Self {
        let first = if local.is_ipv4() { 1 } else { 3 };
        self.nested(TUPLE, |tuple| {
            let tuple = tuple.nested(TUPLE_IP, |ips| {
                let ends = [(first, local.ip()), (first + 1, remote.ip())];
                ends.into_iter().fold(ips, |ips, (name, ip)| match ip {
                    IpAddr::V4(ip) => ips.put(name, &ip.octets()),
                    IpAddr::V6(ip) => ips.put(name, &ip.octets()),
                })
            });
            tuple.nested(TUPLE_PROTO, |proto| {
                let proto = proto.put(1, &[libc::IPPROTO_TCP as u8]);
                let proto = proto.put(2, &local.port().to_be_bytes());
                proto.put(3, &remote.port().to_be_bytes())
            })
        })
    }

    fn finish(mut self, sequence: RequestSeq) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.0.to_ne_bytes());
        self.0
    }
}

/// An answer of the kernel.
pub(crate) struct Answer<'a> {
    /// The number of the message that it answers.
    pub(crate) sequence: RequestSeq,
    /// Its attributes.
    pub(crate) result: Result<&'a [u8], Errno>,
}

/// Parses an answer. `None` if it is malformed.
pub(crate) fn read(answer: &[u8]) -> Option<Answer<'_>> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    let sequence = RequestSeq(word(8)?);
    if kind != NLMSG_ERROR {
        let end = (word(0)? as usize).min(answer.len());
        return Some(Answer { sequence, result: Ok(answer.get(HEADERS..end)?) });
    }
    let code = word(HEADER)?.cast_signed().wrapping_neg();
    // Code 0 is the acknowledgement (netlink(7), `NLMSG_ERROR`).
    Some(Answer { sequence, result: if code == 0 { Ok(&[]) } else { Err(errno(code)) } })
}

/// Returns the error of that number; `EBADMSG` for a number that is no error.
fn errno(code: i32) -> Errno {
    if (1..4096).contains(&code) { Errno::from_raw_os_error(code) } else { Errno::BADMSG }
}

/// Finds the status among a connection's attributes; 0 if there is none.
pub(crate) fn status(attributes: &[u8]) -> u32 {
    let value = find(attributes, STATUS).and_then(|value| value.first_chunk::<4>());
    value.map_or(0, |value| u32::from_be_bytes(*value))
}
