//! Entry point for fuzzing: arbitrary messages of `idl/protocol.idl`, with and without descriptors,
//! from several clients of one server, which come and go.
//!
//! The bytes are a little program; its messages are well-formed, mutated, or nothing but bytes.
//! These properties must hold: there is no panic; a call that may not wait for others is answered;
//! an honest client is served all the same; when all have gone nothing of them is left. Debug and
//! fuzzing builds only; not a part of the interface of this crate. Used by `tests/targets` and
//! `fuzz/fuzz_targets/protocol_server.rs`. Not here: messages that break the rules of the IPC
//! itself (`sojourn_ipc::fuzz`).
#![allow(clippy::unwrap_used, reason = "what fails here is what is looked for")]

use crate::server::Protocol;
use core::time::Duration;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_ipc::ClientId;
use sojourn_ipc::fuzz::{Program, mutate};
use sojourn_ipc::rt::loopback::{LoopServer, Loopback, Message, build};
use sojourn_ipc::rt::{
    CallError, Credentials, Deadline, Draft, EncodeError, Forms, Reply, Service, Transport,
    bytes_of,
};
use sojourn_session::protocol::server::{
    AddressT, ProtocolServer, ProtocolService, TokenT, protocol_wire as wire,
};
use std::cell::RefCell;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// The most steps of one program.
const STEPS_MAX: usize = 64;
/// The number of clients.
const CLIENTS: usize = 3;
/// The number of operations.
const OPERATIONS: u8 = 18;
/// The operations that are answered later.
const RECEIVE: u16 = 3;
const WAIT: u16 = 4;
const RECEIVE_FROM: u16 = 17;
const OPEN: u16 = 0;
const GROUP: u16 = 14;
/// The time limit of a call that waits for nobody else.
const LIMIT: Duration = Duration::from_secs(30);
/// The server's environment: no session server, so that sessions stay in the kernel.
const ENVIRONMENT: &[u8] = b"SOJOURN_SERVER=/nowhere/server";

/// Returns a number that is mostly small, and sometimes at an edge or any.
fn number(program: &mut Program<'_>) -> u32 {
    match program.byte() {
        255 => program.word() as u32,
        254 => u32::MAX,
        253 => 1 << 31,
        252 => 65_536,
        small => u32::from(small & 15),
    }
}

fn data(program: &mut Program<'_>) -> Vec<u8> {
    let len = number(program).min(65_536);
    vec![program.byte(); len as usize]
}

/// The one server, whose threads never end.
fn server() -> &'static Arc<Protocol> {
    static SERVER: OnceLock<Arc<Protocol>> = OnceLock::new();
    SERVER.get_or_init(|| {
        sojourn_library::library().keep_environment([ENVIRONMENT].into_iter());
        Protocol::start().unwrap()
    })
}

/// The clients, and what they have.
struct World {
    service: Rc<RefCell<dyn Service<LoopServer>>>,
    clients: [Option<Loopback>; CLIENTS],
    tokens: Vec<TokenT>,
    ends: Vec<OwnedFd>,
    /// The other ends, at which nobody reads.
    _others: Vec<OwnedFd>,
}

/// Both ends of a TCP connection. Their end is a reset, which leaves no port behind.
fn connection() -> [TcpStream; 2] {
    static LISTENER: OnceLock<TcpListener> = OnceLock::new();
    let listener = LISTENER.get_or_init(|| TcpListener::bind("127.0.0.1:0").unwrap());
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let ends = [one, listener.accept().unwrap().0];
    for end in &ends {
        rustix::net::sockopt::set_socket_linger(end, Some(Duration::ZERO)).unwrap();
    }
    ends
}

impl World {
    fn new() -> Self {
        let service = ProtocolService::<Protocol>::new(Arc::clone(server()));
        let [one, other] = connection();
        let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        near.connect(far.local_addr().unwrap()).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let ends = vec![one.into(), near.into(), reader.into()];
        Self {
            service: Rc::new(RefCell::new(service)),
            clients: [const { None }; CLIENTS],
            tokens: Vec::new(),
            ends,
            _others: vec![other.into(), far.into(), writer.into()],
        }
    }

    /// Returns a client, which comes if it is not there.
    fn client(&mut self, which: usize) -> &mut Loopback {
        let service = &self.service;
        self.clients[which].get_or_insert_with(|| {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let index = NEXT.fetch_add(1, Ordering::Relaxed);
            let id = ClientId { index, generation: 1 };
            server().client_connected(id, Credentials::default());
            Loopback::new(service, index)
        })
    }

    /// Makes a call, and notes what it gives.
    fn call(&mut self, which: usize, op: u16, message: &Message) {
        let waits = matches!(op, RECEIVE | WAIT | RECEIVE_FROM);
        let limit = if waits { Deadline::NOW } else { Deadline::after(LIMIT) };
        let fds: Vec<BorrowedFd<'_>> =
            (0..message.fds.len()).filter_map(|at| message.fds.peek(at)).collect();
        let mut draft = self.client(which).start(op, message.body.len() * 8);
        let mut writer = draft.encoder();
        writer.put_bytes(bytes_of(&message.body)).unwrap();
        fds.into_iter().for_each(|fd| writer.put_fd(fd).unwrap());
        match draft.call(limit) {
            Ok(mut reply) if op == OPEN => {
                let opened = wire::get_open_reply(reply.decoder()).unwrap();
                self.tokens.push(opened.token);
            }
            Ok(mut reply) if op == GROUP => {
                let made = wire::get_group_reply(reply.decoder()).unwrap();
                self.tokens.push(made.group);
            }
            Ok(_) => {}
            Err(CallError::Timeout) => assert!(waits, "operation {op} is not answered"),
            // Like the real server, this disconnects the client.
            Err(CallError::Disconnected(_)) => self.clients[which] = None,
            Err(_) => {}
        }
    }

    fn token(&self, program: &mut Program<'_>) -> TokenT {
        let at = usize::from(program.byte());
        let any = TokenT { half: [u64::MAX, at as u64] };
        self.tokens.get(at % (self.tokens.len() + 1)).copied().unwrap_or(any)
    }

    /// Encodes a well-formed message of operation `op`.
    fn message(&self, program: &mut Program<'_>, op: u16) -> Result<Message, EncodeError> {
        let f = Forms::BODY;
        let session = number(program);
        match op {
            OPEN => {
                let (which, is_sole) = (usize::from(program.byte()), session & 1 == 0);
                let end = self.ends.get(which % (self.ends.len() + 1)).map(AsFd::as_fd);
                build(wire::open_request_size(f, end, is_sole)?, |writer| {
                    wire::put_open_request(writer, end, is_sole)
                })
            }
            1 => {
                let token = self.token(program);
                build(wire::attach_request_size(f, &token)?, |writer| {
                    wire::put_attach_request(writer, &token)
                })
            }
            2 => {
                let data = data(program);
                build(wire::send_request_size(f, session, &data)?, |writer| {
                    wire::put_send_request(writer, session, &data)
                })
            }
            RECEIVE | RECEIVE_FROM => receive(program, op, session),
            WAIT | 6 | 8 => two_words(program, op, session),
            9 | 10 => option(program, op, session),
            11..=13 => one_word(op, session),
            15 => {
                let token = self.token(program);
                build(wire::join_request_size(f, &token)?, |writer| {
                    wire::put_join_request(writer, &token)
                })
            }
            16 => {
                // Only this host: the sockets have addresses of it.
                let ip = [127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, program.byte()];
                let (version, port) = (number(program) as u16, number(program) as u16);
                let to = AddressT { ip, scope: 0, flow: 0, port, version };
                let (segment, data) = (number(program), data(program));
                build(wire::send_to_request_size(f, session, &to, segment, &data)?, |writer| {
                    wire::put_send_to_request(writer, session, &to, segment, &data)
                })
            }
            // The others have no arguments.
            _ => Ok(Message::default()),
        }
    }
}

fn one_word(op: u16, session: u32) -> Result<Message, EncodeError> {
    let f = Forms::BODY;
    match op {
        11 => build(wire::release_request_size(f, session)?, |writer| {
            wire::put_release_request(writer, session)
        }),
        12 => build(wire::close_request_size(f, session)?, |writer| {
            wire::put_close_request(writer, session)
        }),
        _ => build(wire::cancel_request_size(f, session)?, |writer| {
            wire::put_cancel_request(writer, session)
        }),
    }
}

fn two_words(program: &mut Program<'_>, op: u16, session: u32) -> Result<Message, EncodeError> {
    let (f, word) = (Forms::BODY, number(program));
    match op {
        WAIT => build(wire::wait_request_size(f, session, word)?, |writer| {
            wire::put_wait_request(writer, session, word)
        }),
        6 => build(wire::watch_request_size(f, session, word)?, |writer| {
            wire::put_watch_request(writer, session, word)
        }),
        _ => build(wire::shutdown_request_size(f, session, word)?, |writer| {
            wire::put_shutdown_request(writer, session, word)
        }),
    }
}

fn receive(program: &mut Program<'_>, op: u16, session: u32) -> Result<Message, EncodeError> {
    let (f, flags, size) = (Forms::BODY, number(program), number(program));
    match op {
        RECEIVE => build(wire::receive_request_size(f, session, flags, size)?, |writer| {
            wire::put_receive_request(writer, session, flags, size)
        }),
        _ => build(wire::receive_from_request_size(f, session, flags, size)?, |writer| {
            wire::put_receive_from_request(writer, session, flags, size)
        }),
    }
}

fn option(program: &mut Program<'_>, op: u16, session: u32) -> Result<Message, EncodeError> {
    let f = Forms::BODY;
    let level = [0, 1, 6, 17, 41, -1][usize::from(program.byte() % 6)];
    let name = i32::from(program.byte());
    match op {
        9 => {
            let value = data(program);
            build(wire::set_option_request_size(f, session, level, name, &value)?, |writer| {
                wire::put_set_option_request(writer, session, level, name, &value)
            })
        }
        _ => {
            let size = number(program);
            build(wire::get_option_request_size(f, session, level, name, size)?, |writer| {
                wire::put_get_option_request(writer, session, level, name, size)
            })
        }
    }
}

/// Runs clients that send what `bytes` say.
pub fn messages(bytes: &[u8]) {
    let mut world = World::new();
    let mut program = Program::new(bytes);
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        let which = usize::from(step >> 6) % CLIENTS;
        match step & 63 {
            0 => world.clients[which] = None,
            1 => {
                let body = (0..program.byte() & 15).map(|_| program.word()).collect();
                let op = u16::from(program.byte());
                world.call(which, op, &Message { body, ..Message::default() });
            }
            step => {
                let op = u16::from(step % OPERATIONS);
                let Ok(mut message) = world.message(&mut program, op) else { continue };
                if program.byte() & 7 == 7 {
                    mutate(&mut program, &mut message, &[]);
                }
                world.call(which, op, &message);
            }
        }
    }
    world.clients = [const { None }; CLIENTS];
    assert_honest_one_is_served(&mut world);
    world.clients = [const { None }; CLIENTS];
    assert!(server().is_empty(), "something of the clients is left");
}

/// Checks an honest client, whatever the others have done. Its close is answered after all that
/// these have left to the thread for slow work.
fn assert_honest_one_is_served(world: &mut World) {
    use std::io::{Read, Write};
    let [mut plain, end] = connection();
    let f = Forms::BODY;
    let fd = Some(end.as_fd());
    let open = build(wire::open_request_size(f, fd, false).unwrap(), |writer| {
        wire::put_open_request(writer, fd, false)
    });
    world.call(0, OPEN, &open.unwrap());
    let send = build(wire::send_request_size(f, 1, b"ping").unwrap(), |writer| {
        wire::put_send_request(writer, 1, b"ping")
    });
    world.call(0, 2, &send.unwrap());
    let mut got = [0; 4];
    plain.set_read_timeout(Some(LIMIT)).unwrap();
    plain.read_exact(&mut got).unwrap();
    assert_eq!(got, *b"ping");
    plain.write_all(b"pong").unwrap();
    let size = wire::receive_request_size(f, 1, 0, 8).unwrap();
    let receive = build(size, |writer| wire::put_receive_request(writer, 1, 0, 8)).unwrap();
    let mut draft = world.client(0).start(RECEIVE, receive.body.len() * 8);
    draft.encoder().put_bytes(bytes_of(&receive.body)).unwrap();
    let mut reply = draft.call(Deadline::after(LIMIT)).unwrap();
    let received = wire::get_receive_reply(reply.decoder(), 8).unwrap();
    assert_eq!((received.ret, &received.data[..]), (0, &b"pong"[..]));
    world.call(0, 12, &one_word(12, 1).unwrap());
}
