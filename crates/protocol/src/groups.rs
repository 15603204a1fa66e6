//! Groups of connections: several connections of one program, which have the same sessions. Pure.
//!
//! A program's threads each wait on a connection of their own. The sessions are those of the first
//! connection; the others find them there. Not here: the sessions (`table`), the randomness of
//! tokens (`server`).

use crate::token::Token;
use rustix::io::Errno;
use sojourn_ipc::ClientId;
use std::collections::HashMap;

/// The groups of a server.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The first connection of each group, by the group's token; and the other way round.
    firsts: HashMap<Token, ClientId>,
    tokens: HashMap<ClientId, Token>,
    /// The first connection of each later one's group.
    later: HashMap<ClientId, ClientId>,
}

impl Groups {
    /// Returns true if there is no group.
    #[cfg(any(debug_assertions, fuzzing))]
    pub(crate) fn is_empty(&self) -> bool {
        self.firsts.is_empty() && self.tokens.is_empty() && self.later.is_empty()
    }

    /// Returns the first connection of a connection's group, which may be itself.
    pub(crate) fn first_of(&self, client: ClientId) -> ClientId {
        self.later.get(&client).copied().unwrap_or(client)
    }

    /// Returns a connection, and the later ones of the group of which it is the first.
    pub(crate) fn members_of(&self, first: ClientId) -> Vec<ClientId> {
        let later = self.later.iter().filter(|(_, of)| **of == first).map(|(later, _)| *later);
        core::iter::once(first).chain(later).collect()
    }

    /// Returns the token of the group of which this connection is the first; `fresh` if it had
    /// none.
    ///
    /// # Errors
    /// `EBUSY`: it is a later one of another group.
    pub(crate) fn token(&mut self, client: ClientId, fresh: Token) -> Result<Token, Errno> {
        if self.later.contains_key(&client) {
            return Err(Errno::BUSY);
        }
        let token = *self.tokens.entry(client).or_insert(fresh);
        self.firsts.insert(token, client);
        Ok(token)
    }

    /// Adds a connection, which has no sessions, to a group.
    ///
    /// # Errors
    /// `EBUSY`: it is in a group. `ENOENT`: there is none of that token.
    pub(crate) fn join(&mut self, client: ClientId, token: &Token) -> Result<(), Errno> {
        if self.later.contains_key(&client) || self.tokens.contains_key(&client) {
            return Err(Errno::BUSY);
        }
        let first = *self.firsts.get(token).ok_or(Errno::NOENT)?;
        self.later.insert(client, first);
        Ok(())
    }

    /// Forgets a connection that has gone. The others of its group have no sessions any more if it
    /// was the first.
    pub(crate) fn gone(&mut self, client: ClientId) {
        self.later.retain(|later, first| *later != client && *first != client);
        if let Some(token) = self.tokens.remove(&client) {
            self.firsts.remove(&token);
        }
    }
}
