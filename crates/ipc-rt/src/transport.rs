//! The requirements of generated stubs on the transport of their messages.
//!
//! `sojourn_ipc`'s connections and servers are one implementation, the loopback of this crate's
//! tests another. Generated code is written against these traits and compiled for one of them, so
//! nothing here costs a call through a pointer.

use core::any::Any;
use std::sync::Arc;

use super::{CallError, Caller, ClientId, Credentials, Deadline, Decoder, Fault, Wait, Writer};

/// The client's end.
pub trait Transport {
    /// A message being built.
    type Draft<'c, 'd>: Draft<'d>
    where
        Self: 'c;

    /// Begins a request with a body of `body_len` bytes. Cannot fail: a body too large is found at
    /// the call.
    fn start<'c, 'd>(&'c mut self, op: u16, body_len: usize) -> Self::Draft<'c, 'd>;

    /// Waits in another way from now on; answers the way before. Stubs of operations with a `sync`
    /// of their own set it before the call and set back what they got after it
    /// ([`super::stub::waiting`]).
    ///
    /// A transport that waits in one way only, or not at all, leaves this as it is: it answers what
    /// it was given and does nothing.
    #[inline]
    fn set_wait(&mut self, wait: Wait) -> Wait {
        wait
    }

    /// Returns the object that a server in this address space registered for direct calls.
    fn local<L: Any + Send + Sync>(&self) -> Option<Arc<L>> {
        None
    }
}

/// A request being built; what it refers to lives for `'d`.
pub trait Draft<'d> {
    /// The answer.
    type Reply: Reply;

    /// Returns the writer of the message.
    fn encoder(&mut self) -> Writer<'_, 'd>;

    /// Sends the request and waits for the answer.
    ///
    /// # Errors
    /// Those of the transport, and [`CallError::Fault`].
    fn call(self, deadline: Deadline) -> Result<Self::Reply, CallError>;

    /// Sends the request one-way.
    ///
    /// # Errors
    /// Those of the transport.
    fn send(self, deadline: Deadline) -> Result<(), CallError>;
}

/// An answer.
pub trait Reply {
    /// Reads it.
    fn decoder(&mut self) -> Decoder<'_>;
}

/// The server's end.
pub trait ServerTransport {
    /// A request.
    type Request<'s>: Request<Token = Self::Token>
    where
        Self: 's;
    /// The right to answer one call once.
    type Token: Token<Ready = Self::Ready>;
    /// An answer on its way.
    type Ready: Ready;
    /// The reason why a server ends.
    type Error;

    /// Sends `ready`, if any, and waits for what happens next.
    ///
    /// # Errors
    /// The reason why this server ends.
    fn next(
        &mut self,
        ready: Option<Self::Ready>,
        deadline: Deadline,
    ) -> Result<Arrival<Self::Request<'_>>, Self::Error>;

    /// Disconnects a client whose message broke the rules of the interface.
    fn expel_for_bad_message(&mut self, client: ClientId);
}

/// An event for a server.
#[derive(Debug)]
#[non_exhaustive]
pub enum Arrival<R> {
    /// A call, to be answered.
    Call(R),
    /// A one-way message.
    Send(R),
    /// Notification bits from a client, coalesced.
    Notify(ClientId, u64),
    /// A new client.
    Connected(ClientId, Credentials),
    /// A client is gone.
    Gone(ClientId),
    /// The deadline has passed.
    Idle,
}

/// A received request.
pub trait Request {
    /// The right to answer it.
    type Token: Token;

    /// Returns the operation number, with the base of the interface.
    fn op(&self) -> u16;
    /// Returns the caller.
    fn caller(&self) -> Caller;
    /// Reads it.
    fn decoder(&mut self) -> Decoder<'_>;
    /// Gives up the message for the right to answer it.
    fn into_token(self) -> Self::Token;
}

/// The right to answer one call once. Dropped without an answer, it answers [`Fault::DROPPED`].
pub trait Token: Send + Sized + 'static {
    /// An answer on its way.
    type Ready: Ready;
    /// An answer being built.
    type Draft<'d>: ReplyDraft<'d, Ready = Self::Ready>;

    /// Begins the answer, with a body of `body_len` bytes.
    fn start<'d>(self, body_len: usize) -> Self::Draft<'d>;
    /// Answers with a fault.
    fn fault(self, fault: Fault) -> Self::Ready;
}

/// An answer being built.
pub trait ReplyDraft<'d> {
    /// An answer on its way.
    type Ready;

    /// Returns the writer of the message.
    fn encoder(&mut self) -> Writer<'_, 'd>;
    /// Ends it. Nothing it refers to is needed afterwards.
    fn finish(self) -> Self::Ready;
    /// Drops what was written and answers with a fault.
    fn fault(self, fault: Fault) -> Self::Ready;
}

/// An answer, to be given to [`ServerTransport::next`] or sent from any thread.
pub trait Ready {
    /// Sends the answer now.
    ///
    /// # Errors
    /// [`Gone`] if nobody waits for it any more.
    fn send(self) -> Result<(), Gone>;
}

/// The client to be answered is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client is gone")]
pub struct Gone;
