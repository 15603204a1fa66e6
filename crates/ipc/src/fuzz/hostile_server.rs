//! A hostile server of a connection, for fuzz targets of clients in other crates.
//!
//! It acts within the client's thread, at the points that this passes (`fault::with_act`): so it
//! has seen a request before the client looks for the answer, and can change any word between two
//! looks. Not here: what answers say, and when they come, which the targets decide.

use super::peer::{Meeting, Peer, connection, meet, send_raw};
use crate::connection::Connection;
use crate::control::{self, Packet, Topic};
use crate::layout::{Header, INLINE_MAX, Kind, LONG, Layout, Seq, is_call, next_seq};
use crate::message::bytes_of;
use crate::rt::gather::Gather;
use crate::rt::loopback::Message;
use rustix::fd::AsFd;
use sojourn_shm::Ordering;
use sojourn_shm::fuzz::Program;

/// The server's side of a connection.
pub struct HostileServer {
    peer: Peer,
    /// The calls that have not been answered, oldest first.
    pub asked: Vec<Asked>,
}

/// A call of the client's.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The operation's number.
    pub op: u16,
    seq: Seq,
    line: u8,
}

/// A client's connection and its server.
pub struct Hostility {
    /// The client's side.
    pub connection: Connection,
    /// The server's.
    pub server: HostileServer,
}

/// Returns a connection of `inflight` calls with messages of `payload` bytes, as the options of an
/// interface say. `None`: there is no memory or descriptor for it.
pub fn hostile_server(inflight: u32, payload: u64) -> Option<Hostility> {
    let Meeting { region, socket, peer, .. } = meet(Layout::new(inflight, payload))?;
    let connection = connection(region, socket, 2 * payload);
    Some(Hostility { connection, server: HostileServer { peer, asked: Vec::new() } })
}

impl HostileServer {
    /// Takes the requests that have come.
    pub fn take_requests(&mut self) {
        while self.take(next_seq(self.peer.seq), false) {}
        while self.take(next_seq(self.peer.call), true) {}
        self.peer.region.consumed().store(self.peer.seq.0, Ordering::Release);
    }

    fn take(&mut self, seq: Seq, is_direct: bool) -> bool {
        let line = self.peer.region.request(seq);
        let mut meta = [0];
        line.copy_out(&mut meta);
        let Some(header) = Header::unpack(line.tag(), meta[0]) else { return false };
        if header.seq != seq || is_direct && !is_call(line.tag(), seq) {
            return false;
        }
        match is_direct {
            true => self.peer.call = seq,
            false => self.peer.seq = seq,
        }
        match header.kind {
            Kind::Call => self.asked.push(Asked { op: header.op, seq, line: header.line }),
            // The area has the next part of a long answer already.
            Kind::More => self.publish(Header { line: header.line, ..long(seq) }, &[]),
            _ => {}
        }
        true
    }

    /// Answers a call.
    pub fn answer(&mut self, asked: Asked, message: &Message) {
        let mut header = Header { line: asked.line, ..long(asked.seq) };
        let fds: Vec<_> = (0..message.fds.len()).filter_map(|at| message.fds.peek(at)).collect();
        if !fds.is_empty() {
            header.fds = fds.len() as u8;
            let packet = Packet::new(Topic::Descriptors, asked.seq.0);
            let _ = control::send(self.peer.socket.as_fd(), packet, &fds);
        }
        let len = message.body.len() * 8;
        if len <= INLINE_MAX && message.items.is_empty() {
            (header.flags, header.len) = (0, len as u8);
            return self.publish(header, &message.body);
        }
        let items: Vec<&[u8]> = message.items.iter().map(Vec::as_slice).collect();
        let body = bytes_of(&message.body);
        let Some(gather) = Gather::new(Some(body), len, &items, &[]) else { return };
        gather.copy(0, self.peer.region.reply_area(asked.line));
        header.items = items.len() as u8;
        self.publish(header, &[gather.total(), len as u64]);
    }

    /// Answers a call with a fault.
    pub fn fault(&mut self, asked: Asked, code: u32) {
        let header = Header { line: asked.line, kind: Kind::Fault, flags: 0, ..long(asked.seq) };
        self.publish(header, &[u64::from(code)]);
    }

    fn publish(&self, header: Header, words: &[u64]) {
        self.peer.region.reply(header.line).publish(header.tag(), header.meta(), words);
    }

    /// Does something that no honest server does.
    pub fn meddle(&mut self, program: &mut Program<'_>) {
        let last = self.asked.last().map_or(self.peer.seq, |asked| asked.seq);
        match program.byte() & 7 {
            0 => self.peer.line(program, last, [6, 7, 6, 6], true),
            1 => self.peer.table(program),
            // Any word, or one of those before the lines, where the bells and the counts are.
            2 => self.peer.step(program, 4),
            3 => {
                let at = usize::from(program.byte()) * 4;
                self.peer.region.poke(at, &program.take::<8>());
            }
            4 => self.peer.packet(program),
            5 => send_raw(&self.peer.socket, program.bytes(), &[]),
            6 => drop(rustix::net::shutdown(&self.peer.socket, rustix::net::Shutdown::Both)),
            _ => self.peer.region.reason().store(u32::from(program.byte()), Ordering::Release),
        }
    }
}

/// Returns the header of an answer in the area.
fn long(seq: Seq) -> Header {
    Header {
        seq,
        op: 0,
        kind: Kind::Result,
        flags: LONG,
        len: 0,
        line: 0,
        fds: 0,
        items: 0,
        cpu: 0,
        grants: 0,
        after: 0,
    }
}
