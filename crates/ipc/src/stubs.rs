//! The implementation of the generated stubs' transport by connections and servers.
//!
//! The methods only forward; each is documented at its implementation.

use crate::rt::{self, Arrival, CallError, Caller, ClientId, Decoder, Fault, Gone, Writer};
use crate::{
    Connection, Deadline, Draft, Event, ReadyReply, Reason, RecvError, Reply, ReplyDraft,
    ReplyToken, Request, Server, Wait,
};
use core::any::Any;
use std::sync::Arc;

impl rt::Transport for Connection {
    type Draft<'c, 'd> = Draft<'c, 'd>;

    #[inline]
    fn start<'c, 'd>(&'c mut self, op: u16, body_len: usize) -> Draft<'c, 'd> {
        Connection::start(self, op, body_len)
    }

    #[inline]
    fn set_wait(&mut self, wait: Wait) -> Wait {
        Connection::set_wait(self, wait)
    }

    fn local<L: Any + Send + Sync>(&self) -> Option<Arc<L>> {
        Connection::local(self)?.downcast().ok()
    }
}

impl<'c, 'd> rt::Draft<'d> for Draft<'c, 'd> {
    type Reply = Reply<'c>;

    #[inline]
    fn encoder(&mut self) -> Writer<'_, 'd> {
        Draft::encoder(self)
    }

    #[inline]
    fn call(self, deadline: Deadline) -> Result<Reply<'c>, CallError> {
        Draft::call(self, deadline)
    }

    #[inline]
    fn send(self, deadline: Deadline) -> Result<(), CallError> {
        Draft::send(self, deadline)
    }
}

impl rt::Reply for Reply<'_> {
    #[inline]
    fn decoder(&mut self) -> Decoder<'_> {
        Reply::decoder(self)
    }
}

impl rt::ServerTransport for Server {
    type Request<'s> = Request<'s>;
    type Token = ReplyToken;
    type Ready = ReadyReply;
    type Error = RecvError;

    #[inline]
    fn next(
        &mut self,
        ready: Option<ReadyReply>,
        deadline: Deadline,
    ) -> Result<Arrival<Request<'_>>, RecvError> {
        Ok(match self.reply_wait(ready, deadline) {
            Ok(Event::Call(request)) => Arrival::Call(request),
            Ok(Event::Send(request)) => Arrival::Send(request),
            Ok(Event::Notify { client, bits, .. }) => Arrival::Notify(client, bits),
            Ok(Event::Connected { client, credentials }) => Arrival::Connected(client, credentials),
            Ok(Event::Gone { client, .. }) => Arrival::Gone(client),
            Err(RecvError::TimedOut) => Arrival::Idle,
            Err(RecvError::Closed) => return Err(RecvError::Closed),
        })
    }

    fn expel_for_bad_message(&mut self, client: ClientId) {
        self.expel(client, Reason::BadMessage);
    }
}

impl rt::Request for Request<'_> {
    type Token = ReplyToken;

    #[inline]
    fn op(&self) -> u16 {
        Request::op(self)
    }

    fn caller(&self) -> Caller {
        Caller { client: self.client(), badge: self.badge(), credentials: self.credentials() }
    }

    #[inline]
    fn decoder(&mut self) -> Decoder<'_> {
        Request::decoder(self)
    }

    #[inline]
    fn into_token(self) -> ReplyToken {
        Request::into_token(self)
    }
}

impl rt::Token for ReplyToken {
    type Ready = ReadyReply;
    type Draft<'d> = ReplyDraft<'d>;

    #[inline]
    fn start<'d>(self, body_len: usize) -> ReplyDraft<'d> {
        ReplyToken::start(self, body_len)
    }

    fn fault(self, fault: Fault) -> ReadyReply {
        ReplyToken::fault(self, fault)
    }
}

impl<'d> rt::ReplyDraft<'d> for ReplyDraft<'d> {
    type Ready = ReadyReply;

    #[inline]
    fn encoder(&mut self) -> Writer<'_, 'd> {
        ReplyDraft::encoder(self)
    }

    #[inline]
    fn finish(self) -> ReadyReply {
        ReplyDraft::finish(self)
    }

    fn fault(self, fault: Fault) -> ReadyReply {
        ReplyDraft::fault(self, fault)
    }
}

impl rt::Ready for ReadyReply {
    #[inline]
    fn send(self) -> Result<(), Gone> {
        ReadyReply::send(self)
    }
}
