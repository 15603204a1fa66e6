//! Clients that break the rules beside honest ones, and drivers that do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

#[allow(dead_code, unreachable_pub, missing_docs, reason = "generated from idl/device.idl")]
mod stubs {
    include!(concat!(env!("OUT_DIR"), "/server/device.rs"));
}

use common::{Driver, World, frame, receive};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sojourn_driver::{Address, ConnectError, DriverInterface, Wait};
use sojourn_ipc::rt::{Caller, Fault};
use sojourn_ipc::{Connection, Deadline, Endpoint};
use sojourn_netif::{Interface, LinkError, Outgoing, SendError};
use std::sync::Mutex;
use stubs::{
    ArrivalT, DeviceClient, DeviceOpenOut, DeviceReceiveDeferredReply,
    DeviceReceiveMemoryDeferredReply, DeviceRefreshOut, DeviceServer, DeviceService, LossesT,
    OffloadT, PropertiesT, WAITING_MAX, device_connect_options, device_server_options,
};

fn random(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

#[test]
fn rubbish_ends_its_sender_and_nobody_else() {
    let Some(mut world) = World::new() else { return };
    let driver = Driver::start(&world, &[]);
    let mut honest = driver.client();
    let mut seed = 1;
    for round in 0..100 {
        let options = device_connect_options();
        let mut connection = Connection::connect(driver.address(), &options).unwrap();
        for op in [round % 8, 0xffff] {
            let bytes: Vec<u8> =
                (0..random(&mut seed) % 200).map(|_| random(&mut seed) as u8).collect();
            let mut draft = connection.start(op, bytes.len());
            draft.encoder().put_bytes(&bytes).unwrap();
            let _ = draft.submit(Deadline::after(common::LIMIT)).map(drop);
        }
    }
    world.sees(&mut honest, 7);
    world.send(8);
    receive(&mut honest, 8);
}

#[test]
fn more_calls_than_may_wait_and_memory_that_can_change_are_refused() {
    let Some(mut world) = World::new() else { return };
    let driver = Driver::start(&world, &[]);
    let mut honest = driver.client();
    let connection = Connection::connect(driver.address(), &device_connect_options()).unwrap();
    let mut greedy = DeviceClient::bind(connection).unwrap();
    assert_eq!(greedy.open().unwrap().ret, 0);
    assert_eq!(greedy.open().unwrap().ret, libc::EEXIST.unsigned_abs());
    let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&memory, 100).unwrap();
    let offload = OffloadT { bytes: [0xff; 10] };
    let einval = libc::EINVAL.unsigned_abs();
    assert_eq!(greedy.transmit_memory(&offload, 100, Some(memory.as_fd())).unwrap(), einval);
    // An offload header that makes no sense is the kernel's to refuse.
    assert_ne!(greedy.transmit(&offload, &frame(1), &[], &[]).unwrap(), 0);
    let base = sojourn_ipc::rt::stub::bind(
        greedy.transport(),
        &stubs::DEVICE_ID,
        Deadline::after(common::LIMIT),
    )
    .unwrap();
    let mut waiting = Vec::new();
    for _ in 0..=WAITING_MAX {
        let forms = sojourn_ipc::rt::Forms::machine();
        let size = stubs::device_wire::receive_request_size(forms, true, u64::MAX).unwrap();
        let mut draft = greedy.transport().start(base + 4, size.body_len);
        let mut writer = draft.encoder();
        writer.set_forms(size.forms);
        stubs::device_wire::put_receive_request(&mut writer, true, u64::MAX).unwrap();
        waiting.push(draft.submit(Deadline::after(common::LIMIT)).unwrap());
    }
    let last = waiting.pop().unwrap();
    let mut reply = greedy.transport().finish(last, Deadline::after(common::LIMIT)).unwrap();
    let told = stubs::device_wire::get_receive_reply(reply.decoder()).unwrap();
    assert_eq!((told.ret, told.frame.len()), (libc::EBUSY.unsigned_abs(), 0));
    world.sees(&mut honest, 9);
    world.send(10);
    receive(&mut honest, 10);
}

/// What a hostile driver does.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Malice {
    NoBell,
    /// Rings all the time, and answers no receive.
    OnlyRings,
    /// Rings no bell that it was asked to ring.
    Silent,
    OpenMemory,
    WrongLength,
    NoMemory,
    EmptyFrame,
    Statuses,
    /// Does not open the device, with a status that is no error number.
    OddStatus,
}

struct Hostile {
    malice: Malice,
    bell: Mutex<Option<OwnedFd>>,
    unanswered: Mutex<Vec<DeviceReceiveDeferredReply>>,
}

impl Hostile {
    fn properties() -> PropertiesT {
        PropertiesT {
            index: u32::MAX,
            mtu: u32::MAX,
            gso_max: u32::MAX,
            is_ethernet: true,
            has_address: true,
            address: [0xff; 6],
            completes_checksums: true,
        }
    }
}

const ARRIVAL: ArrivalT = ArrivalT {
    offload: OffloadT { bytes: [0xff; 10] },
    has_tag: true,
    tag_type: 0xffff,
    tag_control: 0xffff,
    has_time: true,
    time_ns: u64::MAX,
};

impl DeviceServer for Hostile {
    fn open(&self, _: &Caller) -> Result<DeviceOpenOut, Fault> {
        let flags = SocketFlags::CLOEXEC;
        let (own, bell) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        if self.malice != Malice::Silent {
            rustix::io::write(&own, &[0; 64]).unwrap();
        }
        *self.bell.lock().unwrap() = Some(own);
        let by_memory =
            matches!(self.malice, Malice::OpenMemory | Malice::WrongLength | Malice::NoMemory);
        let bell = (self.malice != Malice::NoBell).then_some(bell);
        let ret = if self.malice == Malice::OddStatus { 4096 } else { 0 };
        Ok(DeviceOpenOut { ret, by_memory, properties: Self::properties(), bell })
    }

    fn refresh(&self, _: &Caller) -> Result<DeviceRefreshOut, Fault> {
        Ok(DeviceRefreshOut { ret: u32::MAX, properties: Self::properties() })
    }

    fn transmit(
        &self,
        _: &Caller,
        _: &OffloadT,
        _: &[u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<u32, Fault> {
        Ok(u32::MAX)
    }

    fn transmit_memory(
        &self,
        _: &Caller,
        _: &OffloadT,
        _: u32,
        _: Option<OwnedFd>,
    ) -> Result<u32, Fault> {
        Ok(0x8000_0000)
    }

    fn receive(&self, _: &Caller, _: bool, _: u64, reply: DeviceReceiveDeferredReply) {
        if self.malice == Malice::OnlyRings {
            return self.unanswered.lock().unwrap().push(reply);
        }
        let (status, data): (u32, &[u8]) = match self.malice {
            Malice::EmptyFrame => (0, &[]),
            Malice::Statuses => (u32::MAX, b"frame"),
            _ => (0, b"frame"),
        };
        let _ = reply.lend(status, &ARRIVAL, data);
    }

    fn receive_memory(&self, _: &Caller, _: bool, _: u64, reply: DeviceReceiveMemoryDeferredReply) {
        let memory = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&memory, 100).unwrap();
        let len = if self.malice == Malice::WrongLength { u32::MAX } else { 100 };
        let memory = (self.malice != Malice::NoMemory).then_some(memory.as_fd());
        let _ = reply.lend(0, &ARRIVAL, len, memory);
    }

    fn losses(&self, _: &Caller) -> Result<LossesT, Fault> {
        Ok(LossesT { overruns: u64::MAX, truncated: u64::MAX, damaged: u64::MAX })
    }
}

fn connect(malice: Malice) -> (Endpoint, Result<DriverInterface, ConnectError>) {
    let endpoint = Endpoint::unnamed(device_server_options()).unwrap();
    let hostile = Hostile { malice, bell: Mutex::default(), unanswered: Mutex::default() };
    let mut service = DeviceService::<Hostile>::new(hostile);
    let mut thread = endpoint.server();
    std::thread::spawn(move || service.serve(&mut thread, Deadline::NEVER));
    let client = Address::Descriptor(endpoint.offer().unwrap());
    let made = DriverInterface::connect(client, Wait::Park);
    (endpoint, made)
}

#[test]
fn a_hostile_driver_costs_its_client_frames_and_nothing_else() {
    for malice in [Malice::NoBell, Malice::OddStatus] {
        assert!(matches!(connect(malice).1, Err(ConnectError::Refused(_))), "{malice:?}");
    }
    for malice in [
        Malice::Silent,
        Malice::OpenMemory,
        Malice::WrongLength,
        Malice::NoMemory,
        Malice::EmptyFrame,
        Malice::Statuses,
    ] {
        let (_endpoint, made) = connect(malice);
        let mut client = made.unwrap();
        let brings = malice == Malice::Silent;
        let mut taken = 0;
        let mut ended = Ok(0);
        for _ in 0..100 {
            let mut look = |received: sojourn_netif::Received<'_>| {
                assert_eq!((received.frame, brings), (&b"frame"[..], true), "{malice:?}");
                taken += 1;
            };
            ended = client.receive(4, &mut look);
            if ended.is_err() {
                break;
            }
        }
        // A bell that is not rung though it was armed ends the use of the driver.
        assert!(matches!(ended, Ok(_) | Err(LinkError::Gone)), "{malice:?} {ended:?}");
        assert!(taken <= 400, "no more than it was asked for");
        let sent = client.send(&Outgoing::plain(&frame(1)));
        assert!(matches!(sent, Err(SendError::Link(_))), "{malice:?}: {sent:?}");
        let _ = client.statistics();
    }
}

/// Its bell is readable for ever: who sleeps on it would never sleep.
#[test]
fn a_driver_that_only_rings_is_given_up() {
    let (_endpoint, made) = connect(Malice::OnlyRings);
    let mut client = made.unwrap();
    let until = std::time::Instant::now() + common::LIMIT;
    loop {
        assert!(std::time::Instant::now() < until, "it rings on");
        common::wait(&client, until);
        match client.receive(4, &mut |_| unreachable!("no answer")) {
            Ok(count) => assert_eq!(count, 0),
            Err(error) => {
                assert!(matches!(error, LinkError::Gone), "{error:?}");
                return;
            }
        }
    }
}
