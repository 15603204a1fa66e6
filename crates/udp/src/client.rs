//! The client: sockets that are served by `sojourn-udpd`.
//!
//! The stubs do what there is to do, but for one thing: a receiver that gives up at its deadline
//! must not lose the datagram that comes a moment later. So a call of `recvfrom` that was not
//! answered in time stays outstanding, and the next receiver waits for that one's answer.

use crate::stubs::client::{DATA_MAX, UDP_ID, UdpClient, udp_wire};
use core::net::SocketAddrV4;
use sojourn_ipc::rt::{self, CallError};
use sojourn_ipc::{Address, ConnectError, ConnectOptions, Connection, Deadline, Pending, Wait};

/// Number of `recvfrom` in the interface.
const RECVFROM: u16 = 2;

/// Why a socket did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no server, or it does not take us.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server could not be asked, or is gone. [`CallError::Timeout`]: nothing came in time.
    #[error("the UDP server: {0}")]
    Call(#[from] CallError),
    /// Its answer, or what something sent earlier ran into.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// Longer than a datagram can be.
    #[error("a datagram has at most {DATA_MAX} bytes")]
    TooLong,
}

/// What [`Socket::recv_from`] received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Who sent it.
    pub from: SocketAddrV4,
    /// Bytes of the datagram; those that the buffer had no room for are lost.
    pub len: usize,
}

/// A bound socket. One thread uses it at a time.
#[derive(Debug)]
pub struct Socket {
    udp: UdpClient,
    /// Number of the interface's first operation.
    base: u16,
    local: SocketAddrV4,
    /// The call that waits for the next datagram.
    receiving: Option<Pending>,
    /// What it brought.
    data: Vec<u8>,
}

impl Socket {
    /// A socket of the server at `server`, bound to `local`: address 0.0.0.0 is all of the host's,
    /// port 0 a free one. It waits as `wait` says.
    ///
    /// # Errors
    /// [`Error`].
    pub fn bind(server: Address, local: SocketAddrV4, wait: Wait) -> Result<Self, Error> {
        let options = ConnectOptions { wait, ..ConnectOptions::default() };
        let mut connection = Connection::connect(server, &options)?;
        let base = rt::stub::bind(&mut connection, &UDP_ID, Deadline::after(options.timeout))?;
        let mut udp = UdpClient::bind(connection)?;
        let out = udp.bind_op(&local.into())?;
        accept(out.ret)?;
        let data = Vec::with_capacity(DATA_MAX as usize);
        Ok(Self { udp, base, local: (&out.bound).into(), receiving: None, data })
    }

    /// Where it is bound.
    pub fn local_addr(&self) -> SocketAddrV4 {
        self.local
    }

    /// Sends a datagram. That it was handed over says as little of its arrival as ever: what it ran
    /// into on this host the next [`Socket::recv_from`] tells, and that the server is gone at the
    /// latest a few datagrams on.
    ///
    /// # Errors
    /// [`Error`].
    pub fn send_to(&mut self, data: &[u8], to: SocketAddrV4) -> Result<(), Error> {
        if data.len() > DATA_MAX as usize {
            return Err(Error::TooLong);
        }
        // Nobody waits for an answer here, so nothing else would tell.
        if let Some(reason) = self.udp.transport().ended() {
            return Err(CallError::Disconnected(reason).into());
        }
        Ok(self.udp.sendto(&to.into(), data)?)
    }

    /// Waits for a datagram and copies it to `buffer`.
    ///
    /// # Errors
    /// [`Error`].
    pub fn recv_from(&mut self, buffer: &mut [u8], deadline: Deadline) -> Result<Received, Error> {
        let pending = match self.receiving.take() {
            Some(pending) => pending,
            None => self.submit(deadline)?,
        };
        let connection = self.udp.transport();
        if let Err(error) = connection.await_answer(&pending, deadline) {
            if error == CallError::Timeout {
                self.receiving = Some(pending);
            }
            return Err(error.into());
        }
        let mut reply = connection.finish(pending, Deadline::NEVER)?;
        let size = i128::from(DATA_MAX);
        let out = udp_wire::get_recvfrom_reply(reply.decoder(), size, &mut self.data)
            .map_err(CallError::from)?;
        accept(out.ret)?;
        let len = self.data.len().min(buffer.len());
        buffer[..len].copy_from_slice(&self.data[..len]);
        Ok(Received { from: (&out.sender).into(), len: out.whole as usize })
    }

    /// Asks for the next datagram, whatever its length.
    fn submit(&mut self, deadline: Deadline) -> Result<Pending, Error> {
        let size = udp_wire::recvfrom_request_size(rt::Forms::machine(), DATA_MAX);
        let size = size.map_err(CallError::from)?;
        let mut draft = self.udp.transport().start(self.base + RECVFROM, size.body_len);
        let mut writer = draft.encoder();
        writer.set_forms(size.forms);
        udp_wire::put_recvfrom_request(&mut writer, DATA_MAX).map_err(CallError::from)?;
        Ok(draft.submit(deadline)?)
    }
}

fn accept(status: u32) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::Refused(status.cast_signed())) }
}
