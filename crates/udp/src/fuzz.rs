//! Entry point for fuzzing: arbitrary messages of `idl/udp.idl` from several clients, which come
//! and go.
//!
//! The bytes are a little program; its messages are well-formed, mutated, or nothing but bytes.
//! Nothing is sent to other hosts. These properties must hold: there is no panic; a call that waits
//! for no datagram is answered; a datagram between honest clients arrives all the same; when all
//! have gone no port is left. Debug and fuzzing builds only; not a part of the interface of this
//! crate. Used by `tests/targets` and `fuzz/fuzz_targets/udp_server.rs`. Without the right to raw
//! sockets no client gets a port, and only refusals are tried.
#![allow(clippy::unwrap_used, reason = "what fails here is what is looked for")]

use crate::server::Udp;
use crate::stubs::server::{EndpointT, UdpService, udp_wire as wire};
use core::net::Ipv4Addr;
use core::time::Duration;
use sojourn_ipc::fuzz::{Program, mutate};
use sojourn_ipc::rt::loopback::{LoopServer, Loopback, Message, build};
use sojourn_ipc::rt::{
    CallError, Deadline, Decoder, Draft, EncodeError, FdList, Forms, Reply, Service, Transport,
    bytes_of,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// The most steps of one program.
const STEPS_MAX: usize = 64;
/// The clients; two more are honest.
const CLIENTS: usize = 3;
const BIND: u16 = 0;
const SENDTO: u16 = 1;
const RECVFROM: u16 = 2;
/// A port at which nobody listens (discard, RFC 863).
const NO_PORT: u16 = 9;
/// The time limit of a call that waits for nobody.
const LIMIT: Duration = Duration::from_secs(30);

/// Returns a length: mostly small, sometimes the largest one, or one more.
fn len(program: &mut Program<'_>) -> u32 {
    match program.byte() {
        255 => crate::DATA_MAX,
        254 => crate::DATA_MAX + 1,
        253 => u32::MAX,
        small => u32::from(small & 63),
    }
}

/// The server with its clients.
struct World {
    service: Rc<RefCell<dyn Service<LoopServer>>>,
    clients: [Option<Loopback>; CLIENTS + 2],
    /// Ports that clients have got.
    ports: Vec<u16>,
}

impl World {
    fn new(server: &Arc<Udp>) -> Self {
        let service = UdpService::<Udp>::new(Arc::clone(server));
        let service: Rc<RefCell<dyn Service<LoopServer>>> = Rc::new(RefCell::new(service));
        Self { service, clients: [const { None }; CLIENTS + 2], ports: Vec::new() }
    }

    fn client(&mut self, which: usize) -> &mut Loopback {
        let service = &self.service;
        self.clients[which].get_or_insert_with(|| Loopback::new(service, which as u32))
    }

    fn endpoint(&self, program: &mut Program<'_>) -> EndpointT {
        let port = match program.byte() {
            0 => NO_PORT,
            which => {
                let at = usize::from(which) % (self.ports.len() + 1);
                self.ports.get(at).copied().unwrap_or(0)
            }
        };
        let address =
            [[0; 4], [127, 0, 0, 1], [127, 255, 255, 255]][usize::from(program.byte()) % 3];
        EndpointT { address, port }
    }

    /// Encodes a well-formed message of operation `op`.
    fn message(&self, program: &mut Program<'_>, op: u16) -> Result<Message, EncodeError> {
        let f = Forms::BODY;
        match op {
            BIND => {
                let local = self.endpoint(program);
                build(wire::bind_request_size(f, &local)?, |writer| {
                    wire::put_bind_request(writer, &local)
                })
            }
            SENDTO => {
                let (to, len) = (self.endpoint(program), len(program).min(crate::DATA_MAX));
                let data = vec![program.byte(); len as usize];
                build(wire::sendto_request_size(f, &to, &data)?, |writer| {
                    wire::put_sendto_request(writer, &to, &data)
                })
            }
            _ => {
                let size = len(program);
                build(wire::recvfrom_request_size(f, size)?, |writer| {
                    wire::put_recvfrom_request(writer, size)
                })
            }
        }
    }

    /// Returns false for a message that concerns another host, or a port that no client has had: it
    /// could be another program's.
    fn stays_here(&self, op: u16, message: &Message) -> bool {
        let mut fds = FdList::new();
        let decoder = Decoder::new(bytes_of(&message.body), &[], &[], &mut fds);
        let is_here = |at: &EndpointT| {
            let ip = Ipv4Addr::from(at.address);
            let is_known = at.port == NO_PORT || at.port == 0 || self.ports.contains(&at.port);
            (ip.is_unspecified() || ip.is_loopback()) && is_known
        };
        // What cannot be read is refused.
        match op {
            BIND => wire::get_bind_request(decoder).map_or(true, |asked| is_here(&asked.local)),
            SENDTO => wire::get_sendto_request(decoder).map_or(true, |asked| is_here(&asked.to)),
            _ => true,
        }
    }

    fn call(&mut self, which: usize, op: u16, message: &Message) {
        if !self.stays_here(op, message) {
            return;
        }
        let mut draft = self.client(which).start(op, message.body.len() * 8);
        draft.encoder().put_bytes(bytes_of(&message.body)).unwrap();
        let done = match op {
            SENDTO => draft.send(Deadline::NOW),
            RECVFROM => draft.call(Deadline::NOW).map(drop),
            _ => draft.call(Deadline::after(LIMIT)).map(|mut reply| {
                if op == BIND
                    && let Ok(out) = wire::get_bind_reply(reply.decoder())
                    && out.ret == 0
                {
                    self.ports.push(out.bound.port);
                }
            }),
        };
        match done {
            Err(CallError::Timeout) => assert_eq!(op, RECVFROM, "not answered"),
            // Like the real server, this disconnects the client.
            Err(CallError::Disconnected(_)) => self.clients[which] = None,
            _ => {}
        }
    }
}

/// Runs clients that send what `bytes` say.
pub fn messages(bytes: &[u8]) {
    let server = Arc::new(Udp::new(false));
    let mut world = World::new(&server);
    let mut program = Program::new(bytes);
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        let which = usize::from(step >> 6) % CLIENTS;
        match step & 63 {
            0 => world.clients[which] = None,
            1 => {
                let body = (0..program.byte() & 15).map(|_| program.word()).collect();
                let op = u16::from(program.byte() & 3);
                world.call(which, op, &Message { body, ..Message::default() });
            }
            step => {
                let op = u16::from(step % 3);
                let Ok(mut message) = world.message(&mut program, op) else { continue };
                if program.byte() & 7 == 7 {
                    mutate(&mut program, &mut message, &[]);
                }
                world.call(which, op, &message);
            }
        }
    }
    assert_a_datagram_arrives(&mut world);
    drop(world);
    assert!(server.is_empty(), "a port is left");
}

/// Two honest clients: one sends itself and the other a datagram.
fn assert_a_datagram_arrives(world: &mut World) {
    let f = Forms::BODY;
    let local = EndpointT { address: [127, 0, 0, 1], port: 0 };
    let size = wire::bind_request_size(f, &local).unwrap();
    let bind = build(size, |writer| wire::put_bind_request(writer, &local)).unwrap();
    let before = world.ports.len();
    world.call(CLIENTS, BIND, &bind);
    world.call(CLIENTS + 1, BIND, &bind);
    // Without raw sockets there are no ports.
    let Some(&[_, to]) = world.ports.get(before..).and_then(|ports| ports.first_chunk::<2>())
    else {
        return;
    };
    let to = EndpointT { port: to, ..local };
    let size = wire::sendto_request_size(f, &to, b"datagram").unwrap();
    let sent = build(size, |writer| wire::put_sendto_request(writer, &to, b"datagram")).unwrap();
    world.call(CLIENTS, SENDTO, &sent);
    let size = wire::recvfrom_request_size(f, 64).unwrap();
    let receive = build(size, |writer| wire::put_recvfrom_request(writer, 64)).unwrap();
    let mut draft = world.client(CLIENTS + 1).start(RECVFROM, receive.body.len() * 8);
    draft.encoder().put_bytes(bytes_of(&receive.body)).unwrap();
    let mut reply = draft.call(Deadline::after(LIMIT)).unwrap();
    let got = wire::get_recvfrom_reply(reply.decoder(), 64).unwrap();
    assert_eq!((got.ret, &got.data[..]), (0, &b"datagram"[..]));
}
