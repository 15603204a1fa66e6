//! Context handles: what a server keeps for a client between calls.
//!
//! # Theory of operation
//! A server names its objects by numbers of its own (not 0). What travels is another word, issued
//! by the table: index and generation, valid for one client and one handle type. So a client can
//! neither guess another's handle nor use its own after it was closed. When a client is gone, the
//! table says which objects it still held, so that the server can run them down.
//! Not here: the objects themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ClientId;

/// A handle that a client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Held {
    client: ClientId,
    handle: ServerHandle,
}

/// A context handle as the server knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ServerHandle {
    /// The handle type: its number within the interface.
    pub kind: u32,
    /// The server's number of the object.
    pub number: u64,
}

#[derive(Debug, Default)]
struct HandleEntry {
    generation: u32,
    held: Option<Held>,
}

#[derive(Debug, Default)]
struct HandleTable {
    list: Vec<HandleEntry>,
    free: Vec<u32>,
    by_held: HashMap<Held, u32>,
}

/// The context handles of one service.
#[derive(Debug, Default)]
pub struct ContextTable {
    entries: Mutex<HandleTable>,
}

fn word(index: u32, generation: u32) -> u64 {
    (u64::from(index) + 1) << 32 | u64::from(generation)
}

impl ContextTable {
    /// Creates a table without handles.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, HandleTable> {
        // Every change below is complete before it could panic, so a poisoned table is a sound one.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the word for the server's `number`, which `client` holds from now on; 0 for 0.
    #[must_use]
    pub fn issue(&self, client: ClientId, kind: u32, number: u64) -> u64 {
        if number == 0 {
            return 0;
        }
        let held = Held { client, handle: ServerHandle { kind, number } };
        let entries = &mut *self.lock();
        if let Some(index) = entries.by_held.get(&held) {
            return word(*index, entries.list[*index as usize].generation);
        }
        let index = entries.free.pop().unwrap_or(entries.list.len() as u32);
        if index as usize == entries.list.len() {
            entries.list.push(HandleEntry::default());
        }
        let entry = &mut entries.list[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.held = Some(held);
        entries.by_held.insert(held, index);
        word(index, entry.generation)
    }

    /// Returns the server's number for a word from `client`; 0 for 0; `None` if the client does not
    /// hold it.
    #[must_use]
    pub fn find(&self, client: ClientId, kind: u32, word: u64) -> Option<u64> {
        if word == 0 {
            return Some(0);
        }
        let index = usize::try_from((word >> 32).checked_sub(1)?).ok()?;
        let entries = self.lock();
        let entry = entries.list.get(index)?;
        let Held { client: holder, handle } = entry.held?;
        let valid = entry.generation == word as u32 && holder == client && handle.kind == kind;
        valid.then_some(handle.number)
    }

    /// Notes that `client` no longer holds `number`.
    pub fn forget(&self, client: ClientId, kind: u32, number: u64) {
        let held = Held { client, handle: ServerHandle { kind, number } };
        let entries = &mut *self.lock();
        if let Some(index) = entries.by_held.remove(&held) {
            entries.list[index as usize].held = None;
            entries.free.push(index);
        }
    }

    /// Takes all handles from `client` and returns them, oldest slot first.
    #[must_use]
    pub fn run_down(&self, client: ClientId) -> Vec<ServerHandle> {
        let entries = &mut *self.lock();
        let mut taken = Vec::new();
        for (index, entry) in entries.list.iter_mut().enumerate() {
            if let Some(held) = entry.held.take_if(|held| held.client == client) {
                entries.by_held.remove(&held);
                entries.free.push(index as u32);
                taken.push(held.handle);
            }
        }
        taken
    }
}

/// The handles of one client.
#[derive(Clone, Debug)]
pub struct ContextScope {
    table: Arc<ContextTable>,
    client: ClientId,
}

impl ContextScope {
    /// Returns the handles of `client` in `table`.
    #[must_use]
    pub fn new(table: &Arc<ContextTable>, client: ClientId) -> Self {
        Self { table: Arc::clone(table), client }
    }

    pub(super) fn issue(&self, kind: u32, number: u64) -> u64 {
        self.table.issue(self.client, kind, number)
    }

    pub(super) fn find(&self, kind: u32, word: u64) -> Option<u64> {
        self.table.find(self.client, kind, word)
    }
}
