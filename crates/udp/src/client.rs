//! The client: sockets that `sojourn-udpd` serves.
//!
//! The stubs do all the work but one part: a receiver that gives up at its deadline must not lose
//! the datagram that comes a moment later. So a call of `recvfrom` that was not answered in time
//! stays outstanding, and the next receiver waits for the answer to that call.

use crate::stubs::client::{DATA_MAX, UDP_ID, UdpClient, udp_wire};
use core::net::SocketAddrV4;
use sojourn_ipc::rt::{self, CallError};
use sojourn_ipc::{Address, ConnectError, ConnectOptions, Connection, Deadline, Pending, Wait};

/// The number of `recvfrom` in the interface.
const RECVFROM: u16 = 2;

/// The reason why an operation of a socket failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no server, or it refused the connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The call to the server failed, or the server is gone. [`CallError::Timeout`]: no answer in
    /// time.
    #[error("the UDP server: {0}")]
    Call(#[from] CallError),
    /// The server's answer, or the error of an earlier datagram: an error number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// The data is longer than a datagram can be.
    #[error("a datagram has at most {DATA_MAX} bytes")]
    TooLong,
}

/// The result of [`Socket::recv_from`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender.
    pub from: SocketAddrV4,
    /// Bytes of the whole datagram; the bytes for which the buffer had no room are lost.
    pub len: usize,
}

/// A bound socket, used by one thread at a time.
#[derive(Debug)]
pub struct Socket {
    udp: UdpClient,
    /// The number of the interface's first operation.
    base: u16,
    local: SocketAddrV4,
    /// The outstanding call of `recvfrom`, if there is one.
    receiving: Option<Pending>,
    /// The data of the last datagram.
    data: Vec<u8>,
}

impl Socket {
    /// Binds a socket of the server at `server` to `local`: address 0.0.0.0 stands for all
    /// addresses of the host, port 0 for a free port. `wait` says how the socket waits for the
    /// server.
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

    /// Returns the address and port to which the socket is bound.
    pub fn local_addr(&self) -> SocketAddrV4 {
        self.local
    }

    /// Sends a datagram. Success does not mean that it arrives, as with any datagram: the next
    /// [`Socket::recv_from`] reports an error on this host, and one of the next calls that the
    /// server is gone.
    ///
    /// # Errors
    /// [`Error`].
    pub fn send_to(&mut self, data: &[u8], to: SocketAddrV4) -> Result<(), Error> {
        if data.len() > DATA_MAX as usize {
            return Err(Error::TooLong);
        }
        // `sendto` has no answer, so a dead server would go unnoticed without this look.
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

    /// Asks for the next datagram, of any length.
    fn submit(&mut self, deadline: Deadline) -> Result<Pending, Error> {
        let size = udp_wire::recvfrom_request_size(rt::Forms::machine(), DATA_MAX);
        let size = size.map_err(CallError::from)?;
        let mut draft = self.udp.transport().start(self.base.wrapping_add(RECVFROM), size.body_len);
        let mut writer = draft.encoder();
        writer.set_forms(size.forms);
        udp_wire::put_recvfrom_request(&mut writer, DATA_MAX).map_err(CallError::from)?;
        Ok(draft.submit(deadline)?)
    }
}

fn accept(status: u32) -> Result<(), Error> {
    if status == 0 { Ok(()) } else { Err(Error::Refused(status.cast_signed())) }
}
