//! The marshalled interfaces: the paper's function, and five interfaces of the kinds that real
//! systems have. Their arguments, the called functions, and the caller's use of the answer are the
//! same for every row.
//!
//! `c/common.c` has the same for the C rows. Every row returns a sum over the values that arrived;
//! all rows of a case must agree (`codecs.rs` tests it).

use std::hint::black_box;

/// An interface with its arguments: a column of the table, in the table's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Case {
    /// `func([in] int a, [in] int b, [in, size_is(20)] char *c)`.
    Paper,
    /// A path in, a structure of eleven numbers out.
    Stat,
    /// A handle in, 32 directory entries with names out.
    List,
    /// A key of 16 bytes and a value of 1 KiB in, a revision out.
    Put,
    /// A record of 35 numbers in, 16 of them floating point.
    Record,
    /// A tree of 15 nodes in.
    Tree,
}

impl Case {
    /// All cases, in the table's order.
    pub(crate) const ALL: [Self; 6] =
        [Self::Paper, Self::Stat, Self::List, Self::Put, Self::Record, Self::Tree];

    /// Returns the heading of the case's column.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Stat => "stat",
            Self::List => "list",
            Self::Put => "put",
            Self::Record => "record",
            Self::Tree => "tree",
        }
    }

    /// Returns the description of the case for the legend.
    pub(crate) fn legend(self) -> &'static str {
        match self {
            Self::Paper => "the paper's func([in] int, [in] int, [in, size_is(20)] char *)",
            Self::Stat => "path in, 11 numbers out",
            Self::List => "handle in, 32 directory entries with names out",
            Self::Put => "16-byte key and 1 KiB value in, revision out",
            Self::Record => "a telemetry record of 35 numbers in",
            Self::Tree => "a tree of 15 nodes in",
        }
    }
}

/// Bytes of the paper's array.
pub(crate) const TEXT: &[u8; 20] = b"twenty bytes of text";
/// The first two arguments of the paper's function.
pub(crate) const AB: (i32, i32) = (7, -9);
/// Argument of `stat`.
pub(crate) const PATH: &str = "/var/lib/sojourn/sessions/active";
/// Argument of `list`.
pub(crate) const DIRECTORY: u64 = 77;
/// Third argument of `put`.
pub(crate) const FLAGS: u32 = 5;

/// The answer of `stat`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "rivals", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub(crate) struct Stat {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) accessed_ns: i64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A directory entry: an element of the answer of `list`.
#[derive(Clone, Debug)]
pub(crate) struct DirEntry {
    pub(crate) inode: u64,
    pub(crate) kind: u32,
    pub(crate) name: String,
}

/// A telemetry record: the argument of `record`.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "rivals", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub(crate) struct Record {
    pub(crate) sensor: u32,
    pub(crate) flags: u32,
    pub(crate) time_ns: u64,
    pub(crate) counters: [u64; 16],
    pub(crate) gauges: [f64; 16],
}

/// A node of the tree that is the argument of `tree`.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "rivals", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Node {
    pub(crate) value: i32,
    pub(crate) left: Option<Box<Node>>,
    pub(crate) right: Option<Box<Node>>,
}

/// The arguments that are not constants.
pub(crate) struct Arguments {
    pub(crate) key: [u8; 16],
    pub(crate) value: Vec<u8>,
    pub(crate) entries: Vec<DirEntry>,
    pub(crate) record: Record,
    pub(crate) tree: Node,
}

impl Arguments {
    /// Makes the arguments, which are the same each time.
    pub(crate) fn new() -> Self {
        let entry = |i: usize| DirEntry {
            inode: 1000 + i as u64,
            kind: i as u32 % 3,
            name: format!("entry-{i:02}-{}", "x".repeat(i % 17)),
        };
        let record = Record {
            sensor: 42,
            flags: 3,
            time_ns: 1_700_000_000_000_000_000,
            counters: std::array::from_fn(|i| i as u64 * 1_000_003),
            gauges: std::array::from_fn(|i| i as f64 * 2.0),
        };
        Self {
            key: std::array::from_fn(|i| i as u8 * 3),
            value: (0..1024_u32).map(|i| (i * 7) as u8).collect(),
            entries: (0..32).map(entry).collect(),
            record,
            tree: grow(4, &mut 0).map_or(Node { value: 0, left: None, right: None }, |tree| *tree),
        }
    }
}

fn grow(depth: usize, used: &mut i32) -> Option<Box<Node>> {
    if depth == 0 {
        return None;
    }
    *used += 1;
    let value = *used;
    let left = grow(depth - 1, used);
    Some(Box::new(Node { value, left, right: grow(depth - 1, used) }))
}

fn ends(bytes: &[u8]) -> u64 {
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => u64::from(first) + u64::from(last),
        _ => 0,
    }
}

/// The called function of `paper`.
#[inline(never)]
pub(crate) fn serve_paper(a: i32, b: i32, c: &[u8]) -> u64 {
    u64::from(a.cast_unsigned()) + u64::from(b.cast_unsigned()) + ends(c)
}

/// The called function of `stat`.
#[inline(never)]
pub(crate) fn serve_stat(path: &[u8]) -> Stat {
    Stat {
        device: 66,
        inode: 1_234_567,
        size: path.len() as u64 + ends(path),
        blocks: 16,
        accessed_ns: 1_700_000_000_000_000_001,
        modified_ns: 1_600_000_000_000_000_002,
        changed_ns: 1_600_000_000_000_000_003,
        mode: 0o100_644,
        links: 1,
        uid: 1000,
        gid: 100,
    }
}

/// The called function of `list`.
#[inline(never)]
pub(crate) fn serve_list(arguments: &Arguments, directory: u64) -> &[DirEntry] {
    if directory == DIRECTORY { black_box(&arguments.entries) } else { &[] }
}

/// The called function of `put`.
#[inline(never)]
pub(crate) fn serve_put(key: &[u8], value: &[u8], flags: u32) -> u64 {
    let key_end = key.last().map_or(0, |&b| u64::from(b));
    key.len() as u64 + key_end + value.len() as u64 + ends(value) + u64::from(flags)
}

/// The called function of `record`.
#[inline(never)]
pub(crate) fn serve_record(record: &Record) -> u64 {
    let counters = record.counters.iter().copied();
    let gauges = record.gauges.iter().map(|&gauge| gauge as u64);
    sum_record(record.sensor, record.flags, record.time_ns, counters, gauges)
}

/// Computes the sum of [`serve_record`], for rows that never have the record as one structure.
#[inline]
pub(crate) fn sum_record(
    sensor: u32,
    flags: u32,
    time_ns: u64,
    counters: impl Iterator<Item = u64>,
    gauges: impl Iterator<Item = u64>,
) -> u64 {
    let head = u64::from(sensor) + u64::from(flags) + time_ns;
    counters.chain(gauges).fold(head, u64::wrapping_add)
}

/// The called function of `tree`.
#[inline(never)]
pub(crate) fn serve_tree(node: &Node) -> u64 {
    let below = [&node.left, &node.right];
    let sum = below.into_iter().flatten().map(|child| serve_tree(child)).sum::<u64>();
    u64::from(node.value.cast_unsigned()) + sum
}

/// The caller's use of the answer of `stat`.
#[inline(never)]
pub(crate) fn sum_stat(stat: &Stat) -> u64 {
    let times = [stat.accessed_ns, stat.modified_ns, stat.changed_ns].map(i64::cast_unsigned);
    let small = [stat.mode, stat.links, stat.uid, stat.gid].map(u64::from);
    let large = [stat.device, stat.inode, stat.size, stat.blocks];
    times.into_iter().chain(small).chain(large).fold(0, u64::wrapping_add)
}

/// The caller's use of one entry of the answer of `list`.
#[inline]
pub(crate) fn sum_entry(inode: u64, kind: u32, name: &[u8]) -> u64 {
    inode + u64::from(kind) + name.len() as u64 + ends(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_fifteen_nodes_numbered_depth_first() {
        let tree = Arguments::new().tree;
        assert_eq!(serve_tree(&tree), (1..=15).sum::<u64>());
        assert_eq!(tree.left.map(|left| left.value), Some(2));
        assert_eq!(tree.right.map(|right| right.value), Some(9));
    }

    #[test]
    fn ends_of_nothing() {
        assert_eq!(ends(&[]), 0);
        assert_eq!(ends(&[3]), 6);
    }
}
