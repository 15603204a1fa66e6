//! A transport for generated Rust stubs that consists of memory only, so that stubs are timed
//! alone. A request is written to one buffer, copied once to another (as every receiver of shared
//! memory has to), and dispatched in the same thread.
//!
//! The counterpart in C is `c/memory.h`. The transport has no descriptors, grants, deadlines and
//! second client.
#![allow(
    unsafe_code,
    reason = "an encoder writes through raw pointers, and a reply token refers to its buffer"
)]

use std::hint::black_box;
use std::ptr::NonNull;

use sojourn_ipc::rt::{
    self, Arrival, Badge, CallError, Caller, ClientId, Credentials, Deadline, Decoder, Encoder,
    FdList, Gone, ITEMS_MAX, Item, Served, Service,
};
use sojourn_ipc::{Fault, Reason};

/// Words of a body buffer.
const WORDS: usize = 1024;

/// The buffer in which the sender writes a message, and the buffer of the receiver's copy. Both
/// begin at a cache line, and their low address bits differ, as in the hand-coded row: positions
/// left to the allocator change the result by several nanoseconds.
#[repr(align(64))]
struct Buffers {
    wire: [u64; WORDS],
    _apart: [u64; WORDS / 4],
    own: [u64; WORDS],
}

/// One direction: the sender's buffer and the receiver's copy of body and items.
struct Pass {
    bytes: Box<Buffers>,
    len: usize,
    /// The receiver's copies of the string items.
    items: Vec<Vec<u8>>,
    /// The same copies as the decoder wants them: they borrow from `items`, whose buffers do not
    /// move.
    lent: Vec<Item<'static>>,
    fds: FdList,
}

impl Pass {
    fn new() -> Self {
        Self {
            bytes: Box::new(Buffers { wire: [0; WORDS], _apart: [0; WORDS / 4], own: [0; WORDS] }),
            len: 0,
            items: Vec::with_capacity(ITEMS_MAX),
            lent: Vec::with_capacity(ITEMS_MAX),
            fds: FdList::new(),
        }
    }

    /// Begins a message of `len` bytes; returns an encoder over the sender's buffer. A message that
    /// is too long gets no room, so that its encoder fails.
    #[inline]
    fn begin<'d>(&mut self, len: usize) -> Encoder<'d> {
        let len = if len <= WORDS * 8 { len } else { 0 };
        self.len = len;
        // SAFETY: the buffer is aligned to 8 and has `len` bytes; the box does not move, and
        // nothing else touches the buffer until the encoder is finished.
        unsafe { Encoder::from_raw(self.bytes.wire.as_mut_ptr().cast(), len) }
    }

    /// Ends a message: copies its string items, which lie beside the body.
    #[inline]
    fn finish(&mut self, encoder: &Encoder<'_>) {
        self.lent.clear();
        if !encoder.items().is_empty() {
            self.finish_items(encoder.items());
        }
    }

    #[cold]
    fn finish_items(&mut self, items: &[&[u8]]) {
        self.items.clear();
        self.items.extend(items.iter().map(|item| item.to_vec()));
        for item in &self.items {
            // SAFETY: `lent` is cleared before `items` changes, and both are dropped together.
            let bytes = unsafe { std::slice::from_raw_parts(item.as_ptr(), item.len()) };
            self.lent.push(Item::Private(bytes));
        }
    }

    /// Copies the body once. Short bodies are copied by whole message lines, since a copy of
    /// constant length needs no loop.
    #[inline]
    fn receive(&mut self) {
        let Buffers { wire, own, .. } = &mut *self.bytes;
        let wire = black_box(&*wire);
        let words = self.len.div_ceil(8);
        if words > 14 {
            return own[..words].copy_from_slice(&wire[..words]);
        }
        // Two conditions in sequence: of alternatives the compiler makes one copy of variable
        // length.
        if words > 0 {
            own[..6].copy_from_slice(&wire[..6]);
        }
        if words > 6 {
            own[6..14].copy_from_slice(&wire[6..14]);
        }
    }

    #[inline]
    fn decoder(&mut self) -> Decoder<'_> {
        let body = &rt::bytes_of(&self.bytes.own[..])[..self.len];
        Decoder::new(body, &self.lent, &[], &mut self.fds)
    }
}

/// A connection to a service that runs in this thread.
pub(super) struct Memory<S> {
    service: S,
    request: Pass,
    reply: Box<Pass>,
}

impl<S> Memory<S> {
    /// Connects to `service`.
    pub(super) fn new(service: S) -> Self {
        Self { service, request: Pass::new(), reply: Box::new(Pass::new()) }
    }
}

impl<S: Service<MemoryServer>> Memory<S> {
    /// Dispatches a complete request; returns when the answer is in `reply`.
    #[inline(never)]
    fn exchange(&mut self, op: u16) -> Result<(), CallError> {
        self.request.receive();
        let token = Token(NonNull::from(&mut *self.reply));
        let request = Request { op, pass: &mut self.request, token };
        match rt::answer(&mut self.service, false, request) {
            Served::Reply(Ready { fault: None }) => {
                self.reply.receive();
                Ok(())
            }
            Served::Reply(Ready { fault: Some(fault) }) => Err(fault.into()),
            Served::Done => Err(CallError::Timeout),
            Served::Violation(..) => Err(CallError::Disconnected(Reason::BadMessage)),
        }
    }
}

impl<S: Service<MemoryServer>> rt::Transport for Memory<S> {
    type Draft<'c, 'd>
        = Draft<'c, 'd, S>
    where
        Self: 'c;

    #[inline]
    fn start<'c, 'd>(&'c mut self, op: u16, body_len: usize) -> Draft<'c, 'd, S> {
        let encoder = self.request.begin(body_len);
        Draft { memory: self, op, encoder }
    }
}

/// A request that is being built.
pub(super) struct Draft<'c, 'd, S> {
    memory: &'c mut Memory<S>,
    op: u16,
    encoder: Encoder<'d>,
}

impl<'c, 'd, S: Service<MemoryServer>> rt::Draft<'d> for Draft<'c, 'd, S> {
    type Reply = Reply<'c>;

    #[inline]
    fn encoder(&mut self) -> rt::Writer<'_, 'd> {
        self.encoder.writer()
    }

    #[inline(always)]
    fn call(self, _: Deadline) -> Result<Reply<'c>, CallError> {
        let memory = self.memory;
        memory.request.finish(&self.encoder);
        memory.exchange(self.op)?;
        Ok(Reply { pass: &mut memory.reply })
    }

    fn send(self, _: Deadline) -> Result<(), CallError> {
        Err(CallError::TooLarge)
    }
}

/// A received answer.
pub(super) struct Reply<'c> {
    pass: &'c mut Pass,
}

impl rt::Reply for Reply<'_> {
    #[inline]
    fn decoder(&mut self) -> Decoder<'_> {
        self.pass.decoder()
    }
}

/// Fills the server's place in the types: no request passes through it.
pub(super) struct MemoryServer;

impl rt::ServerTransport for MemoryServer {
    type Request<'s> = Request<'s>;
    type Token = Token;
    type Ready = Ready;
    type Error = std::convert::Infallible;

    fn next(&mut self, _: Option<Ready>, _: Deadline) -> Result<Arrival<Request<'_>>, Self::Error> {
        Ok(Arrival::Idle)
    }

    fn expel_for_bad_message(&mut self, _: ClientId) {}
}

/// A request that is handed to the service.
pub(super) struct Request<'s> {
    op: u16,
    pass: &'s mut Pass,
    token: Token,
}

impl rt::Request for Request<'_> {
    type Token = Token;

    #[inline]
    fn op(&self) -> u16 {
        self.op
    }

    #[inline]
    fn caller(&self) -> Caller {
        Caller {
            client: ClientId::default(),
            badge: Badge::default(),
            credentials: Credentials::default(),
        }
    }

    #[inline]
    fn decoder(&mut self) -> Decoder<'_> {
        self.pass.decoder()
    }

    #[inline]
    fn into_token(self) -> Token {
        self.token
    }
}

/// The right to answer: refers to the buffer of the reply.
pub(super) struct Token(NonNull<Pass>);

// SAFETY: the trait asks for `Send`; these rows answer in the thread that called.
unsafe impl Send for Token {}

impl rt::Token for Token {
    type Ready = Ready;
    type Draft<'d> = ReplyDraft<'d>;

    #[inline]
    fn start<'d>(mut self, body_len: usize) -> ReplyDraft<'d> {
        // SAFETY: the buffer lives in the box of the connection, whose call waits for this answer
        // and does not touch the buffer meanwhile.
        let encoder = unsafe { self.0.as_mut() }.begin(body_len);
        ReplyDraft { token: self, encoder }
    }

    fn fault(self, fault: Fault) -> Ready {
        Ready { fault: Some(fault) }
    }
}

/// An answer that is being built.
pub(super) struct ReplyDraft<'d> {
    token: Token,
    encoder: Encoder<'d>,
}

impl<'d> rt::ReplyDraft<'d> for ReplyDraft<'d> {
    type Ready = Ready;

    #[inline]
    fn encoder(&mut self) -> rt::Writer<'_, 'd> {
        self.encoder.writer()
    }

    #[inline]
    fn finish(mut self) -> Ready {
        // SAFETY: as in `Token::start`: the connection's call waits and does not touch the buffer.
        unsafe { self.token.0.as_mut() }.finish(&self.encoder);
        Ready { fault: None }
    }

    fn fault(self, fault: Fault) -> Ready {
        Ready { fault: Some(fault) }
    }
}

/// An answer that is ready to be sent.
pub(super) struct Ready {
    fault: Option<Fault>,
}

impl rt::Ready for Ready {
    fn send(self) -> Result<(), Gone> {
        Ok(())
    }
}
