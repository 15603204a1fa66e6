//! The table of sessions: numbers for each client, tokens across clients, limits. Pure.
//!
//! A session lives as long as a client has a part of it. Not here: the session itself (`session`),
//! the randomness of tokens (`server`).

use crate::groups::Groups;
use crate::token::Token;
use rustix::io::Errno;
use sojourn_ipc::ClientId;
use sojourn_session::protocol::server::TokenT;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The limits of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Sessions of one client.
    pub(crate) of_client: usize,
    /// Sessions in all.
    pub(crate) in_all: usize,
}

/// The parts of one client.
#[derive(Debug)]
struct Parts<S> {
    sessions: BTreeMap<u32, Arc<OpenSession<S>>>,
    /// The number that was given out last.
    last: u32,
}

/// A session and its token.
#[derive(Debug)]
pub(crate) struct OpenSession<S> {
    token: Token,
    pub(crate) session: S,
}

/// A session that was taken in.
#[derive(Debug)]
pub(crate) struct Opened<S> {
    /// Its number for the client.
    pub(crate) number: u32,
    pub(crate) entry: Arc<OpenSession<S>>,
}

/// A session that was not taken in.
#[derive(Debug)]
pub(crate) struct Refused<S> {
    pub(crate) error: Errno,
    pub(crate) session: S,
}

/// A session that a client has.
#[derive(Debug)]
pub(crate) struct Found<S> {
    pub(crate) entry: Arc<OpenSession<S>>,
    /// Others have it, too.
    pub(crate) is_shared: bool,
}

/// A part in a session that was taken back.
#[derive(Debug)]
pub(crate) struct TakenPart<S> {
    pub(crate) entry: Arc<OpenSession<S>>,
    /// It was the last part.
    pub(crate) is_last: bool,
}

/// A session, and the number of its parts.
#[derive(Debug)]
struct Counted<S> {
    entry: Arc<OpenSession<S>>,
    parts: usize,
}

/// The sessions and clients of a server.
#[derive(Debug)]
pub(crate) struct Table<S> {
    limits: Limits,
    clients: HashMap<ClientId, Parts<S>>,
    groups: Groups,
    tokens: HashMap<Token, Counted<S>>,
}

impl<S> Table<S> {
    pub(crate) fn new(limits: Limits) -> Self {
        let groups = Groups::default();
        Self { limits, clients: HashMap::new(), groups, tokens: HashMap::new() }
    }

    /// Returns true if there is neither a session nor a client with a part or a group.
    #[cfg(any(debug_assertions, fuzzing))]
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty() && self.tokens.is_empty() && self.groups.is_empty()
    }

    /// Returns the first connection of the client's group, whose sessions it has, too.
    pub(crate) fn first_of(&self, client: ClientId) -> ClientId {
        self.groups.first_of(client)
    }

    /// Returns the token of the client's group; `fresh` if it had none.
    ///
    /// # Errors
    /// Those of [`Groups::token`].
    pub(crate) fn group(&mut self, client: ClientId, fresh: Token) -> Result<Token, Errno> {
        self.groups.token(client, fresh)
    }

    /// Adds a client to a group.
    ///
    /// # Errors
    /// `EBUSY`: it has sessions of its own. Those of [`Groups::join`].
    pub(crate) fn join(&mut self, client: ClientId, group: &TokenT) -> Result<(), Errno> {
        if self.clients.get(&client).is_some_and(|parts| !parts.sessions.is_empty()) {
            return Err(Errno::BUSY);
        }
        self.groups.join(client, &Token(group.half))
    }

    /// Returns the connections whose sessions are this one's: itself, and those of the group of
    /// which it is the first.
    pub(crate) fn members_of(&self, client: ClientId) -> Vec<ClientId> {
        self.groups.members_of(client)
    }

    /// Returns the sessions of the first connection of the client's group; none if it is itself the
    /// first.
    pub(crate) fn sessions_of_first(&self, client: ClientId) -> Vec<Arc<OpenSession<S>>> {
        if self.first_of(client) == client {
            return Vec::new();
        }
        let parts = self.parts_of(client);
        parts.into_iter().flat_map(|parts| parts.sessions.values().map(Arc::clone)).collect()
    }

    fn parts_of(&self, client: ClientId) -> Option<&Parts<S>> {
        self.clients.get(&self.groups.first_of(client))
    }

    /// Returns an error if the client may not have one more session, or there are too many.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`.
    pub(crate) fn has_room(&self, client: ClientId) -> Result<(), Errno> {
        let theirs = self.parts_of(client).map_or(0, |parts| parts.sessions.len());
        if theirs >= self.limits.of_client {
            return Err(Errno::MFILE);
        }
        if self.tokens.len() >= self.limits.in_all { Err(Errno::NFILE) } else { Ok(()) }
    }

    /// Takes in a session with a fresh token, and with a part for the client.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`; then the session is given back.
    pub(crate) fn open(
        &mut self,
        client: ClientId,
        token: Token,
        session: S,
    ) -> Result<Opened<S>, Refused<S>> {
        if let Err(error) = self.has_room(client) {
            return Err(Refused { error, session });
        }
        let entry = Arc::new(OpenSession { token, session });
        self.tokens.insert(token, Counted { entry: Arc::clone(&entry), parts: 1 });
        Ok(Opened { number: self.give(client, &entry), entry })
    }

    /// Gives the client a part of the session of that token; one that it has it gets again.
    ///
    /// # Errors
    /// `ENOENT`: there is none. `EMFILE`.
    pub(crate) fn attach(&mut self, client: ClientId, token: &TokenT) -> Result<u32, Errno> {
        let parts = self.parts_of(client);
        let has = |parts: &Parts<S>| {
            parts.sessions.iter().find(|(_, e)| e.token.0 == token.half).map(|(n, _)| *n)
        };
        if let Some(number) = parts.and_then(has) {
            return Ok(number);
        }
        if parts.is_some_and(|parts| parts.sessions.len() >= self.limits.of_client) {
            return Err(Errno::MFILE);
        }
        let counted = self.tokens.get_mut(&Token(token.half)).ok_or(Errno::NOENT)?;
        counted.parts += 1;
        let entry = Arc::clone(&counted.entry);
        Ok(self.give(client, &entry))
    }

    fn give(&mut self, client: ClientId, entry: &Arc<OpenSession<S>>) -> u32 {
        let fresh = || Parts { sessions: BTreeMap::new(), last: 0 };
        let first = self.groups.first_of(client);
        let parts = self.clients.entry(first).or_insert_with(fresh);
        loop {
            // 0 names nothing. A client has far fewer sessions than there are numbers.
            parts.last = parts.last.wrapping_add(1).max(1);
            if !parts.sessions.contains_key(&parts.last) {
                parts.sessions.insert(parts.last, Arc::clone(entry));
                return parts.last;
            }
        }
    }

    /// Returns the session that a client has under a number.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn find(&self, client: ClientId, number: u32) -> Result<Found<S>, Errno> {
        let found = self.parts_of(client).and_then(|parts| parts.sessions.get(&number));
        let entry = found.ok_or(Errno::BADF)?;
        Ok(Found { entry: Arc::clone(entry), is_shared: self.is_shared(entry) })
    }

    /// Returns true if more than one client has a part of the session.
    pub(crate) fn is_shared(&self, entry: &OpenSession<S>) -> bool {
        self.tokens.get(&entry.token).is_some_and(|counted| counted.parts > 1)
    }

    /// Returns the number under which a client has a session.
    pub(crate) fn number_of(&self, client: ClientId, entry: &Arc<OpenSession<S>>) -> Option<u32> {
        let parts = self.parts_of(client)?;
        parts.sessions.iter().find(|(_, own)| Arc::ptr_eq(own, entry)).map(|(number, _)| *number)
    }

    /// Takes a client's part back.
    ///
    /// # Errors
    /// `EBADF`.
    pub(crate) fn close(&mut self, client: ClientId, number: u32) -> Result<TakenPart<S>, Errno> {
        let first = self.groups.first_of(client);
        let parts = self.clients.get_mut(&first).ok_or(Errno::BADF)?;
        let entry = parts.sessions.remove(&number).ok_or(Errno::BADF)?;
        let is_last = self.release(&entry);
        Ok(TakenPart { entry, is_last })
    }

    /// Takes all parts of a client back; returns for each the same as [`Table::close`].
    pub(crate) fn gone(&mut self, client: ClientId) -> Vec<TakenPart<S>> {
        self.groups.gone(client);
        let parts = self.clients.remove(&client);
        let sessions = parts.into_iter().flat_map(|parts| parts.sessions.into_values());
        sessions
            .collect::<Vec<_>>()
            .into_iter()
            .map(|entry| TakenPart { is_last: self.release(&entry), entry })
            .collect()
    }

    fn release(&mut self, entry: &OpenSession<S>) -> bool {
        let Some(counted) = self.tokens.get_mut(&entry.token) else { return false };
        counted.parts -= 1;
        if counted.parts > 0 {
            return false;
        }
        self.tokens.remove(&entry.token);
        true
    }
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
