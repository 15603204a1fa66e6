//! The hostile peer of a connection: words, messages and packets that are almost right.
//!
//! Not here: who looks at them (`fuzz`).

use crate::connection::{Connection, Parts};
use crate::layout::{Layout, NewRegion, Region, Seq, next_seq};
use crate::rt::ClientId;
use crate::wait::{Policy, Wait};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use sojourn_shm::Segment;
use sojourn_shm::fuzz::Program;

/// Returns a number that is mostly small and sometimes arbitrary.
pub(super) fn size(program: &mut Program<'_>) -> u64 {
    match program.byte() {
        255 => program.word(),
        small => u64::from(small) * 8 + u64::from(program.byte() & 1) * 320,
    }
}

/// The hostile peer.
pub(super) struct Peer {
    pub(super) region: Region,
    pub(super) socket: OwnedFd,
    pub(super) call: Seq,
    pub(super) seq: Seq,
}

impl Peer {
    pub(super) fn line(
        &mut self,
        program: &mut Program<'_>,
        seq: Seq,
        kinds: [u8; 4],
        answers: bool,
    ) {
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
        let rest = [size(program), size(program), program.word()];
        let line =
            if answers { self.region.reply(what >> 3 & 3) } else { self.region.request(seq) };
        line.publish(tag, meta, &rest);
    }

    pub(super) fn step(&mut self, program: &mut Program<'_>, step: u8) {
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
    pub(super) fn table(&mut self, program: &mut Program<'_>) {
        let which = program.byte();
        let mut table = Vec::new();
        for _ in 0..which & 7 {
            table.extend(size(program).to_ne_bytes());
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

    pub(super) fn packet(&mut self, program: &mut Program<'_>) {
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

pub(super) fn send_raw(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
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
pub(super) struct Sockets {
    pub(super) ours: OwnedFd,
    pub(super) theirs: OwnedFd,
}

pub(super) fn sockets() -> Option<Sockets> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    pair.ok().map(|(ours, theirs)| Sockets { ours, theirs })
}

/// Both ends of a connection.
pub(super) struct Meeting {
    /// This side's region and socket.
    pub(super) region: Region,
    pub(super) socket: OwnedFd,
    /// The peer, with the other ends.
    pub(super) peer: Peer,
    pub(super) _segment: Segment,
}

pub(super) fn meet(layout: Layout) -> Option<Meeting> {
    let NewRegion { segment, region: ours } = Region::create(layout).ok()?;
    let region = Region::open(&segment, layout).ok()?;
    let Sockets { ours: socket, theirs } = sockets()?;
    let peer = Peer { region, socket: theirs, call: Seq::DIRECT, seq: Seq(0) };
    Some(Meeting { region: ours, socket, peer, _segment: segment })
}

/// Returns a client's connection with messages of up to `longest` bytes.
pub(super) fn connection(region: Region, socket: OwnedFd, longest: u64) -> Connection {
    Connection::new(Parts {
        id: ClientId { index: 0, generation: 1 },
        region: region.into(),
        socket: crate::apart::Socket::Here(socket),
        policy: Policy::new(Wait::Park),
        wants_whole: false,
        request_max: longest,
        reply_max: longest,
        space: None,
    })
}
