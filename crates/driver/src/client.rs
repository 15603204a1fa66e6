//! The client: a packet interface whose device is a driver's.
//!
//! Sending is a call. For receiving, calls wait at the driver, as many as it allows; an arrived
//! frame is the answer to the oldest. The descriptor to wait for is the driver's bell. The client
//! arms it when it has taken all answers, and the driver rings it once for each time: so after an
//! answer the client knows that it is rung, or will be in a moment (`idl/device.idl`, `receive`).
//!
//! The driver is not trusted: its answers are checked by the stubs, memory is mapped only if it
//! cannot change any more, and every wait for it ends after [`PATIENCE`]. A driver that breaks a
//! rule, does not answer in time or has gone is [`LinkError::Gone`] from then on.

use crate::sealed::{self, SealedFrame};
use crate::status;
use crate::stubs::client::{
    ArrivalT, DEVICE_ID, DeviceClient, OffloadT, WAITING_MAX, device_connect_options, device_wire,
};
use crate::way::FrameWay;
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use sojourn_ipc::rt::{self, CallError, Forms, Measured, Writer};
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline, Pending, Wait};
use sojourn_netif::{
    FRAME_BYTES_MAX, Interface, LinkError, Outgoing, Properties, Received, SendError, Statistics,
};
use std::collections::VecDeque;
use std::time::Instant;

/// The longest wait for an answer that waits for nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// Looks that find nothing between two looks whether the driver is there still: these take a system
/// call.
const LOOKS: u32 = 64;
/// Looks for the ring that follows an answer, before the thread sleeps for it.
const RING_LOOKS: u32 = 16;
/// A deadline that has passed.
const PASSED: Deadline = Deadline::at_ns(0);

/// The numbers of the operations that are called without the stubs' own methods, because their
/// answers come later.
const RECEIVE: u16 = 4;
const RECEIVE_MEMORY: u16 = 5;

/// The reason why there is no interface.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// There is no driver, or it does not take us.
    #[error(transparent)]
    Connect(#[from] sojourn_ipc::ConnectError),
    /// The driver could not be asked.
    #[error("the driver: {0}")]
    Call(#[from] CallError),
    /// The driver has no device for us.
    #[error("the driver has no device: {0}")]
    Refused(Errno),
}

/// A device at a driver, as a packet interface.
#[derive(Debug)]
pub struct DriverInterface {
    device: DeviceClient<Connection>,
    /// The number of the interface's first operation.
    base: u16,
    bell: OwnedFd,
    patience: Duration,
    way: FrameWay,
    properties: Properties,
    /// The calls that wait for frames, oldest first.
    waiting: VecDeque<Pending>,
    /// Answers taken so far.
    seen: u64,
    /// An answer has come since the bell was armed: it is rung, or will be in a moment.
    has_answer: bool,
    /// Looks in a row that found nothing.
    looks: u32,
    /// Since when the bell has been rung without an answer, as far as was looked.
    rung_since: Option<Instant>,
    /// The frame received last.
    frame: Vec<u8>,
    counts: Statistics,
    is_gone: bool,
}

/// An arrived frame. In a message it is in [`DriverInterface::frame`].
struct Taken {
    arrival: ArrivalT,
    memory: Option<SealedFrame>,
}

impl DriverInterface {
    /// Connects to the driver at `address`. `wait`: how calls wait for answers.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(address: Address, wait: Wait) -> Result<Self, ConnectError> {
        Self::connect_with(address, wait, Ok)
    }

    /// Connects like [`DriverInterface::connect`], and has the bell's descriptor moved by `place`,
    /// for a program that wants it at another number.
    ///
    /// # Errors
    /// [`ConnectError`]; [`ConnectError::Refused`] with the error of `place`.
    pub fn connect_with(
        address: Address,
        wait: Wait,
        place: impl FnOnce(OwnedFd) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, ConnectError> {
        let options = ConnectOptions { wait, timeout: PATIENCE, ..device_connect_options() };
        Self::over(Connection::connect(address, &options)?, PATIENCE, place)
    }

    /// Opens the device at the other end of a connection. `patience`: the longest wait for an
    /// answer that waits for nothing.
    pub(crate) fn over(
        mut connection: Connection,
        patience: Duration,
        place: impl FnOnce(OwnedFd) -> Result<OwnedFd, Errno>,
    ) -> Result<Self, ConnectError> {
        let deadline = Deadline::after(patience);
        let base = rt::stub::bind(&mut connection, &DEVICE_ID, deadline)?;
        let mut device = DeviceClient::bind_by(connection, deadline)?;
        let out = device.with_deadline(Deadline::after(patience)).open()?;
        if let Some(errno) = status::errno_of(out.ret) {
            return Err(ConnectError::Refused(errno));
        }
        let bell = out.bell.ok_or(ConnectError::Refused(Errno::BADMSG))?;
        let bell = place(bell).map_err(ConnectError::Refused)?;
        let mut interface = Self {
            device,
            base,
            bell,
            patience,
            way: if out.by_memory { FrameWay::Memory } else { FrameWay::Message },
            properties: (&out.properties).into(),
            waiting: VecDeque::with_capacity(WAITING_MAX as usize),
            seen: 0,
            has_answer: false,
            looks: 0,
            rung_since: None,
            frame: Vec::with_capacity(FRAME_BYTES_MAX),
            counts: Statistics::default(),
            is_gone: false,
        };
        interface.ask(false)?;
        Ok(interface)
    }

    /// Ends the use of a driver that cannot be used any more.
    fn gone<T>(&mut self) -> Result<T, LinkError> {
        self.is_gone = true;
        Err(LinkError::Gone)
    }

    /// Has as many calls wait for frames as may. `arms`: the first one arms the bell.
    fn ask(&mut self, mut arms: bool) -> Result<(), CallError> {
        // Where the bell is to be armed later, there is room for the call that does it.
        let kept = usize::from(self.has_answer);
        while self.waiting.len() + kept < WAITING_MAX as usize {
            let pending = self.submit(core::mem::take(&mut arms))?;
            self.waiting.push_back(pending);
        }
        Ok(())
    }

    fn submit(&mut self, arms: bool) -> Result<Pending, CallError> {
        type Put = fn(&mut Writer<'_, '_>, bool, u64) -> Result<(), rt::EncodeError>;
        type Size = fn(Forms, bool, u64) -> Result<Measured, rt::EncodeError>;
        let (number, size, put): (u16, Size, Put) = match self.way {
            FrameWay::Message => {
                (RECEIVE, device_wire::receive_request_size, device_wire::put_receive_request)
            }
            FrameWay::Memory => (
                RECEIVE_MEMORY,
                device_wire::receive_memory_request_size,
                device_wire::put_receive_memory_request,
            ),
        };
        let size = size(Forms::machine(), arms, self.seen)?;
        let mut draft =
            self.device.transport().start(self.base.wrapping_add(number), size.body_len);
        let mut writer = draft.encoder();
        writer.set_forms(size.forms);
        put(&mut writer, arms, self.seen)?;
        draft.submit(Deadline::after(self.patience))
    }

    /// Takes the oldest frame that is there, if there is one and it is whole.
    fn take(&mut self) -> Result<Option<Taken>, CallError> {
        // A frame that the driver could not hand over counts as an answer: the next may be there.
        while let Some(pending) = self.waiting.front() {
            let connection = self.device.transport();
            let wait = connection.set_wait(Wait::Park);
            let found = connection.await_answer(pending, PASSED);
            connection.set_wait(wait);
            match found {
                Err(CallError::Timeout) => return Ok(None),
                found => found?,
            }
            let Some(pending) = self.waiting.pop_front() else { return Ok(None) };
            self.seen += 1;
            self.has_answer = true;
            if let Some(taken) = self.finish(pending)? {
                return Ok(Some(taken));
            }
        }
        Ok(None)
    }

    /// Reads an answer. `None`: the frame is lost.
    fn finish(&mut self, pending: Pending) -> Result<Option<Taken>, CallError> {
        let Self { device, frame, .. } = self;
        let mut reply = device.transport().finish(pending, PASSED)?;
        let (ret, arrival, memory) = match self.way {
            FrameWay::Message => {
                let out = device_wire::get_receive_reply(reply.decoder(), frame)?;
                (out.ret, out.arrival, None)
            }
            FrameWay::Memory => {
                let out = device_wire::get_receive_memory_reply(reply.decoder())?;
                let memory = out.memory.map(|memory| SealedFrame::map(memory, out.len as usize));
                (out.ret, out.arrival, memory)
            }
        };
        let memory = memory.transpose();
        let is_whole = ret == 0
            && match (self.way, &memory) {
                (FrameWay::Message, _) => !self.frame.is_empty(),
                (FrameWay::Memory, memory) => matches!(memory, Ok(Some(_))),
            };
        if !is_whole {
            self.counts.damaged += 1;
            return Ok(None);
        }
        Ok(Some(Taken { arrival, memory: memory.ok().flatten() }))
    }

    /// Empties the bell, which is rung or is just being rung.
    fn empty_bell(&mut self) -> Result<(), LinkError> {
        let (deadline, mut looks) = (Deadline::after(self.patience), 0);
        loop {
            match recv(&self.bell, &mut [0; 16], RecvFlags::DONTWAIT) {
                Ok((1.., _)) => return Ok(()),
                // The driver rings right after its answer.
                Err(Errno::AGAIN | Errno::INTR) if looks < RING_LOOKS => looks += 1,
                Err(Errno::AGAIN | Errno::INTR) if !deadline.is_over() => {
                    let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
                    // The next read finds an error.
                    let _ = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], Some(&limit));
                }
                _ => return self.gone(),
            }
        }
    }

    /// Looks whether the driver is there still. A bell that is rung stays so: its answer comes in a
    /// moment, and the caller may sleep before that. One that rings for nothing would have the
    /// caller look for ever.
    fn look_for_driver(&mut self) -> Result<(), LinkError> {
        self.looks = 0;
        match recv(&self.bell, &mut [0; 1], RecvFlags::DONTWAIT | RecvFlags::PEEK) {
            Ok((1.., _)) => {
                let since = *self.rung_since.get_or_insert_with(Instant::now);
                if since.elapsed() < PATIENCE { Ok(()) } else { self.gone() }
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                self.rung_since = None;
                Ok(())
            }
            _ => self.gone(),
        }
    }

    /// Ends a look that took `count` frames. `is_empty`: these were all that were there.
    fn end_look(&mut self, count: usize, is_empty: bool) -> Result<(), LinkError> {
        if count == 0 && !self.has_answer {
            self.looks += 1;
            return if self.looks < LOOKS { Ok(()) } else { self.look_for_driver() };
        }
        self.rung_since = None;
        let arms = is_empty && self.has_answer;
        if arms {
            self.empty_bell()?;
            self.has_answer = false;
        }
        self.ask(arms).or_else(|_| self.gone())
    }

    fn transmit(&mut self, frame: &Outgoing<'_>) -> Result<u32, CallError> {
        let offload = OffloadT { bytes: frame.vnet.to_bytes() };
        let [first, second, third] = frame.parts;
        let device = self.device.with_deadline(Deadline::after(self.patience));
        match self.way {
            FrameWay::Message => device.transmit(&offload, first, second, third),
            FrameWay::Memory => match sealed::seal(&frame.parts) {
                Ok(memory) => {
                    device.transmit_memory(&offload, frame.len() as u32, Some(memory.as_fd()))
                }
                // There is no memory now, as in a queue that is full.
                Err(_) => Ok(Errno::NOBUFS.raw_os_error().unsigned_abs()),
            },
        }
    }
}

impl Interface for DriverInterface {
    fn receive(
        &mut self,
        budget: usize,
        accept: &mut dyn FnMut(Received<'_>),
    ) -> Result<usize, LinkError> {
        if self.is_gone {
            return Err(LinkError::Gone);
        }
        let (mut count, mut is_empty) = (0, false);
        while count < budget {
            let taken = match self.take() {
                Ok(Some(taken)) => taken,
                Ok(None) => {
                    is_empty = true;
                    break;
                }
                Err(_) => return self.gone(),
            };
            let frame = taken.memory.as_ref().map_or(&self.frame[..], SealedFrame::bytes);
            accept(taken.arrival.with(frame));
            count += 1;
        }
        self.counts.received += count as u64;
        self.end_look(count, is_empty)?;
        Ok(count)
    }

    fn send(&mut self, frame: &Outgoing<'_>) -> Result<(), SendError> {
        if self.is_gone {
            return Err(LinkError::Gone.into());
        }
        if frame.len() > FRAME_BYTES_MAX {
            return Err(SendError::TooLong);
        }
        if frame.is_empty() {
            return Err(SendError::Invalid);
        }
        match self.transmit(frame) {
            Ok(status) => match status::to_sent(status) {
                Err(SendError::Link(LinkError::Gone)) => return Ok(self.gone()?),
                sent => sent?,
            },
            Err(_) => return Ok(self.gone()?),
        }
        self.counts.sent += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SendError> {
        Ok(())
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn refresh(&mut self) -> Result<(), LinkError> {
        match self.device.with_deadline(Deadline::after(self.patience)).refresh() {
            Ok(out) => {
                if status::to_link(out.ret) == Err(LinkError::Gone) {
                    return self.gone();
                }
                status::to_link(out.ret)?;
                self.properties = (&out.properties).into();
                Ok(())
            }
            Err(_) => self.gone(),
        }
    }

    fn statistics(&mut self) -> Statistics {
        let asked = self.device.with_deadline(Deadline::after(self.patience)).losses();
        match asked {
            Ok(losses) => Statistics {
                overruns: losses.overruns,
                truncated: losses.truncated,
                damaged: self.counts.damaged.saturating_add(losses.damaged),
                ..self.counts
            },
            Err(_) => self.counts,
        }
    }
}
