//! Questions to the kernel over rtnetlink(7), with one answer each, and notices of changes.
//!
//! Not here: the meaning of the answers for a session (`metastate`).

use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use sojourn_wire::netlink::RequestSeq;

/// `RTMGRP_*` and `RTNLGRP_IPV6_RULE` (`linux/rtnetlink.h`): links, neighbours, addresses, routes
/// and rules of both families.
const CHANGES: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;
/// The longest answer (bytes), longer than any that the questions here have.
const ANSWER_MAX: usize = 32 * 1024;

fn socket(groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = AddressFamily::NETLINK;
    // `NETLINK_ROUTE` is 0, which is no protocol given.
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Asks one question at a time.
#[derive(Debug)]
pub(crate) struct Asker {
    socket: OwnedFd,
    sequence: RequestSeq,
    buffer: Vec<u8>,
}

impl Asker {
    /// # Errors
    /// The kernel's.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            socket: socket(0)?,
            sequence: RequestSeq::default(),
            buffer: vec![0; ANSWER_MAX],
        })
    }

    /// Asks about one object, and gives the kernel's answer.
    ///
    /// # Errors
    /// The kernel's; `EBADMSG` for a malformed answer.
    pub(crate) fn ask(
        &mut self,
        question: RouteNetlinkMessage,
    ) -> Result<RouteNetlinkMessage, Errno> {
        self.sequence = self.sequence.next();
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST;
        header.sequence_number = self.sequence.0;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        rustix::net::send(&self.socket, &bytes, SendFlags::empty())?;
        loop {
            // The kernel answers before `send` returns (`netlink_unicast_kernel`), so this does not
            // block.
            let (len, _) =
                rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
            let answer = self.buffer.get(..len).ok_or(Errno::BADMSG)?;
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(answer)
                .map_err(|_| Errno::BADMSG)?;
            if answer.header.sequence_number != self.sequence.0 {
                continue;
            }
            return match answer.payload {
                NetlinkPayload::InnerMessage(answer) => Ok(answer),
                NetlinkPayload::Error(error) => {
                    let code = error.code.map_or(0, |code| code.get());
                    let code = code.wrapping_neg();
                    let is_one = (1..4096).contains(&code);
                    Err(if is_one { Errno::from_raw_os_error(code) } else { Errno::BADMSG })
                }
                _ => Err(Errno::BADMSG),
            };
        }
    }
}

/// Becomes readable when a link, neighbour, address, route or rule has changed.
#[derive(Debug)]
pub(crate) struct Changes(OwnedFd);

impl Changes {
    /// # Errors
    /// The kernel's.
    pub(crate) fn new() -> Result<Self, Errno> {
        socket(CHANGES).map(Self)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Returns true if anything has changed since the last call. The caller asks about everything
    /// anew, because notices get lost (netlink(7), ENOBUFS).
    pub(crate) fn take(&self) -> bool {
        let mut any = false;
        let mut ignored = [0; 512];
        loop {
            match rustix::net::recv(&self.0, &mut ignored[..], RecvFlags::TRUNC) {
                Ok(_) | Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => return any,
            }
        }
    }
}
