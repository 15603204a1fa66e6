//! Entry point for fuzzing: arbitrary messages of `idl/session.idl`, with and without descriptors,
//! from several processes of several users, which come and go.
//!
//! The bytes are a little program; its messages are well-formed, mutated, or nothing but bytes.
//! These properties must hold: there is no panic and no wait; a process that breaks the interface
//! is found out; an honest process is served all the same; when all have gone nothing of them is
//! left. Debug and fuzzing builds only; not a part of the interface of this crate. Used by
//! `tests/fuzz_run.rs` (deterministic, in every test run) and
//! `fuzz/fuzz_targets/session_server.rs`. Not here: messages that break the rules of the IPC itself
//! (`sojourn_ipc::fuzz`).
#![allow(clippy::unwrap_used, reason = "what fails here is what is looked for")]

use crate::service::Sojournd;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_ipc::fuzz::{Program, mutate};
use sojourn_ipc::rt::loopback::{LoopReady, Message, build};
use sojourn_ipc::rt::{
    Arrival, BIND_OP, Caller, ClientId, Credentials, Deadline, Decoder, Forms, MailboxSender,
    NewMailbox, Ready, Request, Router, Served, ServerTransport, answer, mailbox,
};
use sojourn_session::{
    AdminServer, AdminService, CarryService, HomeT, OfferT, ReasonT, SessionServer, SessionService,
    WhereT, admin_wire, carry_wire, session_wire,
};
use std::ffi::CString;
use std::sync::Arc;

/// The most steps of one program.
const STEPS_MAX: usize = 64;
/// The number of processes that send messages; one more is honest.
const CLIENTS: u32 = 4;
/// The number of operations of the session interface; those of the admin interface follow.
const SESSION_OPS: u16 = 8;
const ADMIN_OPS: u16 = 9;
/// The operations of the interface for libraries that carry sessions come last.
const CARRY_OPS: u16 = 2;
/// The number of all operations: a step of a program chooses one by its remainder.
pub const OPERATIONS: u8 = (SESSION_OPS + ADMIN_OPS + CARRY_OPS) as u8;

/// Returns a number that is mostly small, and sometimes any.
fn number(program: &mut Program<'_>) -> u64 {
    match program.byte() {
        255 => program.word(),
        small => u64::from(small & 7),
    }
}

/// Stands for the server's end of the transport: nothing arrives at it, because the requests are
/// handed over.
struct Nowhere;

impl ServerTransport for Nowhere {
    type Request<'s> = Handed;
    type Token = MailboxSender<Message>;
    type Ready = LoopReady;
    type Error = core::convert::Infallible;

    fn next(
        &mut self,
        _ready: Option<LoopReady>,
        _deadline: Deadline,
    ) -> Result<Arrival<Handed>, Self::Error> {
        Ok(Arrival::Idle)
    }

    fn expel_for_bad_message(&mut self, _client: ClientId) {}
}

/// A request.
struct Handed {
    op: u16,
    caller: Caller,
    token: MailboxSender<Message>,
    message: Message,
}

impl Request for Handed {
    type Token = MailboxSender<Message>;

    fn op(&self) -> u16 {
        self.op
    }

    fn caller(&self) -> Caller {
        self.caller
    }

    fn decoder(&mut self) -> Decoder<'_> {
        let body = sojourn_ipc::rt::bytes_of(&self.message.body);
        Decoder::new(body, &[], &[], &mut self.message.fds)
    }

    fn into_token(self) -> Self::Token {
        self.token
    }
}

/// The server and its clients.
struct World {
    server: Arc<Sojournd>,
    router: Router<Nowhere>,
    generations: [u32; CLIENTS as usize + 1],
    ends: Vec<OwnedFd>,
}

impl World {
    fn new() -> Option<Self> {
        let server = Sojournd::new().ok()?;
        let mut router = Router::new();
        router.add(SessionService::<Sojournd>::new(Arc::clone(&server))).ok()?;
        router.add(AdminService::<Sojournd>::new(Arc::clone(&server))).ok()?;
        router.add(CarryService::<Sojournd>::new(Arc::clone(&server))).ok()?;
        let generations = [1; CLIENTS as usize + 1];
        Some(Self { server, router, generations, ends: stock()? })
    }

    /// Returns the credentials of a process: this one, its parent, init, and one that the server
    /// cannot see; of several users.
    fn caller(&self, index: u32) -> Caller {
        let own = std::process::id() as i32;
        let uid = rustix::process::geteuid().as_raw();
        let parent = (std::os::unix::process::parent_id() as i32).max(1);
        let (pid, uid) = match index {
            0 => (own, uid),
            1 => (parent, uid),
            2 => (1, uid.wrapping_add(4711)),
            3 => (0, uid),
            _ => (own, uid),
        };
        let client = ClientId { index, generation: self.generations[index as usize] };
        Caller {
            client,
            badge: sojourn_ipc::Badge::default(),
            credentials: Credentials { pid, uid, gid: 0 },
        }
    }

    fn gone(&mut self, index: u32) {
        use sojourn_ipc::rt::Service;
        let client = self.caller(index).client;
        Service::<Nowhere>::gone(&mut self.router, client);
        self.generations[index as usize] += 1;
    }

    fn send(&mut self, index: u32, op: u16, oneway: bool, message: Message) {
        let NewMailbox { sender: token, mailbox } = mailbox();
        let request = Handed { op, caller: self.caller(index), token, message };
        match answer(&mut self.router, oneway, request) {
            Served::Reply(ready) => {
                let _ = Ready::send(ready);
                assert!(!oneway && mailbox.wait(Deadline::NOW).is_ok_or_fault());
            }
            // A deferred answer has come by now, because this server looks at objects at once.
            Served::Done => assert!(oneway || mailbox.wait(Deadline::NOW).is_ok_or_fault()),
            // Like the real server, this disconnects the client.
            Served::Violation(client, _) => {
                assert_eq!(client, self.caller(index).client);
                self.gone(index);
            }
        }
    }

    /// Returns a stream in which one of the processes is.
    fn stream(&self, which: u64) -> u64 {
        let listed = AdminServer::list(&*self.server, &self.caller(CLIENTS), 0);
        let all = listed.ok().and_then(|listed| listed.sessions).unwrap_or_default();
        all.get(which as usize % all.len().max(1)).map_or(which, |session| session.stream)
    }
}

/// Checks that a reply is an answer or a fault, and not a loss.
trait Answered {
    fn is_ok_or_fault(&self) -> bool;
}

impl<R> Answered for Result<R, sojourn_ipc::CallError> {
    fn is_ok_or_fault(&self) -> bool {
        self.as_ref().map_or_else(sojourn_ipc::CallError::is_fault, |_| true)
    }
}

/// Makes the descriptors that may be sent along: both ends of sessions of each kind, and others
/// that are no ends.
fn stock() -> Option<Vec<OwnedFd>> {
    let mut ends = Vec::new();
    for _ in 0..2 {
        let (one, other) = std::os::unix::net::UnixStream::pair().ok()?;
        ends.extend([OwnedFd::from(one), other.into()]);
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").ok()?;
    let client = std::net::TcpStream::connect(listener.local_addr().ok()?).ok()?;
    ends.extend([OwnedFd::from(client), listener.accept().ok()?.0.into(), listener.into()]);
    let (input, output) = std::io::pipe().ok()?;
    ends.extend([OwnedFd::from(input), output.into()]);
    ends.push(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?);
    ends.push(std::fs::File::open("/dev/null").ok()?.into());
    Some(ends)
}

/// Encodes a well-formed message of operation `op`.
fn message(world: &World, program: &mut Program<'_>, op: u16) -> Option<Message> {
    let which = program.byte();
    let end = world.ends.get(usize::from(which) % (world.ends.len() + 1)).map(AsFd::as_fd);
    let bell = if which & 3 == 0 { end } else { Some(world.ends[world.ends.len() - 2].as_fd()) };
    let ring_bytes = if which & 0x40 == 0 { 65_536 } else { program.word() as u32 };
    let is_sole = which & 0x80 == 0;
    let set = number(program) as u32;
    let what = OfferT { local: number(program), set, ring_bytes, is_sole, home: HomeT::Library };
    match op {
        0 => hello(program, bell),
        1 => {
            let size = session_wire::offer_request_size(Forms::BODY, end, &what).ok()?;
            build(size, |writer| session_wire::put_offer_request(writer, end, &what)).ok()
        }
        3 => {
            let size =
                session_wire::left_request_size(Forms::BODY, what.local, ReasonT::User, 1, 2);
            build(size.ok()?, |writer| {
                session_wire::put_left_request(writer, what.local, ReasonT::User, 1, 2)
            })
            .ok()
        }
        4 => {
            let mut to = [0; 16];
            to[15] = which;
            let place = WhereT { local: what.local, to };
            let size = session_wire::ask_route_request_size(Forms::BODY, &place).ok()?;
            build(size, |writer| session_wire::put_ask_route_request(writer, &place)).ok()
        }
        5 => {
            let (stream, side) = (world.stream(number(program)), number(program) as u8);
            let size =
                session_wire::adopt_request_size(Forms::BODY, end, &what, stream, side).ok()?;
            build(size, |writer| session_wire::put_adopt_request(writer, end, &what, stream, side))
                .ok()
        }
        6 => {
            let reason = ReasonT::Set;
            let size = session_wire::declined_request_size(Forms::BODY, what.local, reason, 1, 2);
            build(size.ok()?, |writer| {
                session_wire::put_declined_request(writer, what.local, reason, 1, 2)
            })
            .ok()
        }
        7 => {
            let size = session_wire::show_packets_request_size(Forms::BODY, end).ok()?;
            build(size, |writer| session_wire::put_show_packets_request(writer, end)).ok()
        }
        8 | 10 | 11 | 14 | 16 => admin(world, program, op, which),
        12 | 13 | 15 => page(op, number(program)),
        17 | 18 => carry(program, op, which, end),
        _ => Some(Message::default()),
    }
}

/// Encodes a message of the admin interface.
fn admin(world: &World, program: &mut Program<'_>, op: u16, which: u8) -> Option<Message> {
    match op {
        10 => {
            let stream = world.stream(number(program));
            let size = admin_wire::recall_stream_request_size(Forms::BODY, stream).ok()?;
            build(size, |writer| admin_wire::put_recall_stream_request(writer, stream)).ok()
        }
        11 => {
            let force = which & 1 == 1;
            let size = admin_wire::stop_request_size(Forms::BODY, force).ok()?;
            build(size, |writer| admin_wire::put_stop_request(writer, force)).ok()
        }
        8 => {
            let after = number(program);
            let size = admin_wire::list_request_size(Forms::BODY, after).ok()?;
            build(size, |writer| admin_wire::put_list_request(writer, after)).ok()
        }
        14 => {
            let (pid, inode) = (1 + u32::from(which), number(program));
            let home = HomeT::Library;
            let size = admin_wire::move_in_request_size(Forms::BODY, pid, inode, home).ok()?;
            build(size, |writer| admin_wire::put_move_in_request(writer, pid, inode, home)).ok()
        }
        16 => {
            let (stream, seconds) = (world.stream(number(program)), u32::from(which));
            let size = admin_wire::stream_times_request_size(Forms::BODY, stream, seconds).ok()?;
            build(size, |writer| admin_wire::put_stream_times_request(writer, stream, seconds)).ok()
        }
        _ => None,
    }
}

/// Encodes a message about a session with another host.
fn carry(
    program: &mut Program<'_>,
    op: u16,
    which: u8,
    end: Option<BorrowedFd<'_>>,
) -> Option<Message> {
    match op {
        17 => {
            let (token, ended) = (number(program), which & 1 == 1);
            let size = carry_wire::give_back_request_size(Forms::BODY, token, ended, end).ok()?;
            build(size, |writer| carry_wire::put_give_back_request(writer, token, ended, end)).ok()
        }
        18 => {
            let token = number(program);
            let size = carry_wire::give_in_transit_request_size(Forms::BODY, token, end).ok()?;
            build(size, |writer| carry_wire::put_give_in_transit_request(writer, token, end)).ok()
        }
        _ => None,
    }
}

/// Encodes the question for a page of a list.
fn page(op: u16, after: u64) -> Option<Message> {
    match op {
        12 => {
            let size = admin_wire::refused_request_size(Forms::BODY, after).ok()?;
            build(size, |writer| admin_wire::put_refused_request(writer, after)).ok()
        }
        13 => {
            let size = admin_wire::connections_request_size(Forms::BODY, after).ok()?;
            build(size, |writer| admin_wire::put_connections_request(writer, after)).ok()
        }
        _ => {
            let size = admin_wire::processes_request_size(Forms::BODY, after).ok()?;
            build(size, |writer| admin_wire::put_processes_request(writer, after)).ok()
        }
    }
}

fn hello(program: &mut Program<'_>, bell: Option<BorrowedFd<'_>>) -> Option<Message> {
    let len = usize::from(program.byte()) * 2;
    let name = CString::new(vec![b'a'; len]).ok()?;
    let size = session_wire::hello_request_size(Forms::BODY, &name, bell).ok()?;
    build(size, |writer| session_wire::put_hello_request(writer, &name, bell)).ok()
}

/// Runs a server whose clients send what `bytes` say. Returns the number of streams that were
/// joined.
pub fn messages(bytes: &[u8]) -> u64 {
    let Some(mut world) = World::new() else { return 0 };
    let mut program = Program::new(bytes);
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        let index = u32::from(step >> 6) % CLIENTS;
        match step & 63 {
            0 => world.gone(index),
            1 => drop(world.server.tick()),
            2 => {
                let mut body = Message::default();
                (0..program.byte() & 15).for_each(|_| body.body.push(program.word()));
                let op = if program.byte() & 1 == 0 { BIND_OP } else { program.word() as u16 };
                world.send(index, op, false, body);
            }
            step => {
                let op = u16::from(step % OPERATIONS);
                let Some(mut message) = message(&world, &mut program, op) else { continue };
                let how = program.byte();
                if how & 3 == 0 {
                    mutate(&mut program, &mut message, &world.ends);
                }
                let oneway = matches!(op, 3 | 4 | 6 | 11) != (how & 0xf8 == 0xf8);
                world.send(index, op, oneway, message);
            }
        }
    }
    assert_honest_one_is_served(&mut world);
    (0..=CLIENTS).for_each(|index| world.gone(index));
    drop(world.server.tick());
    assert!(world.server.is_empty(), "processes are left");
    let stats = AdminServer::stats(&*world.server, &world.caller(CLIENTS)).unwrap();
    assert_eq!((stats.counters.streams, stats.counters.processes), (0, 0));
    let listed = AdminServer::list(&*world.server, &world.caller(CLIENTS), 0).unwrap();
    assert_eq!(listed.count, 0, "ends are left");
    stats.counters.joins
}

/// Checks the honest process, whatever the others have done.
fn assert_honest_one_is_served(world: &mut World) {
    let caller = world.caller(CLIENTS);
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let (Ok(bell), Ok((one, _other))) = (bell, std::os::unix::net::UnixStream::pair()) else {
        return;
    };
    let server = &*world.server;
    assert_eq!(server.hello(&caller, c"honest", Some(bell)), Ok(false));
    let what = OfferT { local: 1, set: 0, ring_bytes: 4096, is_sole: true, home: HomeT::Library };
    assert!(server.offers(&caller, one.into(), &what), "it waits");
    assert!(SessionServer::next(server, &caller).is_ok());
}
