//! The stubs that `sojourn-idl` generates in Rust, for client and server, over the transport of
//! `memory.rs`.

use std::ffi::{CStr, CString};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sojourn_ipc::Fault;
use sojourn_ipc::rt::Caller;

use crate::idl::cases::{self, Arguments};
use crate::idl::codec::{self, Codec, Kind, Subject};
use crate::idl::memory::Memory;

/// The stubs that `sojourn-idl` generates from `idl/cases.idl`.
#[allow(unreachable_pub, reason = "generated for any place")]
mod stubs {
    include!(concat!(env!("OUT_DIR"), "/own/cases.rs"));
}

use stubs::{CasesClient, CasesServer, CasesService, Entry, FileStatus, Listing, Node, RecordArgs};

/// Returns the row.
pub(super) fn subjects() -> Vec<Subject> {
    codec::subjects("sojourn-idl, Rust", Kind::Ours, Ours::new)
}

/// The server object: keeps the sum of the arguments that arrived, or answers with a listing.
struct Object {
    sum: AtomicU64,
    listing: Listing,
}

impl CasesServer for Object {
    fn paper(&self, _: &Caller, a: i32, b: i32, c: &[u8; 20]) -> Result<(), Fault> {
        self.sum.store(cases::serve_paper(a, b, c), Relaxed);
        Ok(())
    }

    fn stat(&self, _: &Caller, path: &CStr) -> Result<FileStatus, Fault> {
        let stat = cases::serve_stat(path.to_bytes());
        Ok(FileStatus {
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
        })
    }

    fn list(&self, _: &Caller, directory: u64) -> Result<Listing, Fault> {
        let found = directory == cases::DIRECTORY;
        Ok(if found { self.listing.clone() } else { Listing { count: 0, entries: None } })
    }

    fn put(&self, _: &Caller, key: &[u8], value: &[u8], flags: u32) -> Result<u64, Fault> {
        Ok(cases::serve_put(key, value, flags))
    }

    fn record(&self, _: &Caller, what: &RecordArgs) -> Result<(), Fault> {
        let counters = what.counters.iter().copied();
        let gauges = what.gauges.iter().map(|&gauge| gauge as u64);
        let sum = cases::sum_record(what.sensor, what.flags, what.time_ns, counters, gauges);
        self.sum.store(sum, Relaxed);
        Ok(())
    }

    fn tree(&self, _: &Caller, root: &Node) -> Result<(), Fault> {
        self.sum.store(sum_node(root), Relaxed);
        Ok(())
    }
}

#[inline(never)]
fn sum_node(node: &Node) -> u64 {
    let below = [&node.left, &node.right];
    let sum = below.into_iter().flatten().map(|child| sum_node(child)).sum::<u64>();
    u64::from(node.value.cast_unsigned()) + sum
}

struct Ours {
    client: Option<CasesClient<Memory<CasesService<Object>>>>,
    object: Arc<Object>,
    path: CString,
    key: [u8; 16],
    value: Vec<u8>,
    record: RecordArgs,
    tree: Node,
}

impl Ours {
    fn new() -> Self {
        let arguments = Arguments::new();
        let entry = |entry: &cases::DirEntry| Entry {
            inode: entry.inode,
            kind: entry.kind,
            name: CString::new(entry.name.as_str()).ok(),
        };
        let entries: Vec<Entry> = arguments.entries.iter().map(entry).collect();
        let listing = Listing { count: entries.len() as u32, entries: Some(entries) };
        let object = Arc::new(Object { sum: AtomicU64::new(0), listing });
        let client = CasesClient::bind(Memory::new(CasesService::new(Arc::clone(&object))));
        let cases::Record { sensor, flags, time_ns, counters, gauges } = arguments.record;
        Self {
            client: client.ok(),
            object,
            path: CString::new(cases::PATH).unwrap_or_default(),
            key: arguments.key,
            value: arguments.value,
            record: RecordArgs { sensor, flags, time_ns, counters, gauges },
            tree: copied(&arguments.tree),
        }
    }

    /// Returns the sum that the server object computed, if the call succeeded.
    fn arrived<E>(&self, result: Result<(), E>) -> Option<u64> {
        result.ok().map(|()| self.object.sum.load(Relaxed))
    }
}

fn copied(node: &cases::Node) -> Node {
    let child = |child: &Option<Box<cases::Node>>| child.as_ref().map(|c| Box::new(copied(c)));
    Node { value: node.value, left: child(&node.left), right: child(&node.right) }
}

impl Codec for Ours {
    fn paper(&mut self) -> Option<u64> {
        let (a, b) = black_box(cases::AB);
        let result = self.client.as_mut()?.paper(a, b, black_box(cases::TEXT));
        self.arrived(result)
    }

    fn stat(&mut self) -> Option<u64> {
        let stat = self.client.as_mut()?.stat(black_box(&self.path)).ok()?;
        Some(cases::sum_stat(&cases::Stat {
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
        }))
    }

    fn list(&mut self) -> Option<u64> {
        let listing = self.client.as_mut()?.list(black_box(cases::DIRECTORY)).ok()?;
        let mut sum = 0;
        for entry in listing.entries.as_ref()? {
            sum += cases::sum_entry(entry.inode, entry.kind, entry.name.as_ref()?.to_bytes());
        }
        Some(sum)
    }

    fn put(&mut self) -> Option<u64> {
        let (key, value) = (black_box(&self.key), black_box(&self.value));
        self.client.as_mut()?.put(key, value, black_box(cases::FLAGS)).ok()
    }

    fn record(&mut self) -> Option<u64> {
        let result = self.client.as_mut()?.record(black_box(&self.record));
        self.arrived(result)
    }

    fn tree(&mut self) -> Option<u64> {
        let result = self.client.as_mut()?.tree(black_box(&self.tree));
        self.arrived(result)
    }
}
