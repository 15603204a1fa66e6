//! Entry points for fuzzing: arbitrary messages of `idl/device.idl` from a client to the driver,
//! and arbitrary answers of a driver to its client (`client`).
//!
//! The bytes are a little program; its messages are well-formed, mutated, or nothing but bytes. The
//! device is the loopback device of a network namespace of the fuzzer's own, so that frames that
//! are sent arrive. These properties must hold: there is no panic; a call that waits for no frame
//! is answered; no more calls wait than may; the device can be used all the same. Debug and fuzzing
//! builds only; not a part of the interface of this crate. Used by `tests/targets` and
//! `fuzz/fuzz_targets/driver_*.rs`. Where no such namespace can be made nothing is done.
#![allow(clippy::unwrap_used, reason = "what fails here is what is looked for")]
#![allow(unsafe_code, reason = "the state of a device, which no safe wrapper sets")]

mod client;

pub use client::answers;

use crate::sealed;
use crate::server::Driver;
use crate::stubs::server::{DeviceService, OffloadT, device_wire as wire};
use crate::way::FrameWay;
use core::time::Duration;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketType};
use sojourn_ipc::fuzz::{Program, mutate};
use sojourn_ipc::rt::loopback::{LoopServer, Loopback, Message, build};
use sojourn_ipc::rt::{
    CallError, Deadline, Draft, EncodeError, Forms, Reply, Service, Transport, bytes_of,
};
use sojourn_netif::{Message as Packets, PacketOptions, packet};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

/// The most steps of one program.
const STEPS_MAX: usize = 64;
/// The number of operations, and those that wait for a frame.
const OPERATIONS: u8 = 7;
const TRANSMIT: u16 = 2;
const TRANSMIT_MEMORY: u16 = 3;
const RECEIVE: u16 = 4;
const RECEIVE_MEMORY: u16 = 5;
/// The time limit of a call that waits for no frame.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns bytes: mostly few, sometimes as many as a message has, or one more.
fn data(program: &mut Program<'_>) -> Vec<u8> {
    let len = match program.byte() {
        255 => 65_557,
        254 => 65_558,
        253 => 1514,
        small => usize::from(small & 63),
    };
    let [first, fill] = program.take();
    let mut data = vec![fill; len];
    data.iter_mut().take(1).for_each(|byte| *byte = first);
    data
}

/// Returns a packet socket on the loopback device of a network namespace that nobody else has.
fn packets() -> Option<OwnedFd> {
    static NAMESPACE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    // The thread takes the namespace with it; sockets keep it.
    let made = || std::thread::spawn(lonely_device).join().unwrap();
    let first = NAMESPACE.get_or_init(made).as_ref()?;
    rustix::io::fcntl_dupfd_cloexec(first, 0).ok()
}

fn lonely_device() -> Option<OwnedFd> {
    // SAFETY: only this thread's network namespace changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.ok()?;
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
    // SAFETY: all zeroes are such a structure.
    let mut device: libc::ifreq = unsafe { core::mem::zeroed() };
    // SAFETY: the text has three characters, with its end.
    let name = unsafe { &*c"lo".as_ptr().cast::<[core::ffi::c_char; 3]>() };
    device.ifr_name[..3].copy_from_slice(name);
    device.ifr_ifru.ifru_flags = libc::IFF_UP as i16;
    // SAFETY: the kernel reads `device`.
    let up = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const device) };
    let packets = packet::open(&PacketOptions::default()).ok()?;
    let index = packet::index_of(packets.as_fd(), "lo").ok()?;
    packet::bind(packets.as_fd(), index).ok()?;
    (up == 0).then_some(packets)
}

/// The driver with its client.
struct World {
    driver: Arc<Driver>,
    service: Rc<RefCell<dyn Service<LoopServer>>>,
    client: Loopback,
    memory: Vec<OwnedFd>,
}

impl World {
    fn new(way: FrameWay) -> Option<Self> {
        let driver = Arc::new(Driver::new(Packets::from_descriptor(packets()?).ok()?, way).ok()?);
        let service = DeviceService::<Driver>::new(Arc::clone(&driver));
        let service: Rc<RefCell<dyn Service<LoopServer>>> = Rc::new(RefCell::new(service));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let open = memfd_create("open", flags).ok()?;
        ftruncate(&open, 64).ok()?;
        let (reader, _) = std::io::pipe().ok()?;
        let memory = vec![sealed::seal(&[&[1; 64]]).ok()?, open, reader.into()];
        let client = Loopback::new(&service, 0);
        Some(Self { driver, service, client, memory })
    }

    /// Encodes a well-formed message of operation `op`.
    fn message(&self, program: &mut Program<'_>, op: u16) -> Result<Message, EncodeError> {
        let f = Forms::BODY;
        let bytes = core::array::from_fn(|_| program.byte());
        let offload =
            if bytes[0] & 1 == 0 { OffloadT { bytes: [0; 10] } } else { OffloadT { bytes } };
        match op {
            TRANSMIT => {
                let [one, two, three] = [(); 3].map(|()| data(program));
                let size = wire::transmit_request_size(f, &offload, &one, &two, &three)?;
                build(size, |writer| {
                    wire::put_transmit_request(writer, &offload, &one, &two, &three)
                })
            }
            TRANSMIT_MEMORY => {
                let (which, len) = (usize::from(program.byte()), data(program).len() as u32);
                let memory = self.memory.get(which % (self.memory.len() + 1)).map(AsFd::as_fd);
                build(wire::transmit_memory_request_size(f, &offload, len, memory)?, |writer| {
                    wire::put_transmit_memory_request(writer, &offload, len, memory)
                })
            }
            RECEIVE => {
                let (arms, seen) = (bytes[1] & 1 == 1, u64::from(bytes[2]));
                build(wire::receive_request_size(f, arms, seen)?, |writer| {
                    wire::put_receive_request(writer, arms, seen)
                })
            }
            RECEIVE_MEMORY => {
                let (arms, seen) = (bytes[1] & 1 == 1, u64::from(bytes[2]));
                build(wire::receive_memory_request_size(f, arms, seen)?, |writer| {
                    wire::put_receive_memory_request(writer, arms, seen)
                })
            }
            // The others have no arguments.
            _ => Ok(Message::default()),
        }
    }

    fn call(&mut self, op: u16, message: &Message) {
        let waits = matches!(op, RECEIVE | RECEIVE_MEMORY);
        let limit = if waits { Deadline::NOW } else { Deadline::after(LIMIT) };
        let mut draft = self.client.start(op, message.body.len() * 8);
        let mut writer = draft.encoder();
        writer.put_bytes(bytes_of(&message.body)).unwrap();
        // A mutation may have taken some away.
        for fd in (0..message.fds.len()).filter_map(|at| message.fds.peek(at)) {
            writer.put_fd(fd).unwrap();
        }
        match draft.call(limit).map(drop) {
            Err(CallError::Timeout) => assert!(waits, "operation {op} is not answered"),
            // Like the real driver, this disconnects the client.
            Err(CallError::Disconnected(_)) => self.client = Loopback::new(&self.service, 0),
            _ => {}
        }
    }
}

/// Runs a client that sends what `bytes` say.
pub fn messages(bytes: &[u8]) {
    let mut program = Program::new(bytes);
    let way = if program.byte() & 1 == 0 { FrameWay::Message } else { FrameWay::Memory };
    let Some(mut world) = World::new(way) else { return };
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        match step {
            0 => drop(world.driver.look(true)),
            1 => {
                let body = (0..program.byte() & 15).map(|_| program.word()).collect();
                let op = u16::from(program.byte());
                world.call(op, &Message { body, ..Message::default() });
            }
            step => {
                let op = u16::from(step % OPERATIONS);
                let Ok(mut message) = world.message(&mut program, op) else { continue };
                if program.byte() & 7 == 7 {
                    mutate(&mut program, &mut message, &[]);
                }
                world.call(op, &message);
            }
        }
    }
    assert_frames_come_and_go(&mut world);
}

/// Sends a frame, and has the calls that were left answered: the device works still.
fn assert_frames_come_and_go(world: &mut World) {
    let size = wire::transmit_request_size(Forms::BODY, &NONE, &FRAME, &[], &[]).unwrap();
    let message = build(size, |writer| wire::put_transmit_request(writer, &NONE, &FRAME, &[], &[]));
    let message = message.unwrap();
    for _ in 0..3 {
        let mut draft = world.client.start(TRANSMIT, message.body.len() * 8);
        draft.encoder().put_bytes(bytes_of(&message.body)).unwrap();
        let mut reply = draft.call(Deadline::after(LIMIT)).unwrap();
        let sent = wire::get_transmit_reply(reply.decoder()).unwrap();
        if sent.ret == 0 {
            // Those that wait are not more than the frames that may be there.
            let _ = world.driver.look(false);
            return;
        }
        // An error of the device is told once.
        let _ = world.driver.look(true);
    }
    panic!("no frame goes out");
}

const NONE: OffloadT = OffloadT { bytes: [0; 10] };
/// To everybody, of a type for experiments (IEEE 802).
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};
