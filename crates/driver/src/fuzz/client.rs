//! A client whose driver is hostile: its answers, its bell, the words that it shares with the
//! client and the descriptors that it hands over are what the bytes say.
//!
//! The driver acts in the client's thread, whenever that has sent a request or passes another
//! labelled point (`sojourn_shm::fault`). These properties must hold: there is no panic and no
//! wait; no more frames come than were asked for, none is empty, too long, or in memory that can
//! change; a device that is gone stays so; no descriptor is left. Not here: the client's requests
//! to an honest driver (`fuzz`).

use crate::client::DriverInterface;
use crate::sealed;
use crate::stubs::server::{ArrivalT, LossesT, OffloadT, PropertiesT, device_wire as wire};
use core::time::Duration;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};
use sojourn_ipc::fuzz::{
    Asked, HostileServer, Hostility, Program, hostile_server, mutate, with_act,
};
use sojourn_ipc::rt::loopback::{Message, build};
use sojourn_ipc::rt::{BIND_OP, EncodeError, Forms};
use sojourn_netif::{FRAME_BYTES_MAX, Interface, LinkError, Outgoing, SendError};
use std::cell::RefCell;
use std::io::PipeReader;
use std::sync::OnceLock;

/// The most steps of one program.
const STEPS_MAX: usize = 64;
/// The numbers of the operations.
const OPEN: u16 = 0;
const REFRESH: u16 = 1;
const TRANSMIT: u16 = 2;
const TRANSMIT_MEMORY: u16 = 3;
const RECEIVE: u16 = 4;
const RECEIVE_MEMORY: u16 = 5;
/// The lengths of frames in memory: short, the longest, and too long.
const FRAME_LENS: [usize; 3] = [64, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1];
/// The most frames of one look.
const BUDGET: usize = 4;
/// The longest time until the kernel has closed the descriptors of a socket that is closed.
const LIMIT: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// The program, and the driver that acts by it.
struct Play<'b> {
    program: Program<'b>,
    driver: Driver,
}

/// The hostile driver.
struct Driver {
    server: HostileServer,
    /// The driver's end of the bell.
    bell: Option<OwnedFd>,
    /// Descriptors that may be handed over: first memory that is right.
    stock: Vec<OwnedFd>,
    /// The end of a pipe whose other end is among these.
    all_closed: PipeReader,
}

impl Driver {
    fn new(server: HostileServer) -> Option<Self> {
        let (all_closed, writer) = std::io::pipe().ok()?;
        let open = memfd_create("open", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).ok()?;
        ftruncate(&open, 64).ok()?;
        let again = |memory: &OwnedFd| memory.try_clone().ok();
        let mut stock: Vec<OwnedFd> = sealed_frames().iter().filter_map(again).collect();
        stock.extend([open, writer.into(), std::fs::File::open("/dev/null").ok()?.into()]);
        Some(Self { server, bell: None, stock, all_closed })
    }

    fn fd(&self, which: u8) -> Option<BorrowedFd<'_>> {
        self.stock.get(usize::from(which) % (self.stock.len() + 1)).map(AsFd::as_fd)
    }

    /// Does what the next bytes say; zeros: answers every call that waits for nothing.
    fn act(&mut self, program: &mut Program<'_>) {
        self.server.take_requests();
        let how = program.byte();
        if how & 0xe0 == 0xe0 {
            self.server.meddle(program);
        }
        if how & 0x18 != 0x18 {
            while let Some(at) = self.server.asked.iter().position(|asked| !waits(asked.op)) {
                let asked = self.server.asked.remove(at);
                self.answer(program, asked);
            }
        }
        for _ in 0..how & 3 {
            let count = self.server.asked.len();
            if count > 0 {
                let at = if how & 4 == 0 { 0 } else { usize::from(program.byte()) % count };
                let asked = self.server.asked.remove(at);
                self.answer(program, asked);
            }
        }
        match program.byte() {
            // An honest driver rings after each answer that it was asked to ring for.
            0..0xc0 if how & 3 != 0 => self.ring(1),
            0xc0..0xe0 => self.ring(usize::from(how)),
            0xff => self.bell = None,
            _ => {}
        }
    }

    fn ring(&self, count: usize) {
        if let Some(bell) = &self.bell {
            let _ = send(bell, &[0; 256][..count], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    fn answer(&mut self, program: &mut Program<'_>, asked: Asked) {
        let how = program.byte();
        if how >= 0xf8 {
            return self.server.fault(asked, program.word() as u32);
        }
        let Ok(mut message) = self.message(program, asked.op) else { return };
        if how & 7 == 7 {
            mutate(program, &mut message, &self.stock);
        }
        self.server.answer(asked, &message);
    }

    /// Encodes a well-formed answer.
    fn message(&mut self, program: &mut Program<'_>, op: u16) -> Result<Message, EncodeError> {
        let f = if program.byte() & 1 == 0 { Forms::BODY } else { Forms::machine() };
        match op {
            BIND_OP => Ok(Message { body: vec![base(program)], ..Message::default() }),
            OPEN => self.open(program, f),
            REFRESH => {
                let (ret, properties) = (status(program), properties(program));
                build(wire::refresh_reply_size(f, ret, &properties)?, |writer| {
                    wire::put_refresh_reply(writer, ret, &properties)
                })
            }
            TRANSMIT => {
                let ret = status(program);
                build(wire::transmit_reply_size(f, ret)?, |writer| {
                    wire::put_transmit_reply(writer, ret)
                })
            }
            TRANSMIT_MEMORY => {
                let ret = status(program);
                build(wire::transmit_memory_reply_size(f, ret)?, |writer| {
                    wire::put_transmit_memory_reply(writer, ret)
                })
            }
            RECEIVE => {
                let (ret, arrival, frame) = (status(program), arrival(program), frame(program));
                build(wire::receive_reply_size(f, ret, &arrival, &frame)?, |writer| {
                    wire::put_receive_reply(writer, ret, &arrival, &frame)
                })
            }
            RECEIVE_MEMORY => self.receive_memory(program, f),
            _ => {
                let [overruns, truncated, damaged] = [(); 3].map(|()| program.word());
                let losses = LossesT { overruns, truncated, damaged };
                build(wire::losses_reply_size(f, &losses)?, |writer| {
                    wire::put_losses_reply(writer, &losses)
                })
            }
        }
    }

    fn open(&mut self, program: &mut Program<'_>, f: Forms) -> Result<Message, EncodeError> {
        let (ret, properties) = (status(program), properties(program));
        let [by_memory, which] = program.take();
        let by_memory = by_memory & 1 == 1;
        let flags = SocketFlags::CLOEXEC;
        let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
        let (own, bell) = pair.map_err(|_| EncodeError::Descriptors)?;
        self.bell = Some(own);
        let bell = if which < 0xc0 { Some(bell.as_fd()) } else { self.fd(which) };
        build(wire::open_reply_size(f, ret, by_memory, &properties, bell)?, |writer| {
            wire::put_open_reply(writer, ret, by_memory, &properties, bell)
        })
    }

    fn receive_memory(&self, program: &mut Program<'_>, f: Forms) -> Result<Message, EncodeError> {
        let (ret, arrival, which) = (status(program), arrival(program), program.byte());
        let right = FRAME_LENS.get(usize::from(which) % (self.stock.len() + 1));
        let right = right.map_or(64, |len| *len as u32);
        let len = match program.byte() {
            255 => program.word() as u32,
            254 => 0,
            253 => right + 1,
            _ => right,
        };
        let memory = self.fd(which);
        build(wire::receive_memory_reply_size(f, ret, &arrival, len, memory)?, |writer| {
            wire::put_receive_memory_reply(writer, ret, &arrival, len, memory)
        })
    }

    /// Checks that the client has closed whatever it was given.
    fn assert_all_closed(self) {
        let Self { server, bell, stock, all_closed } = self;
        drop((server, bell, stock));
        let mut polled = [PollFd::new(&all_closed, PollFlags::empty())];
        let _ = poll(&mut polled, Some(&LIMIT));
        assert!(polled[0].revents().contains(PollFlags::HUP), "a descriptor is left");
    }
}

/// Returns memory with frames, of [`FRAME_LENS`] bytes.
fn sealed_frames() -> &'static [OwnedFd] {
    static FRAMES: OnceLock<Vec<OwnedFd>> = OnceLock::new();
    let seal = |len| sealed::seal(&[&vec![1; len]]).ok();
    FRAMES.get_or_init(|| FRAME_LENS.into_iter().filter_map(seal).collect())
}

fn waits(op: u16) -> bool {
    matches!(op, RECEIVE | RECEIVE_MEMORY)
}

/// Returns the number of the interface's first operation, mostly 0.
fn base(program: &mut Program<'_>) -> u64 {
    match program.byte() {
        255 => program.word(),
        _ => 0,
    }
}

/// Returns a status: mostly success, sometimes an error number or any.
fn status(program: &mut Program<'_>) -> u32 {
    match program.byte() {
        255 => program.word() as u32,
        254 => u32::MAX,
        253 => 4096,
        error @ 200.. => u32::from(error - 199),
        _ => 0,
    }
}

fn properties(program: &mut Program<'_>) -> PropertiesT {
    let flags = program.byte();
    PropertiesT {
        index: program.word() as u32,
        mtu: if flags & 1 == 0 { 1500 } else { u32::MAX },
        gso_max: if flags & 2 == 0 { 0 } else { u32::MAX },
        is_ethernet: flags & 4 == 0,
        has_address: flags & 8 == 0,
        address: program.take(),
        completes_checksums: flags & 16 == 0,
    }
}

fn arrival(program: &mut Program<'_>) -> ArrivalT {
    let flags = program.byte();
    let offload = if flags & 1 == 0 { [0; 10] } else { program.take() };
    ArrivalT {
        offload: OffloadT { bytes: offload },
        has_tag: flags & 2 != 0,
        tag_type: 0x8100,
        tag_control: u16::from(flags),
        has_time: flags & 4 != 0,
        time_ns: u64::from(flags) << 56,
    }
}

/// Returns a frame: mostly short, sometimes the longest.
fn frame(program: &mut Program<'_>) -> Vec<u8> {
    let len = match program.byte() {
        255 => FRAME_BYTES_MAX,
        254 => 1514,
        small => usize::from(small),
    };
    vec![1; len]
}

/// Runs a client whose driver does what `bytes` say.
pub fn answers(bytes: &[u8]) {
    // As the options of the interface say.
    let Some(Hostility { connection, server }) = hostile_server(16, 69_632) else { return };
    let Some(driver) = Driver::new(server) else { return };
    let play = RefCell::new(Play { program: Program::new(bytes), driver });
    let mut act = |_: &str| {
        let Play { program, driver } = &mut *play.borrow_mut();
        driver.act(program);
    };
    with_act(&mut act, || {
        if let Ok(device) = DriverInterface::over(connection, Duration::ZERO, Ok) {
            use_device(device, &play);
        }
    });
    play.into_inner().driver.assert_all_closed();
}

fn use_device(mut device: DriverInterface, play: &RefCell<Play<'_>>) {
    let mut is_gone = false;
    for _ in 0..STEPS_MAX {
        let Some(step) = play.borrow_mut().program.step() else { break };
        match step & 7 {
            0..3 => is_gone = receive(&mut device, is_gone),
            3 => {
                let frame = frame(&mut play.borrow_mut().program);
                let sent =
                    device.send(&Outgoing { parts: [&[], &frame, &[]], ..Outgoing::plain(&[]) });
                assert!(!is_gone || sent == Err(LinkError::Gone.into()), "{sent:?}");
                is_gone |= matches!(sent, Err(SendError::Link(LinkError::Gone)));
            }
            4 => _ = device.refresh(),
            5 => _ = (device.statistics(), device.properties()),
            _ => {
                let Play { program, driver } = &mut *play.borrow_mut();
                driver.act(program);
            }
        }
    }
}

/// Looks for frames. `was_gone`: the device has said that it is gone. Returns true if it says so.
fn receive(device: &mut DriverInterface, was_gone: bool) -> bool {
    let mut taken = 0;
    let found = device.receive(BUDGET, &mut |received| {
        taken += 1;
        let len = received.frame.len();
        assert!((1..=FRAME_BYTES_MAX).contains(&len), "a frame of {len} bytes");
        core::hint::black_box(received.frame.iter().fold(0, |sum: u8, byte| sum ^ byte));
    });
    assert!(taken <= BUDGET && found.is_ok_and(|count| count == taken) != found.is_err());
    assert!(!was_gone || found == Err(LinkError::Gone) && taken == 0, "{found:?}");
    matches!(found, Err(LinkError::Gone))
}
