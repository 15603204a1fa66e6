//! A client made by hand: it greets as the protocol says, maps the region and writes what it likes.
//!
//! The numbers are those of `docs/understand/ipc.md`, written down once more on purpose: the tests
//! would not see a layout that changed by accident if they used the crate's own.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg,
    sendmsg, socket_with,
};
use sojourn_shm::{Access, AtomicU32, AtomicU64, Mapping, Segment, futex, park};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

pub const GREETING: u64 = 0x534a_4950_4331_0001;
pub const HELLO: u32 = 1;
pub const WELCOME: u32 = 2;
pub const REFUSED: u32 = 3;
pub const WAKE: u32 = 4;
pub const DESCRIPTORS: u32 = 5;
pub const REGISTER: u32 = 6;
pub const UNREGISTER: u32 = 7;
pub const DONE: u32 = 8;

pub const CONSUMED: usize = 128;
pub const REASON: usize = 192;
pub const SERVER_BELL: usize = 256;
pub const CLIENT_BELL: usize = 384;
pub const WANT: usize = 388;
pub const TO_SERVER: usize = 512;
pub const TO_CLIENT: usize = 640;
const LINES: usize = 1024;

pub const CALL: u64 = 1;
pub const SEND: u64 = 2;
pub const CHUNK: u64 = 3;
pub const MORE: u64 = 4;
pub const ABANDON: u64 = 5;
pub const RESULT: u64 = 6;
pub const FAULT: u64 = 7;
pub const LONG: u64 = 1;
pub const BY_REFERENCE: u64 = 2;
pub const DIRECT: u32 = 1 << 31;
pub const TABLE: u64 = 16 * 8 + 8 * 24;

/// Words of a packet: topic, id, then four of 64 bits.
pub type Packet = (u32, u32, [u64; 4]);

pub fn bytes(packet: Packet) -> Vec<u8> {
    let mut bytes = [packet.0.to_ne_bytes(), packet.1.to_ne_bytes()].concat();
    packet.2.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
    bytes
}

pub fn send_bytes(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = vec![MaybeUninit::uninit(); 4096];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(drop)
}

/// The descriptor that comes next, within 20 seconds.
pub fn receive_fd(socket: &OwnedFd) -> OwnedFd {
    assert!(super::is_readable(socket, 20_000), "nothing came from the peer");
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0; 8])], &mut ancillary, flags).unwrap();
    let parts: Vec<_> = ancillary.drain().collect();
    match parts.into_iter().next() {
        Some(RecvAncillaryMessage::ScmRights(mut fds)) => fds.next().unwrap(),
        _ => panic!("no descriptor came"),
    }
}

/// The next packet within 20 seconds; `None` when the peer has gone.
pub fn receive(socket: &OwnedFd) -> Option<(Packet, Vec<OwnedFd>)> {
    assert!(super::is_readable(socket, 20_000), "nothing came from the peer");
    let mut bytes = [0; 64];
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags).ok()?;
    if got.bytes == 0 {
        return None;
    }
    assert_eq!(got.bytes, 40);
    let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let mut fds = vec![];
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Some(((half(0), half(4), [word(8), word(16), word(24), word(32)]), fds))
}

pub fn open(address: &str) -> OwnedFd {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let address = match address.strip_prefix('@') {
        Some(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap(),
        None => SocketAddrUnix::new(address).unwrap(),
    };
    connect(&socket, &address).unwrap();
    socket
}

/// The region as a client or a server sees it.
#[derive(Clone)]
pub struct Region {
    pub mapping: Arc<Mapping>,
    pub slots: u32,
    pub area: usize,
}

impl Region {
    pub fn len(slots: u32, area: usize) -> usize {
        areas(slots) + 2 * (slots as usize + 1) * area
    }

    pub fn word32(&self, at: usize) -> &AtomicU32 {
        self.mapping.word32(at).unwrap()
    }

    pub fn word64(&self, at: usize) -> &AtomicU64 {
        self.mapping.word64(at).unwrap()
    }

    /// Where the line of slot `seq` is.
    pub fn slot(&self, seq: u32) -> usize {
        LINES + (seq & (self.slots - 1)) as usize * 128
    }

    /// Where reply line `line` is; 0 is the call line.
    pub fn line(&self, line: u32) -> usize {
        LINES + (self.slots + line) as usize * 128
    }

    /// Where a request's line is.
    pub fn request(&self, seq: u32) -> usize {
        if seq & DIRECT != 0 { self.line(0) } else { self.slot(seq) }
    }

    /// Where a request's area is.
    pub fn request_area(&self, seq: u32) -> usize {
        let number = if seq & DIRECT != 0 { self.slots } else { seq & (self.slots - 1) };
        areas(self.slots) + number as usize * self.area
    }

    /// Where a reply line's area is.
    pub fn reply_area(&self, line: u32) -> usize {
        areas(self.slots) + (self.slots + 1 + line) as usize * self.area
    }

    /// Stores a line's words after the tag, then the tag.
    pub fn publish(&self, at: usize, tag: u64, words: &[u64]) {
        for (number, word) in words.iter().enumerate() {
            self.word64(at + 8 + number * 8).store(*word, Ordering::Relaxed);
        }
        self.word64(at).store(tag, Ordering::Release);
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert_eq!(self.mapping.span(at, bytes.len()).unwrap().copy_from(bytes), bytes.len());
    }

    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mapping.span(at, len).unwrap().copy_to(&mut bytes);
        bytes
    }
}

fn areas(slots: u32) -> usize {
    (LINES + (2 * slots as usize + 1) * 128).next_multiple_of(4096)
}

pub fn tag(seq: u32, op: u16, kind: u64, flags: u64) -> u64 {
    u64::from(seq) | u64::from(op) << 32 | kind << 48 | flags << 56
}

/// Second word of a line.
#[derive(Clone, Copy, Default)]
pub struct Meta {
    pub len: u64,
    pub line: u64,
    pub fds: u64,
    pub items: u64,
    pub grants: u64,
}

impl Meta {
    pub fn word(self) -> u64 {
        self.len | self.line << 8 | self.fds << 16 | self.items << 24 | self.grants << 48
    }
}

/// A table: lengths of items, then grants (id, flags, offset, len).
pub fn table(items: &[u64], grants: &[(u32, u32, u64, u64)]) -> Vec<u8> {
    let mut table = vec![0; TABLE as usize];
    for (slot, item) in table.chunks_exact_mut(8).zip(items) {
        slot.copy_from_slice(&item.to_ne_bytes());
    }
    for (slot, (id, flags, offset, len)) in table[128..].chunks_exact_mut(24).zip(grants) {
        slot[..4].copy_from_slice(&id.to_ne_bytes());
        slot[4..8].copy_from_slice(&flags.to_ne_bytes());
        slot[8..16].copy_from_slice(&offset.to_ne_bytes());
        slot[16..].copy_from_slice(&len.to_ne_bytes());
    }
    table
}

/// A client made by hand.
pub struct Raw {
    pub socket: OwnedFd,
    pub segment: OwnedFd,
    pub region: Region,
    /// Of the last call on the call line, and of the last request in a slot.
    pub call: u32,
    pub seq: u32,
}

impl Raw {
    pub fn connect(address: &str) -> Self {
        let socket = open(address);
        let hello = (HELLO, 0, [GREETING, 0, 1 << 20, 0]);
        send_bytes(&socket, &bytes(hello), &[]).unwrap();
        let (welcome, mut fds) = receive(&socket).expect("a welcome");
        assert_eq!(welcome.0, WELCOME);
        let (slots, area) = ((welcome.2[0] >> 32) as u32, welcome.2[1] as usize);
        let segment = fds.pop().unwrap();
        let copy = segment.try_clone().unwrap();
        let accepted = Segment::accept(copy, Region::len(slots, area)).unwrap();
        let mapping = Arc::new(accepted.map(Access::ReadWrite).unwrap());
        let region = Region { mapping, slots, area };
        Self { socket, segment, region, call: DIRECT, seq: 0 }
    }

    pub fn packet(&self, packet: Packet, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        send_bytes(&self.socket, &bytes(packet), fds)
    }

    /// Rings the server as the protocol says.
    pub fn ring(&self) {
        match park::ring(self.region.word32(SERVER_BELL)) {
            park::AWAKE => {}
            park::ON_FUTEX => futex::wake(self.region.word32(SERVER_BELL)),
            _ => drop(self.packet((WAKE, 0, [0; 4]), &[])),
        }
    }

    /// Publishes words in the next slot, with the next number.
    pub fn post(&mut self, op: u16, kind: u64, flags: u64, words: &[u64]) {
        self.seq += 1;
        self.region.publish(self.region.slot(self.seq), tag(self.seq, op, kind, flags), words);
        self.ring();
    }

    /// Publishes words on the call line, with the next number.
    pub fn post_call(&mut self, op: u16, flags: u64, words: &[u64]) {
        self.call += 1;
        self.region.publish(self.region.line(0), tag(self.call, op, CALL, flags), words);
        self.ring();
    }

    /// A proper short call on the call line; answers kind and first word of the answer.
    pub fn call(&mut self, op: u16, word: u64) -> Option<(u64, u64)> {
        self.post_call(op, 0, &[Meta { len: 8, ..Default::default() }.word(), word]);
        self.await_answer(0, self.call)
    }

    /// Kind and first word of the answer on `line`; `None` when the server has let us go.
    pub fn await_answer(&self, line: u32, seq: u32) -> Option<(u64, u64)> {
        let at = self.region.line(line);
        for _ in 0..40_000 {
            let tag = self.region.word64(at).load(Ordering::Acquire);
            if tag as u32 == seq && tag >> 48 & 0xff >= RESULT {
                return Some((
                    tag >> 48 & 0xff,
                    self.region.word64(at + 16).load(Ordering::Relaxed),
                ));
            }
            if self.reason() != 0 {
                return None;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        panic!("neither an answer nor a reason")
    }

    /// The reason the server gave for letting us go; 0 while it has not.
    pub fn reason(&self) -> u32 {
        self.region.word32(REASON).load(Ordering::Acquire)
    }

    /// Waits until the server has let us go: reason in the region, then the end of the socket.
    pub fn await_end(&self) -> u32 {
        super::until("the server lets the client go", || self.reason() != 0);
        super::until("the socket ends", || {
            let mut byte = [0; 64];
            matches!(
                rustix::net::recv(&self.socket, &mut byte[..], RecvFlags::DONTWAIT),
                Ok((_, 0)) | Err(Errno::CONNRESET)
            )
        });
        self.reason()
    }

    /// A client that knows the region and the socket, and is dropped without a word.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
