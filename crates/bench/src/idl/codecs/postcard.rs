//! The row of the crate `postcard` over `serde`: integers of variable length; byte strings and
//! names borrow from the message.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

use crate::idl::cases::{self, Arguments, Node, Record, Stat};
use crate::idl::codec::{self, Codec, Kind, Subject};

/// Returns the row.
pub(super) fn subjects() -> Vec<Subject> {
    codec::subjects("postcard, Rust", Kind::Rival, || Postcard {
        arguments: Arguments::new(),
        request: vec![0; BODY_MAX],
        reply: vec![0; BODY_MAX],
    })
}

/// Bytes of a message buffer.
const BODY_MAX: usize = 8192;

struct Postcard {
    arguments: Arguments,
    request: Vec<u8>,
    reply: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct Paper {
    a: i32,
    b: i32,
    c: [u8; 20],
}

#[derive(Serialize, Deserialize)]
struct DirEntry<'a> {
    inode: u64,
    kind: u32,
    #[serde(borrow)]
    name: &'a str,
}

#[derive(Serialize, Deserialize)]
struct Put<'a> {
    #[serde(with = "bytes")]
    key: &'a [u8],
    #[serde(with = "bytes")]
    value: &'a [u8],
    flags: u32,
}

/// Writes a byte string as a whole instead of element by element, as the crate `serde_bytes` does.
mod bytes {
    pub(super) fn serialize<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(super) fn deserialize<'a, D: serde::Deserializer<'a>>(
        from: D,
    ) -> Result<&'a [u8], D::Error> {
        serde::Deserialize::deserialize(from)
    }
}

/// Serializes `value` and reads it back from the same memory.
fn pass<'a, T: Serialize, U: Deserialize<'a>>(body: &'a mut [u8], value: &T) -> Option<U> {
    let written = postcard::to_slice(value, body).ok()?;
    postcard::from_bytes(black_box(written)).ok()
}

impl Codec for Postcard {
    fn paper(&mut self) -> Option<u64> {
        let (a, b) = black_box(cases::AB);
        let paper = Paper { a, b, c: *black_box(cases::TEXT) };
        let got: Paper = pass(&mut self.request, &paper)?;
        Some(cases::serve_paper(got.a, got.b, &got.c))
    }

    fn stat(&mut self) -> Option<u64> {
        let path: &str = pass(&mut self.request, &black_box(cases::PATH))?;
        let stat = cases::serve_stat(path.as_bytes());
        let stat: Stat = pass(&mut self.reply, &stat)?;
        Some(cases::sum_stat(&stat))
    }

    fn list(&mut self) -> Option<u64> {
        let directory: u64 = pass(&mut self.request, &black_box(cases::DIRECTORY))?;
        let entries = cases::serve_list(&self.arguments, directory);
        let entry = |e: &'_ cases::DirEntry| (e.inode, e.kind);
        let listed: Vec<DirEntry<'_>> = entries
            .iter()
            .map(|e| {
                let (inode, kind) = entry(e);
                DirEntry { inode, kind, name: &e.name }
            })
            .collect();
        let entries: Vec<DirEntry<'_>> = pass(&mut self.reply, &listed)?;
        Some(entries.iter().map(|e| cases::sum_entry(e.inode, e.kind, e.name.as_bytes())).sum())
    }

    fn put(&mut self) -> Option<u64> {
        let (key, value) = (black_box(&self.arguments.key), black_box(&self.arguments.value));
        let put = Put { key, value, flags: black_box(cases::FLAGS) };
        let got: Put<'_> = pass(&mut self.request, &put)?;
        let revision = cases::serve_put(got.key, got.value, got.flags);
        pass(&mut self.reply, &revision)
    }

    fn record(&mut self) -> Option<u64> {
        let record: Record = pass(&mut self.request, black_box(&self.arguments.record))?;
        Some(cases::serve_record(&record))
    }

    fn tree(&mut self) -> Option<u64> {
        let tree: Node = pass(&mut self.request, black_box(&self.arguments.tree))?;
        Some(cases::serve_tree(&tree))
    }
}
