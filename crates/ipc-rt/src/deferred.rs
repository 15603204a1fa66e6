//! Replies that are given later, by any thread (`deferred` in the ACF).
//!
//! Generated code wraps [`Deferred`] in a type for each operation. The transport is hidden behind
//! one allocation, so that a server object does not depend on it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::transport::{Gone, Ready, Token};
use super::{CallError, ContextScope, Deadline, EncodeError, Fault, Measured, Writer};

/// Writes the answer's body.
type Write<'w, 'd> = &'w mut dyn FnMut(&mut Writer<'_, 'd>) -> Result<(), EncodeError>;

trait Answer: Send {
    fn reply<'d>(
        self: Box<Self>,
        size: Result<Measured, EncodeError>,
        contexts: Option<ContextScope>,
        write: Write<'_, 'd>,
    ) -> Result<(), Gone>;
    fn fault(self: Box<Self>, fault: Fault) -> Result<(), Gone>;
}

impl<K: Token> Answer for K {
    fn reply<'d>(
        self: Box<Self>,
        size: Result<Measured, EncodeError>,
        contexts: Option<ContextScope>,
        write: Write<'_, 'd>,
    ) -> Result<(), Gone> {
        super::stub::reply(*self, size, contexts, write).send()
    }

    fn fault(self: Box<Self>, fault: Fault) -> Result<(), Gone> {
        Token::fault(*self, fault).send()
    }
}

/// The right to answer one call, later and from any thread. Dropped, it answers
/// [`Fault::DROPPED`].
pub struct Deferred {
    answer: Box<dyn Answer>,
    contexts: Option<ContextScope>,
}

impl core::fmt::Debug for Deferred {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Deferred").field("contexts", &self.contexts).finish_non_exhaustive()
    }
}

impl Deferred {
    /// Around a transport's token.
    #[must_use]
    pub fn new(token: impl Token, contexts: Option<ContextScope>) -> Self {
        Self { answer: Box::new(token), contexts }
    }

    /// Answers with what `write` writes.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits any more.
    pub fn reply<'d>(
        self,
        size: Result<Measured, EncodeError>,
        mut write: impl FnMut(&mut Writer<'_, 'd>) -> Result<(), EncodeError>,
    ) -> Result<(), Gone> {
        self.answer.reply(size, self.contexts, &mut write)
    }

    /// Answers with a fault.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits any more.
    pub fn fault(self, fault: Fault) -> Result<(), Gone> {
        self.answer.fault(fault)
    }
}

/// Where a deferred answer goes.
#[derive(Debug)]
pub enum DeferredTo<R> {
    /// To a client, by message.
    Remote(Deferred),
    /// To a caller in this address space.
    Local(MailboxSender<R>),
}

/// A place for an answer within one address space: the deferred reply of an in-process call.
#[derive(Debug)]
pub struct Mailbox<R> {
    shared: Arc<Shared<R>>,
}

/// What a mailbox and its sender share.
#[derive(Debug)]
struct Shared<R> {
    state: Mutex<State<R>>,
    filled: Condvar,
}

#[derive(Debug)]
enum State<R> {
    Empty,
    Full(Result<R, Fault>),
    Over,
}

/// The right to fill a [`Mailbox`]. Dropped, it answers [`Fault::DROPPED`].
#[derive(Debug)]
pub struct MailboxSender<R> {
    shared: Arc<Shared<R>>,
}

/// A mailbox and the right to fill it.
#[derive(Debug)]
pub struct NewMailbox<R> {
    /// The right to fill the mailbox.
    pub sender: MailboxSender<R>,
    /// The mailbox, empty.
    pub mailbox: Mailbox<R>,
}

/// Makes a mailbox.
#[must_use]
pub fn mailbox<R>() -> NewMailbox<R> {
    let shared = Arc::new(Shared { state: Mutex::new(State::Empty), filled: Condvar::new() });
    NewMailbox {
        sender: MailboxSender { shared: Arc::clone(&shared) },
        mailbox: Mailbox { shared },
    }
}

impl<R> MailboxSender<R> {
    /// Fills it.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits any more.
    pub fn send(self, result: Result<R, Fault>) -> Result<(), Gone> {
        self.fill(result)
    }

    fn fill(&self, result: Result<R, Fault>) -> Result<(), Gone> {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        match *state {
            State::Empty => {
                *state = State::Full(result);
                self.shared.filled.notify_one();
                Ok(())
            }
            State::Full(_) | State::Over => Err(Gone),
        }
    }
}

impl<R> Drop for MailboxSender<R> {
    fn drop(&mut self) {
        let _filled_before = self.fill(Err(Fault::DROPPED));
    }
}

impl<R> Mailbox<R> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The fault, or [`CallError::Timeout`].
    pub fn wait(self, deadline: Deadline) -> Result<R, CallError> {
        let Shared { state, filled } = &*self.shared;
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match core::mem::replace(&mut *state, State::Over) {
                State::Full(result) => return Ok(result?),
                State::Over => return Err(CallError::Timeout),
                State::Empty if deadline.is_over() => return Err(CallError::Timeout),
                State::Empty => *state = State::Empty,
            }
            state = match deadline.left() {
                None => filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    filled.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
