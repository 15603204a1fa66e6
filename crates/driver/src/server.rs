//! The server object: one client's device, and the calls that wait for its frames.
//!
//! # Theory of operation
//! Two threads share the object: one takes the client's calls, the other sleeps until frames come
//! while calls wait (`served_client`). Both answer waiting calls, in order, under the object's
//! lock; neither waits for the client. The bell is rung only while it is armed, which the client
//! does once it has emptied it: so it never holds more than one byte, and a client that does not
//! read it stops nobody.
//!
//! Not here: the threads (`served_client`), and the packet socket (`sojourn_netif::Message`).

use crate::sealed::{self, SealedFrame};
use crate::status;
use crate::stubs::server::{
    ArrivalT, DeviceOpenOut, DeviceReceiveDeferredReply, DeviceReceiveMemoryDeferredReply,
    DeviceRefreshOut, DeviceServer, LossesT, OffloadT, PropertiesT, WAITING_MAX,
};
use crate::way::FrameWay;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use sojourn_ipc::Gone;
use sojourn_ipc::rt::{Caller, Fault};
use sojourn_netif::{Interface, Message, Outgoing, Received, vnet};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A call that waits for a frame.
enum Waiting {
    Message(DeviceReceiveDeferredReply),
    Memory(DeviceReceiveMemoryDeferredReply),
}

impl Waiting {
    /// Answers with a frame, or with the error number `status` and none.
    fn answer(self, status: u32, received: &Received<'_>) -> Result<(), Gone> {
        let arrival = ArrivalT::from(received);
        match self {
            Self::Message(reply) => reply.lend(status, &arrival, received.frame),
            Self::Memory(reply) => match sealed::seal(&[received.frame]) {
                Ok(memory) => {
                    let len = received.frame.len() as u32;
                    reply.lend(status, &arrival, len, Some(memory.as_fd()))
                }
                // The frame is lost, as in a queue that is full.
                Err(errno) => reply.lend(status::number(errno), &arrival, 0, None),
            },
        }
    }
}

/// The client's end of the bell is given away at `open`.
struct Bell {
    own: OwnedFd,
    is_armed: bool,
}

impl Bell {
    /// Rings, if the bell is armed.
    fn ring(&mut self) {
        if core::mem::replace(&mut self.is_armed, false) {
            // A client that has closed its end hears nothing.
            let _ = send(&self.own, &[0], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// The device with the calls that wait for it.
struct Device {
    packets: Message,
    waiting: VecDeque<Waiting>,
    /// Calls answered so far.
    answered: u64,
    bell: Option<Bell>,
    /// The other thread will look when a frame comes.
    is_watched: bool,
}

impl Device {
    /// Answers waiting calls with the frames that are there.
    fn fill(&mut self) {
        let Self { packets, waiting, answered, bell, .. } = self;
        while !waiting.is_empty() {
            let mut accept = |received: Received<'_>| {
                *answered += 1;
                // A call that was given up has its frame lost.
                let _ = waiting.pop_front().map(|call| call.answer(0, &received));
                // After the answer: a client that the bell wakes on this very processor would look
                // for it in vain, again and again.
                bell.iter_mut().for_each(Bell::ring);
            };
            match packets.receive(1, &mut accept) {
                Ok(1..) => {}
                // An error of the link is cleared by being told; sends tell the client.
                Ok(0) | Err(_) => return,
            }
        }
    }

    /// Arms the bell of a client that has seen that many answers.
    fn arm(&mut self, seen: u64) {
        let answered = self.answered;
        if let Some(bell) = &mut self.bell {
            bell.is_armed = true;
            if answered != seen {
                bell.ring();
            }
        }
    }
}

/// One client's device.
pub(crate) struct Driver {
    device: Mutex<Device>,
    way: FrameWay,
    /// Wakes the thread that sleeps for frames.
    wake: OwnedFd,
}

impl Driver {
    pub(crate) fn new(packets: Message, way: FrameWay) -> Result<Self, Errno> {
        let device = Device {
            packets,
            waiting: VecDeque::with_capacity(WAITING_MAX as usize),
            answered: 0,
            bell: None,
            is_watched: false,
        };
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { device: Mutex::new(device), way, wake })
    }

    fn lock(&self) -> MutexGuard<'_, Device> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a descriptor that is readable when [`Driver::look`] is to be called, and a duplicate
    /// of the packet socket.
    pub(crate) fn descriptors(&self) -> Result<[OwnedFd; 2], Errno> {
        let packets = self.lock().packets.wait_fd().map(duplicate).transpose()?;
        Ok([duplicate(self.wake.as_fd())?, packets.ok_or(Errno::BADF)?])
    }

    /// Answers waiting calls with the frames that are there. Returns true if calls are left, so
    /// that the caller has to look again when a frame comes. `has_failed`: the packet socket shows
    /// an error.
    pub(crate) fn look(&self, has_failed: bool) -> bool {
        let mut device = self.lock();
        if has_failed {
            let _ = device.packets.take_error();
        }
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        device.fill();
        device.is_watched = !device.waiting.is_empty();
        device.is_watched
    }

    fn wait(&self, call: Waiting, arms: Option<u64>) {
        let mut device = self.lock();
        if device.waiting.len() >= WAITING_MAX as usize {
            let nothing =
                Received { vnet: vnet::Header::NONE, frame: &[], tag: None, time_ns: None };
            let _ = call.answer(status::number(Errno::BUSY), &nothing);
            return;
        }
        if let Some(seen) = arms {
            device.arm(seen);
        }
        device.waiting.push_back(call);
        device.fill();
        if !device.waiting.is_empty() && !device.is_watched {
            device.is_watched = true;
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }

    fn send(&self, offload: &OffloadT, parts: [&[u8]; 3]) -> u32 {
        // As many bytes as a header has.
        let vnet = vnet::Header::parse(&offload.bytes).unwrap_or_default();
        status::of_send(self.lock().packets.send(&Outgoing { vnet, parts }))
    }
}

fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0)
}

impl DeviceServer for Driver {
    fn open(&self, _: &Caller) -> Result<DeviceOpenOut, Fault> {
        let mut device = self.lock();
        let properties = PropertiesT::from(device.packets.properties());
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let made = match device.bell {
            Some(_) => Err(Errno::EXIST),
            None => socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None),
        };
        let (ret, bell) = match made {
            Ok((own, theirs)) => {
                device.bell = Some(Bell { own, is_armed: true });
                (0, Some(theirs))
            }
            Err(errno) => (status::number(errno), None),
        };
        Ok(DeviceOpenOut { ret, by_memory: self.way == FrameWay::Memory, properties, bell })
    }

    fn refresh(&self, _: &Caller) -> Result<DeviceRefreshOut, Fault> {
        let mut device = self.lock();
        let ret = device.packets.refresh().map_or_else(status::of_link, |()| 0);
        Ok(DeviceRefreshOut { ret, properties: PropertiesT::from(device.packets.properties()) })
    }

    fn transmit(
        &self,
        _: &Caller,
        offload: &OffloadT,
        headers: &[u8],
        payload: &[u8],
        rest: &[u8],
    ) -> Result<u32, Fault> {
        Ok(self.send(offload, [headers, payload, rest]))
    }

    fn transmit_memory(
        &self,
        _: &Caller,
        offload: &OffloadT,
        len: u32,
        memory: Option<OwnedFd>,
    ) -> Result<u32, Fault> {
        let mapped =
            memory.ok_or(Errno::INVAL).and_then(|memory| SealedFrame::map(memory, len as usize));
        Ok(match mapped {
            Ok(frame) => self.send(offload, [frame.bytes(), &[], &[]]),
            Err(errno) => status::number(errno),
        })
    }

    fn receive(&self, _: &Caller, arms: bool, seen: u64, reply: DeviceReceiveDeferredReply) {
        self.wait(Waiting::Message(reply), arms.then_some(seen));
    }

    fn receive_memory(
        &self,
        _: &Caller,
        arms: bool,
        seen: u64,
        reply: DeviceReceiveMemoryDeferredReply,
    ) {
        self.wait(Waiting::Memory(reply), arms.then_some(seen));
    }

    fn losses(&self, _: &Caller) -> Result<LossesT, Fault> {
        let counts = self.lock().packets.statistics();
        let (overruns, truncated, damaged) = (counts.overruns, counts.truncated, counts.damaged);
        Ok(LossesT { overruns, truncated, damaged })
    }
}
