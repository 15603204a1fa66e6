//! A transport within one thread: a call runs the service at once. For tests of stubs.
//!
//! Bodies, items and descriptors are copied as a real transport would. Not for production: it knows
//! no death of a client, and waits for deferred replies with a condition variable.

use core::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::deferred::{Mailbox, MailboxSender, NewMailbox, mailbox};
use super::router::{Served, Service, answer};
use super::transport::{
    Arrival, Draft, Gone, Ready, Reply, ReplyDraft, Request, ServerTransport, Token, Transport,
};
use super::{
    Badge, CallError, Caller, ClientId, Credentials, Deadline, Decoder, Encoder, Fault, FdList,
    Item, Reason, SharedBytes, Writer,
};

/// A message at rest.
#[derive(Debug, Default)]
pub struct Message {
    /// The body, in words of 8 bytes.
    pub body: Vec<u64>,
    /// The string items.
    pub items: Vec<Vec<u8>>,
    /// The descriptors.
    pub fds: FdList,
}

impl Message {
    /// Reads it through `read`, its items as memory that must be copied if `shared`.
    pub fn read<R>(&mut self, shared: bool, read: impl FnOnce(Decoder<'_>) -> R) -> R {
        let item = |bytes: &Vec<u8>| lend(bytes, shared);
        let items: Vec<Item<'_>> = self.items.iter().map(item).collect();
        read(Decoder::new(super::pod::bytes_of(&self.body), &items, &[], &mut self.fds))
    }
}

/// `bytes` as an item for any `'m`.
fn lend<'m>(bytes: &[u8], shared: bool) -> Item<'m> {
    // SAFETY: every caller keeps the buffer, unmoved and unchanged, as long as the decoder that the
    // item is given to: `Message::read` by its borrow, `LoopItems` by owning both.
    unsafe {
        if shared {
            Item::Shared(SharedBytes::new(bytes.as_ptr(), bytes.len()))
        } else {
            Item::Private(core::slice::from_raw_parts(bytes.as_ptr(), bytes.len()))
        }
    }
}

/// A body and the encoder that writes it.
#[derive(Debug)]
struct Building<'d> {
    encoder: Encoder<'d>,
    body: Vec<u64>,
}

impl Building<'_> {
    fn new(body_len: usize) -> Self {
        let mut body = vec![0xA5A5_A5A5_A5A5_A5A5_u64; body_len.div_ceil(8)];
        // SAFETY: the buffer stays where it is until `collect`, and is not touched before.
        let encoder = unsafe { Encoder::from_raw(body.as_mut_ptr().cast(), body.len() * 8) };
        Self { encoder, body }
    }

    fn collect(self) -> std::io::Result<Message> {
        let items = self.encoder.items().iter().map(|item| item.to_vec()).collect();
        let mut fds = FdList::new();
        for fd in self.encoder.fds() {
            let _never_full = fds.push(fd.try_clone_to_owned()?);
        }
        Ok(Message { body: self.body, items, fds })
    }
}

/// Builds a message with a body of `body_len` bytes and lets `write` write it.
///
/// # Errors
/// Those of `write`; [`super::EncodeError::Descriptors`] if one cannot be duplicated.
pub fn build<'d>(
    size: super::Measured,
    write: impl FnOnce(&mut super::Writer<'_, 'd>) -> Result<(), super::EncodeError>,
) -> Result<Message, super::EncodeError> {
    let mut building = Building::new(size.body_len);
    let mut writer = building.encoder.writer();
    writer.set_forms(size.forms);
    write(&mut writer)?;
    if writer.written() != size.body_len {
        return Err(super::EncodeError::Overflow);
    }
    building.collect().map_err(|_| super::EncodeError::Descriptors)
}

/// A connection to a service in this thread.
pub struct Loopback {
    service: Rc<RefCell<dyn Service<LoopServer>>>,
    local: Option<Arc<dyn Any + Send + Sync>>,
    client: ClientId,
    /// Every other message gives its items as memory that must be copied.
    shared: bool,
}

impl core::fmt::Debug for Loopback {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Loopback").field("client", &self.client).finish_non_exhaustive()
    }
}

impl Loopback {
    /// Client number `index` of `service`.
    #[must_use]
    pub fn new(service: &Rc<RefCell<dyn Service<LoopServer>>>, index: u32) -> Self {
        let client = ClientId { index, generation: 1 };
        Self { service: Rc::clone(service), local: None, client, shared: false }
    }

    /// As if the server were in this address space and had registered `object`.
    #[must_use]
    pub fn with_local(mut self, object: Arc<dyn Any + Send + Sync>) -> Self {
        self.local = Some(object);
        self
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        if let Ok(mut service) = self.service.try_borrow_mut() {
            service.gone(self.client);
        }
    }
}

impl Transport for Loopback {
    type Draft<'c, 'd> = LoopDraft<'c, 'd>;

    fn start<'c, 'd>(&'c mut self, op: u16, body_len: usize) -> LoopDraft<'c, 'd> {
        self.shared = !self.shared;
        LoopDraft { connection: self, op, building: Building::new(body_len) }
    }

    fn local<L: Any + Send + Sync>(&self) -> Option<Arc<L>> {
        Arc::clone(self.local.as_ref()?).downcast().ok()
    }
}

/// A request being built.
#[derive(Debug)]
pub struct LoopDraft<'c, 'd> {
    connection: &'c mut Loopback,
    op: u16,
    building: Building<'d>,
}

impl LoopDraft<'_, '_> {
    fn deliver(self, oneway: bool) -> Result<Mailbox<Message>, CallError> {
        let message = self.building.collect();
        let mut message = message.map_err(|e| CallError::System(e.raw_os_error().unwrap_or(0)))?;
        let NewMailbox { sender, mailbox } = mailbox();
        let shared = self.connection.shared;
        let client = self.connection.client;
        let items = LoopItems::new(core::mem::take(&mut message.items), shared);
        let request = LoopRequest { op: self.op, client, token: sender, message, items };
        let mut service = self.connection.service.borrow_mut();
        match answer(&mut *service, oneway, request) {
            Served::Reply(ready) => {
                let _kept_below = Ready::send(ready);
            }
            Served::Done => {}
            Served::Violation(..) => return Err(CallError::Disconnected(Reason::BadMessage)),
        }
        Ok(mailbox)
    }
}

impl<'d> Draft<'d> for LoopDraft<'_, 'd> {
    type Reply = LoopReply;

    fn encoder(&mut self) -> Writer<'_, 'd> {
        self.building.encoder.writer()
    }

    fn call(self, deadline: Deadline) -> Result<LoopReply, CallError> {
        let shared = self.connection.shared;
        let mut message = self.deliver(false)?.wait(deadline)?;
        let items = core::mem::take(&mut message.items);
        Ok(LoopReply { message, items: LoopItems::new(items, shared) })
    }

    fn send(self, _deadline: Deadline) -> Result<(), CallError> {
        self.deliver(true).map(|_| ())
    }
}

/// Items together with the list that lends them.
#[derive(Debug)]
struct LoopItems {
    /// Borrowed from `_bytes`, whose buffers do not move.
    list: Vec<Item<'static>>,
    _bytes: Vec<Vec<u8>>,
}

impl LoopItems {
    fn new(bytes: Vec<Vec<u8>>, shared: bool) -> Self {
        let item = |bytes: &Vec<u8>| lend(bytes, shared);
        Self { list: bytes.iter().map(item).collect(), _bytes: bytes }
    }
}

/// An answer.
#[derive(Debug)]
pub struct LoopReply {
    message: Message,
    items: LoopItems,
}

impl Reply for LoopReply {
    fn decoder(&mut self) -> Decoder<'_> {
        let body = super::pod::bytes_of(&self.message.body);
        Decoder::new(body, &self.items.list, &[], &mut self.message.fds)
    }
}

/// Stands for the server's end. Nothing ever arrives at it: the loopback calls the service itself.
#[derive(Debug)]
pub struct LoopServer;

impl ServerTransport for LoopServer {
    type Request<'s> = LoopRequest;
    type Token = MailboxSender<Message>;
    type Ready = LoopReady;
    type Error = core::convert::Infallible;

    fn next(
        &mut self,
        ready: Option<LoopReady>,
        _deadline: Deadline,
    ) -> Result<Arrival<LoopRequest>, Self::Error> {
        if let Some(ready) = ready {
            let _nobody_left = Ready::send(ready);
        }
        Ok(Arrival::Idle)
    }

    fn expel_for_bad_message(&mut self, _client: ClientId) {}
}

/// A request on its way to the service.
#[derive(Debug)]
pub struct LoopRequest {
    op: u16,
    client: ClientId,
    token: MailboxSender<Message>,
    message: Message,
    items: LoopItems,
}

impl Request for LoopRequest {
    type Token = MailboxSender<Message>;

    fn op(&self) -> u16 {
        self.op
    }

    fn caller(&self) -> Caller {
        Caller { client: self.client, badge: Badge::default(), credentials: Credentials::default() }
    }

    fn decoder(&mut self) -> Decoder<'_> {
        let body = super::pod::bytes_of(&self.message.body);
        Decoder::new(body, &self.items.list, &[], &mut self.message.fds)
    }

    fn into_token(self) -> Self::Token {
        self.token
    }
}

impl Token for MailboxSender<Message> {
    type Ready = LoopReady;
    type Draft<'d> = LoopReplyDraft<'d>;

    fn start<'d>(self, body_len: usize) -> LoopReplyDraft<'d> {
        LoopReplyDraft { token: self, building: Building::new(body_len) }
    }

    fn fault(self, fault: Fault) -> LoopReady {
        LoopReady { token: self, result: Err(fault) }
    }
}

/// An answer being built.
#[derive(Debug)]
pub struct LoopReplyDraft<'d> {
    token: MailboxSender<Message>,
    building: Building<'d>,
}

impl<'d> ReplyDraft<'d> for LoopReplyDraft<'d> {
    type Ready = LoopReady;

    fn encoder(&mut self) -> Writer<'_, 'd> {
        self.building.encoder.writer()
    }

    fn finish(self) -> LoopReady {
        let result = self.building.collect().map_err(|_| Fault::NO_RESOURCES);
        LoopReady { token: self.token, result }
    }

    fn fault(self, fault: Fault) -> LoopReady {
        self.token.fault(fault)
    }
}

/// An answer on its way.
#[derive(Debug)]
pub struct LoopReady {
    token: MailboxSender<Message>,
    result: Result<Message, Fault>,
}

impl Ready for LoopReady {
    fn send(self) -> Result<(), Gone> {
        self.token.send(self.result)
    }
}
