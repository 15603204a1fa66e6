//! The calls of one connection with the protocol server.
//!
//! Each is one call of the IPC, and waits for nothing but the server's answer. Not here: who makes
//! them on which connection (`direct`, `protocol_server`), and calls that wait there (`direct`).

use crate::session::datagram::{Datagram, MessageRoom, Told};
use core::time::Duration;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use sojourn_ipc::rt::CallError;
use sojourn_ipc::{Connection, Deadline};
use sojourn_pump::ancillary::ControlMessages;
use sojourn_session::protocol::answer;
use sojourn_session::protocol::client::{
    AddressT, CONTROL_MAX, DATA_MAX, DONT_WAIT, PEEK, ProtocolClient, ProtocolReceiveFromOut,
    ProtocolSendOut,
};
use sojourn_session::protocol::receiving::Receiver;
use std::net::SocketAddr;

/// How long the server may take for a call that waits for nothing.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// The reason why a call has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// An error number of the session's, or the server's.
    Refused(Errno),
    /// There is no server, or it had gone before the call.
    Gone,
    /// The server has gone, or has not answered in time: nobody knows if the call was done.
    Unanswered,
}

/// A connection, and a buffer for the bytes that come and go by it.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) receiver: Receiver,
    /// The bytes received last, or those of a send from several buffers.
    pub(crate) data: Vec<u8>,
    /// The control messages of the datagram received last.
    pub(crate) control: Vec<u8>,
}

/// The result of a call: `Err` if the server has not answered.
pub(crate) type Answered<R> = Result<Result<R, Failure>, CallError>;

impl Channel {
    pub(crate) fn new(receiver: Receiver) -> Self {
        let data = Vec::with_capacity(DATA_MAX as usize);
        Self { receiver, data, control: Vec::with_capacity(CONTROL_MAX as usize) }
    }

    /// Returns the stubs for a call that may take so long.
    pub(crate) fn within(&mut self, limit: Duration) -> &mut ProtocolClient<Connection> {
        self.receiver.client.with_deadline(Deadline::after(limit))
    }

    /// Sends as much as there is room for, without the first `skip` bytes.
    pub(crate) fn send(
        &mut self,
        session: u32,
        bufs: &[IoSlice<'_>],
        skip: usize,
    ) -> Answered<usize> {
        let Self { receiver, data, .. } = self;
        let part = match bufs {
            [one] => &one[skip.min(one.len())..],
            _ => gather(bufs, skip, data),
        };
        let part = &part[..part.len().min(DATA_MAX as usize)];
        let sent =
            receiver.client.with_deadline(Deadline::after(ANSWER_LIMIT)).send(session, part)?;
        Ok(taken(&sent, part.len()))
    }

    /// Receives what is there, into the buffers beyond their first `skip` bytes.
    pub(crate) fn receive(
        &mut self,
        session: u32,
        bufs: &mut [IoSliceMut<'_>],
        skip: usize,
        peek: bool,
    ) -> Answered<usize> {
        let Self { receiver, data, .. } = self;
        let flags = DONT_WAIT | if peek { PEEK } else { 0 };
        let size = room(bufs, skip) as u32;
        let client = receiver.client.with_deadline(Deadline::after(ANSWER_LIMIT));
        let status = client.receive(session, flags, size, data)?;
        Ok(accept(status).map(|()| scatter(data, bufs, skip)))
    }

    /// Sends a datagram, or several of `segment` bytes each but the last.
    pub(crate) fn send_to(
        &mut self,
        session: u32,
        bufs: &[IoSlice<'_>],
        target: Option<SocketAddr>,
        segment: Option<u16>,
    ) -> Answered<()> {
        let Self { receiver, data, .. } = self;
        let part = match bufs {
            [one] => one,
            _ => gather(bufs, 0, data),
        };
        let (to, segment) = (AddressT::from(target), u32::from(segment.unwrap_or(0)));
        let client = receiver.client.with_deadline(Deadline::after(ANSWER_LIMIT));
        Ok(accept(client.send_to(session, &to, segment, part)?))
    }

    /// Receives a datagram that is there.
    pub(crate) fn receive_from(
        &mut self,
        session: u32,
        into: &mut MessageRoom<'_, '_>,
        peek: bool,
    ) -> Answered<Datagram> {
        let flags = DONT_WAIT | if peek { PEEK } else { 0 };
        let size = room(into.bufs, 0) as u32;
        let Self { receiver, data, control } = self;
        let client = receiver.client.with_deadline(Deadline::after(ANSWER_LIMIT));
        let out = client.receive_from(session, flags, size, control, data)?;
        Ok(arrived(&out, control, data, into))
    }

    /// Counts the bytes that could be received, up to those of one call.
    pub(crate) fn queued(&mut self, session: u32) -> Answered<usize> {
        let Self { receiver, data, .. } = self;
        let client = receiver.client.with_deadline(Deadline::after(ANSWER_LIMIT));
        let status = client.receive(session, DONT_WAIT | PEEK, DATA_MAX, data)?;
        Ok(accept(status).map(|()| data.len()))
    }

    /// Returns all events that hold.
    pub(crate) fn ready(&mut self, session: u32) -> Answered<u32> {
        let ready = self.within(ANSWER_LIMIT).wait(session, 0)?;
        Ok(accept(ready.ret).map(|()| ready.ready))
    }

    /// Has the bell rung when one of the events holds.
    pub(crate) fn watch(&mut self, session: u32, events: u32) -> Answered<()> {
        Ok(accept(self.within(ANSWER_LIMIT).watch(session, events)?))
    }
}

/// Returns the failure of a call by its status. One that is no error number makes no sense.
pub(crate) fn accept(status: u32) -> Result<(), Failure> {
    match status {
        0 => Ok(()),
        1..4096 => Err(Failure::Refused(Errno::from_raw_os_error(status.cast_signed()))),
        _ => Err(Failure::Refused(Errno::BADMSG)),
    }
}

/// Returns how many of `len` bytes the server has taken.
fn taken(out: &ProtocolSendOut, len: usize) -> Result<usize, Failure> {
    accept(out.ret)?;
    answer::taken(out.sent, len).ok_or(Failure::Refused(Errno::BADMSG))
}

/// Copies an answer's datagram to its room: control messages and bytes. Nothing of it is
/// believed: an answer that makes no sense is an error.
pub(crate) fn arrived(
    out: &ProtocolReceiveFromOut,
    control: &[u8],
    data: &[u8],
    into: &mut MessageRoom<'_, '_>,
) -> Result<Datagram, Failure> {
    accept(out.ret)?;
    let source = out.from.socket_addr().ok().flatten();
    let source = source.ok_or(Failure::Refused(Errno::BADMSG))?;
    let copied = scatter(data, into.bufs, 0);
    let len = (out.whole as usize).clamp(copied, DATA_MAX as usize);
    *into.messages = (!control.is_empty()).then(|| ControlMessages::of(control));
    Ok(Datagram { source, len, copied, told: Told::InAttempt })
}

/// Returns the room of the buffers beyond their first `skip` bytes, as far as one call fills it.
pub(crate) fn room(bufs: &[IoSliceMut<'_>], skip: usize) -> usize {
    let size: usize = bufs.iter().map(|buf| buf.len()).sum();
    (size - skip.min(size)).min(DATA_MAX as usize)
}

/// Copies the buffers' bytes beyond the first `skip`, as many as one call takes, into `data`.
fn gather<'a>(bufs: &[IoSlice<'_>], mut skip: usize, data: &'a mut Vec<u8>) -> &'a [u8] {
    data.clear();
    for buf in bufs {
        let part = &buf[skip.min(buf.len())..];
        skip -= buf.len() - part.len();
        let room = DATA_MAX as usize - data.len();
        data.extend_from_slice(&part[..part.len().min(room)]);
    }
    data
}

/// Copies `data` into the buffers, beyond their first `skip` bytes. Returns its length.
pub(crate) fn scatter(data: &[u8], bufs: &mut [IoSliceMut<'_>], mut skip: usize) -> usize {
    let mut done = 0;
    for buf in bufs {
        let from = skip.min(buf.len());
        skip -= from;
        let len = (buf.len() - from).min(data.len() - done);
        buf[from..from + len].copy_from_slice(&data[done..done + len]);
        done += len;
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_several_buffers_go_out_and_come_back_in_their_order() {
        let all: Vec<u8> = (0..100).collect();
        let parts = [&all[..30], &all[30..30], &all[30..31], &all[31..]];
        for skip in [0, 1, 29, 30, 31, 40, 99, 100] {
            let mut data = vec![7; 3];
            let got = gather(&parts.map(IoSlice::new), skip, &mut data);
            assert_eq!(got, &all[skip..], "{skip}");
            let (mut one, mut two, mut three) = ([0; 40], [0; 0], [0; 60]);
            let bufs = &mut [&mut one[..], &mut two[..], &mut three[..]].map(IoSliceMut::new);
            assert_eq!(scatter(&all[skip..], bufs, skip), 100 - skip);
            let filled = [&one[..], &three[..]].concat();
            assert_eq!(filled[skip..], all[skip..], "{skip}");
            assert!(filled[..skip].iter().all(|byte| *byte == 0));
        }
        let large = vec![1; DATA_MAX as usize];
        let bufs = [IoSlice::new(&large), IoSlice::new(&large)];
        assert_eq!(gather(&bufs, 5, &mut Vec::new()).len(), DATA_MAX as usize, "one call's worth");
    }

    #[test]
    fn a_status_that_is_no_error_number_is_an_error() {
        assert_eq!(accept(0), Ok(()));
        assert_eq!(accept(4095), Err(Failure::Refused(Errno::from_raw_os_error(4095))));
        for status in [4096, 65_536, 1 << 31, u32::MAX] {
            assert_eq!(accept(status), Err(Failure::Refused(Errno::BADMSG)), "{status}");
        }
    }

    #[test]
    fn a_server_that_says_it_took_more_than_it_got_or_nothing_is_not_believed() {
        let answer = |sent, len| taken(&ProtocolSendOut { ret: 0, sent }, len);
        assert_eq!((answer(5, 5), answer(1, 5), answer(0, 0)), (Ok(5), Ok(1), Ok(0)));
        for (sent, len) in [(6, 5), (0, 5), (1, 0), (u32::MAX, DATA_MAX as usize)] {
            assert_eq!(answer(sent, len), Err(Failure::Refused(Errno::BADMSG)), "{sent} of {len}");
        }
    }

    #[test]
    fn a_datagrams_answer_that_makes_no_sense_is_an_error_and_no_length_is_believed() {
        let from = AddressT::from("192.0.2.1:7".parse().ok());
        let answer = |from, whole| {
            let out = ProtocolReceiveFromOut { ret: 0, from, whole };
            let mut room = [0; 8];
            let bufs = &mut [IoSliceMut::new(&mut room)];
            let into = &mut MessageRoom { bufs, messages: &mut None };
            let got = arrived(&out, &[7; 3], b"data", into);
            got.map(|datagram| (datagram.len, datagram.copied))
        };
        for (whole, len) in [(0, 4), (4, 4), (9, 9), (u32::MAX, DATA_MAX as usize)] {
            assert_eq!(answer(from, whole), Ok((len, 4)), "{whole}");
        }
        let nonsense = Err(Failure::Refused(Errno::BADMSG));
        assert_eq!(answer(AddressT::from(None), 4), nonsense);
        assert_eq!(answer(AddressT { version: 1, ..from }, 4), nonsense);
    }
}
