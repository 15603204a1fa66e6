//! A receive of bytes or of a datagram that waits in the protocol server, as a call in two halves:
//! what ends the wait before the answer comes is the caller's.
//!
//! The server takes bytes out of the session only after its answer (`ANSWER_FIRST`), so a call
//! without an answer has taken none; one that is given up is cancelled first, and its answer says
//! if it has bytes. A datagram is taken out before the answer, and is lost with a server that dies
//! in between, as UDP allows. Not here: who waits how (`sojourn_protocol::Client`,
//! `sojourn_library`).

use core::sync::atomic::AtomicU32;

use super::client::{
    ANSWER_FIRST, PROTOCOL_ID, ProtocolClient, ProtocolReceiveFromOut, protocol_wire,
};
use sojourn_ipc::rt::{CallError, Forms, stub};
use sojourn_ipc::{Connection, Deadline, Pending};

/// The numbers of the operations `receive` and `receive_from` within the interface.
const RECEIVE: u16 = 3;
const RECEIVE_FROM: u16 = 17;

/// Stubs on a connection, for calls in two halves as well.
#[derive(Debug)]
pub struct Receiver {
    /// The stubs.
    pub client: ProtocolClient<Connection>,
    /// The number of the interface's first operation.
    base: u16,
}

/// A receive whose answer has not been taken.
#[derive(Debug)]
#[must_use = "finish it"]
pub struct Receiving {
    pending: Pending,
    session: u32,
    size: u32,
}

impl Receiver {
    /// Binds the interface on a connection.
    ///
    /// # Errors
    /// Those of the calls that bind it.
    pub fn bind(mut connection: Connection, deadline: Deadline) -> Result<Self, CallError> {
        let base = stub::bind(&mut connection, &PROTOCOL_ID, deadline)?;
        Ok(Self { client: ProtocolClient::bind_by(connection, deadline)?, base })
    }

    /// Sends the request of a receive that waits. `deadline`: for the request alone.
    ///
    /// # Errors
    /// Those of a request.
    pub fn begin(
        &mut self,
        session: u32,
        size: u32,
        deadline: Deadline,
    ) -> Result<Receiving, CallError> {
        let forms = Forms::machine();
        let measured = protocol_wire::receive_request_size(forms, session, ANSWER_FIRST, size)?;
        let connection = self.client.transport();
        let mut draft = connection.start(self.base.wrapping_add(RECEIVE), measured.body_len);
        let mut writer = draft.encoder();
        writer.set_forms(measured.forms);
        protocol_wire::put_receive_request(&mut writer, session, ANSWER_FIRST, size)?;
        Ok(Receiving { pending: draft.submit(deadline)?, session, size })
    }

    /// Sends the request of a receive of a datagram; as [`Receiver::begin`].
    ///
    /// # Errors
    /// Those of a request.
    pub fn begin_from(
        &mut self,
        session: u32,
        size: u32,
        deadline: Deadline,
    ) -> Result<Receiving, CallError> {
        let measured =
            protocol_wire::receive_from_request_size(Forms::machine(), session, 0, size)?;
        let connection = self.client.transport();
        let mut draft = connection.start(self.base.wrapping_add(RECEIVE_FROM), measured.body_len);
        let mut writer = draft.encoder();
        writer.set_forms(measured.forms);
        protocol_wire::put_receive_from_request(&mut writer, session, 0, size)?;
        Ok(Receiving { pending: draft.submit(deadline)?, session, size })
    }

    /// Waits until the answer is there, or `stop` returns true: a thread that sleeps looks there
    /// when a signal handler has run. Returns true if the answer is there.
    ///
    /// # Errors
    /// `Timeout`: not by the deadline. `Disconnected`: the server has gone, and has taken nothing.
    pub fn wait(
        &mut self,
        receiving: &Receiving,
        until: Deadline,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool, CallError> {
        self.client.transport().await_answer_unless(&receiving.pending, until, stop)
    }

    /// Returns the word that a wait sleeps on: see [`Connection::bell`].
    pub fn bell(&mut self) -> &AtomicU32 {
        self.client.transport().bell()
    }

    /// Cancels a receive. It still has to be finished: its answer is `EINTR`, if it has no bytes.
    ///
    /// # Errors
    /// Those of a call.
    pub fn cancel(&mut self, receiving: &Receiving, deadline: Deadline) -> Result<(), CallError> {
        self.client.with_deadline(deadline).cancel(receiving.session).map(drop)
    }

    /// Takes the answer: the bytes into `data`. Returns the status.
    ///
    /// # Errors
    /// Those of an answer.
    pub fn finish(
        &mut self,
        receiving: Receiving,
        data: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<u32, CallError> {
        let Receiving { pending, size, .. } = receiving;
        let mut reply = self.client.transport().finish(pending, deadline)?;
        Ok(protocol_wire::get_receive_reply(reply.decoder(), i128::from(size), data)?.ret)
    }

    /// Takes the answer to a receive of a datagram: control messages and bytes where they are
    /// wanted.
    ///
    /// # Errors
    /// Those of an answer.
    pub fn finish_from(
        &mut self,
        receiving: Receiving,
        control: &mut Vec<u8>,
        data: &mut Vec<u8>,
        deadline: Deadline,
    ) -> Result<ProtocolReceiveFromOut, CallError> {
        let Receiving { pending, size, .. } = receiving;
        let mut reply = self.client.transport().finish(pending, deadline)?;
        let size = i128::from(size);
        let read = protocol_wire::get_receive_from_reply(reply.decoder(), size, control, data)?;
        Ok(ProtocolReceiveFromOut { ret: read.ret, from: read.from, whole: read.whole })
    }
}
