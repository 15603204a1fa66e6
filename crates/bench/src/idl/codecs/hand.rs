//! Stubs as a programmer would write them by hand in Rust. Each argument is moved once into the
//! message. The receiver copies the message once, so that the sender can change nothing afterwards,
//! checks the copy, and uses arguments in place where possible. Nothing is generic, and all code is
//! safe.

use std::ffi::{CStr, CString};
use std::hint::black_box;

use crate::idl::cases::{self, Arguments, Node, Record, Stat};
use crate::idl::codec::{self, Codec, Kind, Subject};

/// Returns the row.
pub(super) fn subjects() -> Vec<Subject> {
    codec::subjects("hand-coded, Rust", Kind::Hand, || Hand {
        listing: listing(&Arguments::new()),
        path: CString::new(cases::PATH).unwrap_or_default(),
        arguments: Arguments::new(),
        request: Pass::new(),
        reply: Pass::new(),
    })
}

fn listing(arguments: &Arguments) -> Vec<Listed> {
    let listed = |e: &cases::DirEntry| Listed {
        inode: e.inode,
        kind: e.kind,
        name: CString::new(e.name.as_str()).unwrap_or_default(),
    };
    arguments.entries.iter().map(listed).collect()
}

/// Bytes of a message buffer.
const BODY_MAX: usize = 8192;

struct Hand {
    arguments: Arguments,
    listing: Vec<Listed>,
    path: CString,
    request: Pass,
    reply: Pass,
}

/// One direction: the buffer that the sender writes, and the receiver's copy of it.
struct Pass {
    bytes: Box<Buffers>,
}

/// The buffers lie as in the transport of the generated stubs (`memory.rs`), so that the rows
/// differ in their code only.
#[repr(align(64))]
struct Buffers {
    wire: [u8; BODY_MAX],
    _apart: [u8; BODY_MAX / 4],
    own: [u8; BODY_MAX],
}

impl Pass {
    fn new() -> Self {
        let (wire, own) = ([0; BODY_MAX], [0; BODY_MAX]);
        Self { bytes: Box::new(Buffers { wire, _apart: [0; BODY_MAX / 4], own }) }
    }

    /// Copies a received message. Short messages are copied by whole message lines (48 bytes in the
    /// first, 64 in the second), since a copy of constant length needs no loop.
    #[inline]
    fn receive(&mut self, len: usize) -> Option<&[u8]> {
        let Buffers { wire, own, .. } = &mut *self.bytes;
        let wire = black_box(&*wire);
        let copied = match len {
            0 => 0,
            1..=48 => 48,
            49..=112 => 112,
            _ => len,
        };
        match copied {
            48 => own[..48].copy_from_slice(&wire[..48]),
            112 => own[..112].copy_from_slice(&wire[..112]),
            _ => own.get_mut(..copied)?.copy_from_slice(wire.get(..copied)?),
        }
        black_box(&*own).get(..len)
    }
}

fn pad8(len: usize) -> usize {
    (len + 7) & !7
}

/// A cursor that writes forward through a buffer.
struct Writer<'a> {
    body: &'a mut [u8],
    at: usize,
}

impl<'a> Writer<'a> {
    fn new(body: &'a mut [u8]) -> Self {
        Self { body, at: 0 }
    }

    #[inline]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.body.get_mut(self.at..)?.first_chunk_mut::<N>()? = bytes;
        self.at += N;
        Some(())
    }

    /// Writes bytes, padded with zeros to a multiple of 8.
    #[inline]
    fn bytes(&mut self, bytes: &[u8]) -> Option<()> {
        let padded = pad8(bytes.len());
        let to = self.body.get_mut(self.at..self.at + padded)?;
        if let Some(last) = to.last_chunk_mut::<8>() {
            *last = [0; 8];
        }
        to[..bytes.len()].copy_from_slice(bytes);
        self.at += padded;
        Some(())
    }
}

/// A cursor that reads forward through a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    #[inline]
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    #[inline]
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (padded, rest) = self.0.split_at_checked(pad8(len))?;
        self.0 = rest;
        padded.get(..len)
    }

    /// Returns `None` if bytes are left: a message has to be exactly as long as its content.
    #[inline]
    fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl Codec for Hand {
    fn paper(&mut self) -> Option<u64> {
        let (a, b) = black_box(cases::AB);
        let body = self.request.bytes.wire.first_chunk_mut::<32>()?;
        body[..4].copy_from_slice(&a.to_ne_bytes());
        body[4..8].copy_from_slice(&b.to_ne_bytes());
        body[8..28].copy_from_slice(black_box(cases::TEXT));
        body[28..].fill(0);
        let message: &[u8; 32] = self.request.receive(32)?.try_into().ok()?;
        let mut reader = Reader(message);
        let (a, b) = (reader.u32()?, reader.u32()?);
        let text: [u8; 20] = *message[8..].first_chunk()?;
        if message[28..] != [0; 4] {
            return None;
        }
        let sum = cases::serve_paper(a.cast_signed(), b.cast_signed(), &text);
        self.reply.receive(0)?.is_empty().then_some(sum)
    }

    fn stat(&mut self) -> Option<u64> {
        let path = black_box(&self.path).to_bytes_with_nul();
        let mut writer = Writer::new(&mut self.request.bytes.wire[..]);
        writer.put((path.len() as u64).to_ne_bytes())?;
        writer.bytes(path)?;
        let len = writer.at;
        let mut reader = Reader(self.request.receive(len)?);
        let path_len = reader.u64()? as usize;
        let path = CStr::from_bytes_with_nul(reader.bytes(path_len)?).ok()?;
        reader.end()?;
        let stat = cases::serve_stat(path.to_bytes());
        let len = write_stat(&mut self.reply.bytes.wire[..], &stat)?;
        Some(cases::sum_stat(&read_stat(self.reply.receive(len)?)?))
    }

    fn list(&mut self) -> Option<u64> {
        self.request.bytes.wire[..8].copy_from_slice(&black_box(cases::DIRECTORY).to_ne_bytes());
        let mut reader = Reader(self.request.receive(8)?);
        let directory = reader.u64()?;
        reader.end()?;
        // The signature is that of the generated stubs: the server gives a listing away, and the
        // client receives a listing of its own.
        let entries = if directory == cases::DIRECTORY { self.listing.clone() } else { vec![] };
        let mut writer = Writer::new(&mut self.reply.bytes.wire[..]);
        writer.put((entries.len() as u64).to_ne_bytes())?;
        for entry in &entries {
            let name = entry.name.to_bytes();
            writer.put(entry.inode.to_ne_bytes())?;
            writer.put(entry.kind.to_ne_bytes())?;
            writer.put((name.len() as u32).to_ne_bytes())?;
            writer.bytes(name)?;
        }
        let len = writer.at;
        let entries = read_list(self.reply.receive(len)?)?;
        let sum = |e: &Listed| cases::sum_entry(e.inode, e.kind, e.name.to_bytes());
        Some(black_box(&entries).iter().map(sum).sum())
    }

    fn put(&mut self) -> Option<u64> {
        let (key, value) = (black_box(&self.arguments.key), black_box(&self.arguments.value));
        let mut writer = Writer::new(&mut self.request.bytes.wire[..]);
        writer.put((key.len() as u32).to_ne_bytes())?;
        writer.put((value.len() as u32).to_ne_bytes())?;
        writer.put(u64::from(black_box(cases::FLAGS)).to_ne_bytes())?;
        writer.bytes(key)?;
        writer.bytes(value)?;
        let len = writer.at;
        let mut reader = Reader(self.request.receive(len)?);
        let (key_len, value_len) = (reader.u32()? as usize, reader.u32()? as usize);
        let flags = u32::try_from(reader.u64()?).ok()?;
        let (key, value) = (reader.bytes(key_len)?, reader.bytes(value_len)?);
        reader.end()?;
        let revision = cases::serve_put(key, value, flags);
        self.reply.bytes.wire[..8].copy_from_slice(&revision.to_ne_bytes());
        let mut reader = Reader(self.reply.receive(8)?);
        let revision = reader.u64()?;
        reader.end().map(|()| revision)
    }

    fn record(&mut self) -> Option<u64> {
        write_record(&mut self.request.bytes.wire[..], black_box(&self.arguments.record))?;
        let record = read_record(self.request.receive(RECORD)?)?;
        let sum = cases::serve_record(&record);
        self.reply.receive(0)?.is_empty().then_some(sum)
    }

    fn tree(&mut self) -> Option<u64> {
        let mut writer = Writer::new(&mut self.request.bytes.wire[..]);
        write_node(&mut writer, black_box(&self.arguments.tree))?;
        let len = writer.at;
        let mut reader = Reader(self.request.receive(len)?);
        let tree = read_node(&mut reader, 32)?;
        reader.end()?;
        let sum = cases::serve_tree(&tree);
        self.reply.receive(0)?.is_empty().then_some(sum)
    }
}

/// Writes the answer of `stat`; returns its size.
fn write_stat(body: &mut [u8], stat: &Stat) -> Option<usize> {
    let mut writer = Writer::new(body);
    for word in [stat.device, stat.inode, stat.size, stat.blocks] {
        writer.put(word.to_ne_bytes())?;
    }
    for time in [stat.accessed_ns, stat.modified_ns, stat.changed_ns] {
        writer.put(time.to_ne_bytes())?;
    }
    for small in [stat.mode, stat.links, stat.uid, stat.gid] {
        writer.put(small.to_ne_bytes())?;
    }
    Some(writer.at)
}

fn read_stat(body: &[u8]) -> Option<Stat> {
    let body: &[u8; 72] = body.try_into().ok()?;
    let mut reader = Reader(body);
    Some(Stat {
        device: reader.u64()?,
        inode: reader.u64()?,
        size: reader.u64()?,
        blocks: reader.u64()?,
        accessed_ns: reader.u64()?.cast_signed(),
        modified_ns: reader.u64()?.cast_signed(),
        changed_ns: reader.u64()?.cast_signed(),
        mode: reader.u32()?,
        links: reader.u32()?,
        uid: reader.u32()?,
        gid: reader.u32()?,
    })
}

/// A directory entry as a user of a Rust interface has it, with a name for C.
#[derive(Clone)]
struct Listed {
    inode: u64,
    kind: u32,
    name: CString,
}

fn read_list(body: &[u8]) -> Option<Vec<Listed>> {
    let mut reader = Reader(body);
    let count = reader.u64()? as usize;
    if count > body.len() / 16 {
        return None;
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (inode, kind, len) = (reader.u64()?, reader.u32()?, reader.u32()? as usize);
        entries.push(Listed { inode, kind, name: CString::new(reader.bytes(len)?).ok()? });
    }
    reader.end().map(|()| entries)
}

/// Bytes of a record.
const RECORD: usize = 16 + 16 * 8 + 16 * 8;

fn write_record(body: &mut [u8], record: &Record) -> Option<()> {
    let body = body.first_chunk_mut::<RECORD>()?;
    body[..4].copy_from_slice(&record.sensor.to_ne_bytes());
    body[4..8].copy_from_slice(&record.flags.to_ne_bytes());
    body[8..16].copy_from_slice(&record.time_ns.to_ne_bytes());
    let (counters, gauges) = body[16..].split_at_mut(128);
    for (to, counter) in counters.as_chunks_mut::<8>().0.iter_mut().zip(&record.counters) {
        *to = counter.to_ne_bytes();
    }
    for (to, gauge) in gauges.as_chunks_mut::<8>().0.iter_mut().zip(&record.gauges) {
        *to = gauge.to_ne_bytes();
    }
    Some(())
}

fn read_record(body: &[u8]) -> Option<Record> {
    let body: &[u8; RECORD] = body.try_into().ok()?;
    let mut reader = Reader(&body[..16]);
    let (sensor, flags, time_ns) = (reader.u32()?, reader.u32()?, reader.u64()?);
    let words = body[16..].as_chunks::<8>().0;
    let counters = std::array::from_fn(|i| u64::from_ne_bytes(words[i]));
    let gauges = std::array::from_fn(|i| f64::from_ne_bytes(words[16 + i]));
    Some(Record { sensor, flags, time_ns, counters, gauges })
}

fn write_node(writer: &mut Writer<'_>, node: &Node) -> Option<()> {
    writer.put(node.value.to_ne_bytes())?;
    let children = u32::from(node.left.is_some()) | u32::from(node.right.is_some()) << 1;
    writer.put(children.to_ne_bytes())?;
    for child in [&node.left, &node.right].into_iter().flatten() {
        write_node(writer, child)?;
    }
    Some(())
}

fn read_node(reader: &mut Reader<'_>, depth: usize) -> Option<Node> {
    let (value, children) = (reader.u32()?.cast_signed(), reader.u32()?);
    if children > 3 || depth == 0 {
        return None;
    }
    let mut child = |bit: u32| -> Option<Option<Box<Node>>> {
        if children & bit == 0 {
            return Some(None);
        }
        Some(Some(Box::new(read_node(reader, depth - 1)?)))
    };
    Some(Node { value, left: child(1)?, right: child(2)? })
}
