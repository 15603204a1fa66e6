//! Entry points for fuzzing: arbitrary bytes play the peer of a connection.
//!
//! The bytes are a little program whose steps write words into the region, publish messages that
//! are almost right, send packets and let the honest side look. The invariants: no panic, no access
//! outside the region (run under a sanitizer), no endless wait, and every byte that a message shows
//! can be read. Debug and fuzzing builds only; not a part of the interface of this crate. Used by
//! `tests/fuzz_run.rs` (deterministic, in every test run) and `fuzz/fuzz_targets/ipc_*.rs`.

use crate::connection::Pending;
use crate::control::{self, Received};
use crate::deadline::Deadline;
use crate::grant::Memory;
use crate::layout::{Layout, Seq};
use crate::link::ServerThread;
use crate::link::{ClientLink, Terms};
use crate::rt::loopback::Message;
use crate::rt::{ClientId, Credentials, Fault};
use crate::server::Server;
use crate::server::event::Event;
use crate::shares::Budget;
use crate::thread::Note;
use crate::wait::{Policy, Wait};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_shm::Access;
pub use sojourn_shm::fault::with_act;
pub use sojourn_shm::fuzz::Program;
use std::sync::Arc;

mod hostile_server;
mod peer;

pub use hostile_server::{Asked, HostileServer, Hostility, hostile_server};
use peer::{Meeting, Sockets, connection, meet, send_raw, size, sockets};

/// The largest number of steps of one program.
const STEPS_MAX: usize = 64;

/// Changes a well-formed message of a target of another crate: words, length, descriptors. `ends`:
/// descriptors that may be added.
pub fn mutate(program: &mut Program<'_>, message: &mut Message, ends: &[OwnedFd]) {
    for _ in 0..program.byte() & 3 {
        let at = usize::from(program.byte());
        let word = message.body.len().checked_sub(1).map(|last| at % (last + 1));
        match (program.byte() & 7, word) {
            (0..3, Some(word)) => message.body[word] ^= 1 << (program.byte() & 63),
            (3, Some(word)) => message.body[word] = program.word(),
            (4, Some(word)) => message.body.truncate(word),
            (5, _) => message.body.push(program.word()),
            (6, _) if !ends.is_empty() => {
                let end = ends[at % ends.len()].try_clone();
                let _ = end.map(|end| message.fds.push(end));
            }
            _ => drop(message.fds.take(at & 1)),
        }
    }
}

/// Runs a server's thread whose one client acts by `bytes`.
pub fn request(bytes: &[u8]) {
    let Some(Meeting { region, socket, mut peer, _segment }) = meet(Layout::new(4, 4096)) else {
        return;
    };
    let thread = Arc::new(ServerThread::new(1 << 20));
    let terms = Terms {
        id: ClientId { index: 0, generation: 1 },
        credentials: Credentials::default(),
        reply_max: 20_000,
        request_max: 20_000,
        items_in_place: bytes.first().is_some_and(|byte| byte & 1 == 1),
        same_space: false,
        budget: Budget::new(),
    };
    let link = Arc::new(ClientLink::new(terms, region, socket.into(), Arc::clone(&thread)));
    let mut server = Server::new(Arc::clone(&thread), Policy::new(Wait::Park));
    thread.post(Note::Joined(Arc::clone(&link)));
    let mut program = Program::new(bytes);
    let mut kept = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        match step & 7 {
            step @ 0..=5 => peer.step(&mut program, step),
            6 => {
                link.drain();
            }
            _ => serve(&mut server, &mut kept),
        }
    }
    serve(&mut server, &mut kept);
}

/// Takes the waiting requests and answers them in various ways.
fn serve(server: &mut Server, kept: &mut Vec<crate::ReplyToken>) {
    let mut reply = None;
    for _ in 0..8 {
        let Ok(event) = server.reply_wait(reply.take(), Deadline::NOW) else { return };
        let (Event::Call(mut request) | Event::Send(mut request)) = event else { continue };
        let mut bytes: Vec<u8> = request.body().to_vec();
        for index in 0..17 {
            bytes.extend(request.item(index).unwrap_or(&[]));
            if let Some(span) = request.grant(index) {
                let mut copy = vec![0; span.len().min(5000)];
                span.copy_to(&mut copy);
                bytes.extend(copy);
            }
            drop(request.take_fd(index));
            drop(request.keep_grant(index));
        }
        let op = request.op();
        let token = request.into_token();
        reply = match op & 7 {
            0 => None,
            1 => Some(token.fault(Fault(7))),
            2 => {
                kept.push(token);
                None
            }
            3 => {
                kept.clear();
                drop(token);
                None
            }
            _ => {
                bytes.resize(bytes.len() * usize::from(op & 15), 1);
                let mut draft = token.start(bytes.len());
                let _ = draft.encoder().put_bytes(&bytes);
                Some(draft.finish())
            }
        };
    }
}

/// Runs a client whose server acts by `bytes`.
pub fn reply(bytes: &[u8]) {
    let Some(Meeting { region, socket, mut peer, _segment }) = meet(Layout::new(4, 4096)) else {
        return;
    };
    let mut connection = connection(region, socket, 20_000);
    let mut program = Program::new(bytes);
    let mut pending: Vec<Pending> = Vec::new();
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        match step & 15 {
            0..=2 => {
                let len = size(&mut program) as usize % 10_000;
                pending.extend(connection.start(1, len).submit(Deadline::NOW).ok());
            }
            3 => drop(connection.start(2, size(&mut program) as usize % 200).send(Deadline::NOW)),
            4..=6 => {
                if let Some(pending) = pending.pop() {
                    read(connection.finish(pending, Deadline::NOW).ok());
                }
            }
            7 => {
                if let Some(pending) = pending.pop() {
                    connection.give_up(&pending);
                }
            }
            8..=10 => {
                // The answer mostly belongs to an outstanding call.
                let last = pending.last().map_or(Seq(0), |pending| pending.seq);
                let seq = if program.byte() & 7 == 0 { Seq(program.word() as u32) } else { last };
                peer.line(&mut program, seq, [6, 7, 6, 6], true);
            }
            11 => peer.table(&mut program),
            12 => peer.step(&mut program, 4),
            13 => {
                let all = connection.seq.0;
                peer.region.consumed().store(all, sojourn_shm::Ordering::Release);
            }
            14 => peer.packet(&mut program),
            _ => {
                let _ = connection.wait_notify(Deadline::NOW);
                if let Ok(memory) = Memory::new(4096, Access::Read) {
                    let _ = connection.register(&memory, Deadline::NOW);
                }
            }
        }
    }
}

fn read(reply: Option<crate::Reply<'_>>) {
    let Some(mut reply) = reply else { return };
    let mut sum = reply.body().iter().fold(0, |sum: u8, byte| sum ^ byte);
    for index in 0..17 {
        let len = reply.item_len(index);
        let item = reply.item(index);
        assert_eq!(len, item.as_ref().map(Vec::len), "an item is as long as it says");
        sum ^= item.unwrap_or_default().iter().fold(0, |sum, byte| sum ^ byte);
        drop(reply.take_fd(index));
    }
    core::hint::black_box(sum);
}

/// Sends and receives packets over a socket.
pub fn control(bytes: &[u8]) {
    let Some(Sockets { ours, theirs }) = sockets() else { return };
    let mut program = Program::new(bytes);
    for _ in 0..STEPS_MAX {
        let Some(step) = program.step() else { break };
        let fds = [theirs.as_fd(); 2];
        let count = usize::from(step % 3);
        send_raw(&theirs, program.bytes(), &fds[..count]);
        if let Received::Packet { packet, fds, .. } = control::receive(ours.as_fd()) {
            assert!(fds.len() <= 2, "no more than were sent");
            let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
            // A packet that was understood can be sent again.
            let _ = control::send(theirs.as_fd(), packet, &fds);
            if let Received::Packet { packet: again, .. } = control::receive(ours.as_fd()) {
                assert_eq!(packet, again, "a packet is read as it is written");
            }
        }
    }
}
