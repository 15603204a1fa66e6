//! The row of the crate `planus` (FlatBuffers in Rust): a reused builder, and a reader that uses
//! the message in place.

use std::hint::black_box;

use planus::{Builder, Offset, ReadAsRoot as _};

use crate::idl::cases::{self, Arguments, Node, Stat};
use crate::idl::codec::{self, Codec, Kind, Subject};

/// The code that planus generates from `schemas/bench.fbs`.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    unsafe_code,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    clippy::unwrap_used,
    reason = "generated"
)]
mod schema {
    include!(concat!(env!("OUT_DIR"), "/bench_planus.rs"));
}

/// Returns the row.
pub(super) fn subjects() -> Vec<Subject> {
    codec::subjects("FlatBuffers (planus), Rust", Kind::Rival, || Planus {
        arguments: Arguments::new(),
        request: Builder::with_capacity(8192),
        reply: Builder::with_capacity(8192),
    })
}

struct Planus {
    arguments: Arguments,
    request: Builder,
    reply: Builder,
}

impl Codec for Planus {
    fn paper(&mut self) -> Option<u64> {
        let (a, b) = black_box(cases::AB);
        self.request.clear();
        let text = self.request.create_vector(black_box(&cases::TEXT[..]));
        let root = schema::PaperArgs::create(&mut self.request, a, b, text);
        let body = self.request.finish(root, None);
        let root = schema::PaperArgsRef::read_as_root(black_box(body)).ok()?;
        Some(cases::serve_paper(root.a().ok()?, root.b().ok()?, root.c().ok()??))
    }

    fn stat(&mut self) -> Option<u64> {
        self.request.clear();
        let path = self.request.create_string(black_box(cases::PATH));
        let root = schema::StatArgs::create(&mut self.request, path);
        let body = self.request.finish(root, None);
        let root = schema::StatArgsRef::read_as_root(black_box(body)).ok()?;
        let stat = cases::serve_stat(root.path().ok()??.as_bytes());
        self.reply.clear();
        let root = schema::StatRoot::create(&mut self.reply, made_stat(&stat));
        let body = self.reply.finish(root, None);
        let root = schema::StatRootRef::read_as_root(black_box(body)).ok()?;
        Some(cases::sum_stat(&read_stat(&root.reply().ok()??)))
    }

    fn list(&mut self) -> Option<u64> {
        self.request.clear();
        let directory = black_box(cases::DIRECTORY);
        let root = schema::ListArgs::create(&mut self.request, directory);
        let body = self.request.finish(root, None);
        let root = schema::ListArgsRef::read_as_root(black_box(body)).ok()?;
        let entries = cases::serve_list(&self.arguments, root.directory().ok()?);
        self.reply.clear();
        let mut offsets: Vec<Offset<schema::Entry>> = Vec::with_capacity(entries.len());
        for entry in entries {
            let name = self.reply.create_string(&*entry.name);
            let made = schema::Entry::create(&mut self.reply, entry.inode, entry.kind, name);
            offsets.push(made);
        }
        let list = self.reply.create_vector(&offsets[..]);
        let root = schema::ListReply::create(&mut self.reply, list);
        let body = self.reply.finish(root, None);
        let root = schema::ListReplyRef::read_as_root(black_box(body)).ok()?;
        let mut sum = 0;
        for entry in root.entries().ok()?? {
            let entry = entry.ok()?;
            let name = entry.name().ok()??.as_bytes();
            sum += cases::sum_entry(entry.inode().ok()?, entry.kind().ok()?, name);
        }
        Some(sum)
    }

    fn put(&mut self) -> Option<u64> {
        self.request.clear();
        let key = self.request.create_vector(black_box(&self.arguments.key[..]));
        let value = self.request.create_vector(black_box(&self.arguments.value[..]));
        let flags = black_box(cases::FLAGS);
        let root = schema::PutArgs::create(&mut self.request, key, value, flags);
        let body = self.request.finish(root, None);
        let root = schema::PutArgsRef::read_as_root(black_box(body)).ok()?;
        let (key, value) = (root.key().ok()??, root.value().ok()??);
        let revision = cases::serve_put(key, value, root.flags().ok()?);
        self.reply.clear();
        let root = schema::PutReply::create(&mut self.reply, revision);
        let body = self.reply.finish(root, None);
        schema::PutReplyRef::read_as_root(black_box(body)).ok()?.revision().ok()
    }

    fn record(&mut self) -> Option<u64> {
        let record = black_box(&self.arguments.record);
        self.request.clear();
        let counters = self.request.create_vector(&record.counters[..]);
        let gauges = self.request.create_vector(&record.gauges[..]);
        let (sensor, flags, time) = (record.sensor, record.flags, record.time_ns);
        let request = &mut self.request;
        let root = schema::RecordArgs::create(request, sensor, flags, time, counters, gauges);
        let body = self.request.finish(root, None);
        let root = schema::RecordArgsRef::read_as_root(black_box(body)).ok()?;
        let counters = root.counters().ok()??.iter();
        let gauges = root.gauges().ok()??.iter().map(|gauge| gauge as u64);
        let (sensor, flags) = (root.sensor().ok()?, root.flags().ok()?);
        Some(cases::sum_record(sensor, flags, root.time_ns().ok()?, counters, gauges))
    }

    fn tree(&mut self) -> Option<u64> {
        self.request.clear();
        let root = fill_node(&mut self.request, black_box(&self.arguments.tree));
        let body = self.request.finish(root, None);
        sum_node(schema::NodeRef::read_as_root(black_box(body)).ok()?)
    }
}

fn made_stat(stat: &Stat) -> schema::StatReply {
    schema::StatReply {
        device: stat.device,
        inode: stat.inode,
        size: stat.size,
        blocks: stat.blocks,
        accessed_ns: stat.accessed_ns,
        modified_ns: stat.modified_ns,
        changed_ns: stat.changed_ns,
        mode: stat.mode,
        links: stat.links,
        uid: stat.uid,
        gid: stat.gid,
    }
}

fn read_stat(from: &schema::StatReplyRef<'_>) -> Stat {
    Stat {
        device: from.device(),
        inode: from.inode(),
        size: from.size(),
        blocks: from.blocks(),
        accessed_ns: from.accessed_ns(),
        modified_ns: from.modified_ns(),
        changed_ns: from.changed_ns(),
        mode: from.mode(),
        links: from.links(),
        uid: from.uid(),
        gid: from.gid(),
    }
}

fn fill_node(builder: &mut Builder, node: &Node) -> Offset<schema::Node> {
    let left = node.left.as_ref().map(|left| fill_node(builder, left));
    let right = node.right.as_ref().map(|right| fill_node(builder, right));
    schema::Node::create(builder, node.value, left, right)
}

fn sum_node(node: schema::NodeRef<'_>) -> Option<u64> {
    let mut sum = u64::from(node.value().ok()?.cast_unsigned());
    for child in [node.left().ok()?, node.right().ok()?].into_iter().flatten() {
        sum += sum_node(child)?;
    }
    Some(sum)
}
