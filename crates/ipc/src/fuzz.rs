//! Entry points for fuzzing: arbitrary bytes play the peer of a connection.
//!
//! The bytes are a little program whose steps write words into the region, publish messages that
//! are almost right, send packets and let the honest side look. The invariants: no panic, no access
//! outside the region (run under a sanitizer), no endless wait, and every byte that a message shows
//! can be read. Debug and fuzzing builds only; not a part of the interface of this crate. Used by
//! `tests/fuzz_run.rs` (deterministic, in every test run) and `fuzz/fuzz_targets/ipc_*.rs`.

use crate::connection::{Connection, Parts, Pending};
use crate::control::{self, Received};
use crate::deadline::Deadline;
use crate::grant::Memory;
use crate::layout::{Layout, NewRegion, Region, Seq, next_seq};
use crate::link::ServerThread;
use crate::link::{ClientLink, Terms};
use crate::rt::{ClientId, Credentials, Fault};
use crate::server::Server;
use crate::server::event::Event;
use crate::shares::Budget;
use crate::thread::Note;
use crate::wait::{Policy, Wait};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use sojourn_shm::{Access, Segment};
use std::sync::Arc;

/// The largest number of steps of one program.
const STEPS_MAX: usize = 64;

/// The bytes of a program, taken from the front; zeros after its end.
struct Program<'b>(&'b [u8]);

impl<'b> Program<'b> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (head, rest) = self.0.split_at(N.min(self.0.len()));
        taken[..head.len()].copy_from_slice(head);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// Returns a number that is mostly small and sometimes arbitrary.
    fn size(&mut self) -> u64 {
        match self.byte() {
            255 => self.word(),
            small => u64::from(small) * 8 + u64::from(self.byte() & 1) * 320,
        }
    }

    fn bytes(&mut self) -> &'b [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (head, rest) = self.0.split_at(len);
        self.0 = rest;
        head
    }
}

/// The hostile peer.
struct Peer {
    region: Region,
    socket: OwnedFd,
    call: Seq,
    seq: Seq,
}

impl Peer {
    fn line(&mut self, program: &mut Program<'_>, seq: Seq, kinds: [u8; 4], answers: bool) {
        let what = program.byte();
        let kind = if what & 0xe0 == 0xe0 { what } else { kinds[usize::from(what & 3)] };
        let flags = u64::from(program.byte() % 5);
        let tag = u64::from(seq.0)
            | u64::from(program.byte()) << 32
            | u64::from(kind) << 48
            | flags << 56;
        let mut meta = program.word();
        if what & 4 == 0 {
            // Counts that may be valid.
            meta &= 0x0003_0000_0303_0f3f;
        }
        if seq.is_direct() {
            meta = meta & !(0xff << 56) | u64::from(self.seq.0 & 0xff) << 56;
        }
        let rest = [program.size(), program.size(), program.word()];
        let line =
            if answers { self.region.reply(what >> 3 & 3) } else { self.region.request(seq) };
        line.publish(tag, meta, &rest);
    }

    fn step(&mut self, program: &mut Program<'_>, step: u8) {
        match step {
            0 => {
                self.seq = next_seq(self.seq);
                self.line(program, self.seq, [1, 2, 3, 5], false);
            }
            1 => {
                self.call = next_seq(self.call);
                self.line(program, self.call, [1, 1, 1, 4], false);
            }
            2 => {
                let seq = Seq(program.word() as u32);
                self.line(program, seq, [1, 2, 4, 6], false);
            }
            3 => self.table(program),
            4 => {
                let at = (program.word() as usize) % (self.region.layout.len() - 300);
                self.region.poke(at, program.bytes());
            }
            5 => self.packet(program),
            _ => {}
        }
    }

    /// Writes a table and the first bytes of an area, whose lengths may be consistent.
    fn table(&mut self, program: &mut Program<'_>) {
        let which = program.byte();
        let mut table = Vec::new();
        for _ in 0..which & 7 {
            table.extend(program.size().to_ne_bytes());
        }
        let area = match which >> 3 & 3 {
            0 => self.region.request_area(next_seq(self.seq)),
            1 => self.region.request_area(Seq::DIRECT),
            _ => self.region.reply_area(which >> 5),
        };
        area.copy_from(&table);
        if let Some(grants) = area.part(crate::rt::ITEMS_MAX * 8, 24) {
            grants.copy_from(&program.take::<24>());
        }
    }

    fn packet(&mut self, program: &mut Program<'_>) {
        let how = program.byte();
        let mut packet = [0; 40];
        packet[0] = how & 15;
        packet[4..8].copy_from_slice(&program.take::<4>());
        if how & 16 != 0 {
            packet[4..8].copy_from_slice(&next_seq(self.seq).0.to_ne_bytes());
        }
        packet[8] = program.byte();
        let len = if how & 0xe0 == 0xe0 { usize::from(program.byte()) % 41 } else { 40 };
        let count = usize::from(how >> 5) % 3;
        send_raw(&self.socket, &packet[..len], &[self.socket.as_fd(); 2][..count]);
    }
}

fn send_raw(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [core::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let bytes = [rustix::io::IoSlice::new(bytes)];
    let _ = rustix::net::sendmsg(socket, &bytes, &mut ancillary, flags);
}

/// The ends of a socket pair.
struct Sockets {
    ours: OwnedFd,
    theirs: OwnedFd,
}

fn sockets() -> Option<Sockets> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    pair.ok().map(|(ours, theirs)| Sockets { ours, theirs })
}

/// Both ends of a connection.
struct Meeting {
    /// This side's region and socket.
    region: Region,
    socket: OwnedFd,
    /// The peer, with the other ends.
    peer: Peer,
    _segment: Segment,
}

fn meet() -> Option<Meeting> {
    let layout = Layout::new(4, 4096);
    let NewRegion { segment, region: ours } = Region::create(layout).ok()?;
    let region = Region::open(&segment, layout).ok()?;
    let Sockets { ours: socket, theirs } = sockets()?;
    let peer = Peer { region, socket: theirs, call: Seq::DIRECT, seq: Seq(0) };
    Some(Meeting { region: ours, socket, peer, _segment: segment })
}

/// Runs a server's thread whose one client acts by `bytes`.
pub fn request(bytes: &[u8]) {
    let Some(Meeting { region, socket, mut peer, _segment }) = meet() else { return };
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
    let mut program = Program(bytes);
    let mut kept = Vec::new();
    for _ in 0..STEPS_MAX {
        if program.0.is_empty() {
            break;
        }
        match program.byte() & 7 {
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
    let Some(Meeting { region, socket, mut peer, _segment }) = meet() else { return };
    let mut connection = Connection::new(Parts {
        id: ClientId { index: 0, generation: 1 },
        region: region.into(),
        socket: crate::apart::Socket::Here(socket),
        policy: Policy::new(Wait::Park),
        wants_whole: false,
        request_max: 20_000,
        reply_max: 20_000,
        space: None,
    });
    let mut program = Program(bytes);
    let mut pending: Vec<Pending> = Vec::new();
    for _ in 0..STEPS_MAX {
        if program.0.is_empty() {
            break;
        }
        match program.byte() & 15 {
            0..=2 => {
                let len = program.size() as usize % 10_000;
                pending.extend(connection.start(1, len).submit(Deadline::NOW).ok());
            }
            3 => drop(connection.start(2, program.size() as usize % 200).send(Deadline::NOW)),
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
    let mut program = Program(bytes);
    for _ in 0..STEPS_MAX {
        if program.0.is_empty() {
            break;
        }
        let fds = [theirs.as_fd(); 2];
        let count = usize::from(program.byte() % 3);
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
