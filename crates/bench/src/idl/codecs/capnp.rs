//! The row of the crate `capnp`, with code from the Cap'n Proto compiler. A message is built in one
//! reused segment and read from the same memory, which saves the framing and the copy that a stream
//! would need.

use std::hint::black_box;

use capnp::Word;
use capnp::message::{Builder, Reader, ReaderOptions, SegmentArray, SingleSegmentAllocator};

use crate::idl::cases::{self, Arguments, Node, Stat};
use crate::idl::codec::{self, Codec, Kind, Subject};

/// The code that the Cap'n Proto compiler generates from `schemas/bench.capnp`.
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
pub(crate) mod bench_capnp {
    include!(concat!(env!("OUT_DIR"), "/bench_capnp.rs"));
}

use bench_capnp as schema;

/// Returns the row.
pub(super) fn subjects() -> Vec<Subject> {
    codec::subjects("Cap'n Proto, Rust", Kind::Rival, || Capnp {
        arguments: Arguments::new(),
        request: Word::allocate_zeroed_vec(WORDS),
        reply: Word::allocate_zeroed_vec(WORDS),
    })
}

/// Words of a segment.
const WORDS: usize = 1024;

struct Capnp {
    arguments: Arguments,
    request: Vec<Word>,
    reply: Vec<Word>,
}

type Message<'a> = Builder<SingleSegmentAllocator<'a>>;

fn message(segment: &mut [Word]) -> Message<'_> {
    Builder::new(SingleSegmentAllocator::new(Word::words_to_bytes_mut(segment)))
}

/// Hands a built message to `receive` as a reader, as if the message had just arrived.
fn pass<R>(
    message: &Message<'_>,
    receive: impl FnOnce(&Reader<SegmentArray<'_>>) -> Option<R>,
) -> Option<R> {
    let segments = message.get_segments_for_output();
    let reader = Reader::new(SegmentArray::new(black_box(&segments)), ReaderOptions::new());
    receive(&reader)
}

impl Codec for Capnp {
    fn paper(&mut self) -> Option<u64> {
        let (a, b) = black_box(cases::AB);
        let mut request = message(&mut self.request);
        let mut root = request.init_root::<schema::paper_args::Builder<'_>>();
        root.set_a(a);
        root.set_b(b);
        root.set_c(black_box(cases::TEXT));
        pass(&request, |reader| {
            let root = reader.get_root::<schema::paper_args::Reader<'_>>().ok()?;
            Some(cases::serve_paper(root.get_a(), root.get_b(), root.get_c().ok()?))
        })
    }

    fn stat(&mut self) -> Option<u64> {
        let mut request = message(&mut self.request);
        request.init_root::<schema::stat_args::Builder<'_>>().set_path(black_box(cases::PATH));
        let stat = pass(&request, |reader| {
            let root = reader.get_root::<schema::stat_args::Reader<'_>>().ok()?;
            Some(cases::serve_stat(root.get_path().ok()?.as_bytes()))
        })?;
        let mut reply = message(&mut self.reply);
        fill_stat(reply.init_root(), &stat);
        pass(&reply, |reader| {
            let root = reader.get_root::<schema::stat_reply::Reader<'_>>().ok()?;
            Some(cases::sum_stat(&take_stat(root)))
        })
    }

    fn list(&mut self) -> Option<u64> {
        let mut request = message(&mut self.request);
        let directory = black_box(cases::DIRECTORY);
        request.init_root::<schema::list_args::Builder<'_>>().set_directory(directory);
        let entries = pass(&request, |reader| {
            let root = reader.get_root::<schema::list_args::Reader<'_>>().ok()?;
            Some(cases::serve_list(&self.arguments, root.get_directory()))
        })?;
        let mut reply = message(&mut self.reply);
        let root = reply.init_root::<schema::list_reply::Builder<'_>>();
        let mut list = root.init_entries(entries.len() as u32);
        for (i, entry) in (0..).zip(entries) {
            let mut to = list.reborrow().get(i);
            to.set_inode(entry.inode);
            to.set_kind(entry.kind);
            to.set_name(&*entry.name);
        }
        pass(&reply, |reader| {
            let root = reader.get_root::<schema::list_reply::Reader<'_>>().ok()?;
            let mut sum = 0;
            for entry in root.get_entries().ok()? {
                let name = entry.get_name().ok()?.as_bytes();
                sum += cases::sum_entry(entry.get_inode(), entry.get_kind(), name);
            }
            Some(sum)
        })
    }

    fn put(&mut self) -> Option<u64> {
        let mut request = message(&mut self.request);
        let mut root = request.init_root::<schema::put_args::Builder<'_>>();
        root.set_key(black_box(&self.arguments.key));
        root.set_value(black_box(&self.arguments.value));
        root.set_flags(black_box(cases::FLAGS));
        let revision = pass(&request, |reader| {
            let root = reader.get_root::<schema::put_args::Reader<'_>>().ok()?;
            let (key, value) = (root.get_key().ok()?, root.get_value().ok()?);
            Some(cases::serve_put(key, value, root.get_flags()))
        })?;
        let mut reply = message(&mut self.reply);
        reply.init_root::<schema::put_reply::Builder<'_>>().set_revision(revision);
        pass(&reply, |reader| {
            Some(reader.get_root::<schema::put_reply::Reader<'_>>().ok()?.get_revision())
        })
    }

    fn record(&mut self) -> Option<u64> {
        let record = black_box(&self.arguments.record);
        let mut request = message(&mut self.request);
        let mut root = request.init_root::<schema::record_args::Builder<'_>>();
        root.set_sensor(record.sensor);
        root.set_flags(record.flags);
        root.set_time_ns(record.time_ns);
        let mut counters = root.reborrow().init_counters(16);
        for (i, &counter) in (0..).zip(&record.counters) {
            counters.set(i, counter);
        }
        let mut gauges = root.init_gauges(16);
        for (i, &gauge) in (0..).zip(&record.gauges) {
            gauges.set(i, gauge);
        }
        pass(&request, |reader| {
            let root = reader.get_root::<schema::record_args::Reader<'_>>().ok()?;
            let gauges = root.get_gauges().ok()?.iter().map(|gauge| gauge as u64);
            let counters = root.get_counters().ok()?.iter();
            let (sensor, flags, time) = (root.get_sensor(), root.get_flags(), root.get_time_ns());
            Some(cases::sum_record(sensor, flags, time, counters, gauges))
        })
    }

    fn tree(&mut self) -> Option<u64> {
        let mut request = message(&mut self.request);
        fill_node(request.init_root(), black_box(&self.arguments.tree));
        pass(&request, |reader| sum_node(reader.get_root().ok()?))
    }
}

fn fill_stat(mut to: schema::stat_reply::Builder<'_>, stat: &Stat) {
    to.set_device(stat.device);
    to.set_inode(stat.inode);
    to.set_size(stat.size);
    to.set_blocks(stat.blocks);
    to.set_accessed_ns(stat.accessed_ns);
    to.set_modified_ns(stat.modified_ns);
    to.set_changed_ns(stat.changed_ns);
    to.set_mode(stat.mode);
    to.set_links(stat.links);
    to.set_uid(stat.uid);
    to.set_gid(stat.gid);
}

fn take_stat(from: schema::stat_reply::Reader<'_>) -> Stat {
    Stat {
        device: from.get_device(),
        inode: from.get_inode(),
        size: from.get_size(),
        blocks: from.get_blocks(),
        accessed_ns: from.get_accessed_ns(),
        modified_ns: from.get_modified_ns(),
        changed_ns: from.get_changed_ns(),
        mode: from.get_mode(),
        links: from.get_links(),
        uid: from.get_uid(),
        gid: from.get_gid(),
    }
}

fn fill_node(mut to: schema::node::Builder<'_>, node: &Node) {
    to.set_value(node.value);
    if let Some(left) = &node.left {
        fill_node(to.reborrow().init_left(), left);
    }
    if let Some(right) = &node.right {
        fill_node(to.init_right(), right);
    }
}

fn sum_node(node: schema::node::Reader<'_>) -> Option<u64> {
    let mut sum = u64::from(node.get_value().cast_unsigned());
    if node.has_left() {
        sum += sum_node(node.get_left().ok()?)?;
    }
    if node.has_right() {
        sum += sum_node(node.get_right().ok()?)?;
    }
    Some(sum)
}
