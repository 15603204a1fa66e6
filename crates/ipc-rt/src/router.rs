//! The reply-and-wait loop, and several interfaces behind one endpoint.
//!
//! A [`Service`] answers the calls of one interface (generated code makes it from the user's
//! server object); a [`Router`] is a service made of several, each at its own base. [`serve`] runs
//! either.

use super::binding::{BIND_OP, BIND_REPLY_LEN, BIND_REQUEST_LEN};
use super::transport::{Arrival, Request, ServerTransport, Token};
use super::{
    Caller, Cause, ClientId, Credentials, Deadline, DecodeError, EncodeError, Fault, Forms,
    InterfaceId, Measured, Version,
};

/// What became of a request.
#[derive(Debug)]
pub enum Served<Y> {
    /// To be answered now.
    Reply(Y),
    /// Answered later, or one-way.
    Done,
    /// Breaks the rules of the interface: the client is to be disconnected.
    Violation(ClientId, DecodeError),
}

/// Answers the calls of an interface.
pub trait Service<T: ServerTransport> {
    /// Returns the base of interface `wanted` within this service: the number of its operation 0.
    /// `None` if it is not served.
    fn base_of(&self, wanted: &InterfaceId) -> Option<u16>;
    /// Returns the number of operation numbers that this service takes.
    fn operations(&self) -> u16;
    /// Serves a request whose operation number within this service is `op`. `oneway`: no answer.
    fn dispatch(&mut self, op: u16, oneway: bool, request: T::Request<'_>) -> Served<T::Ready>;
    /// Notes that a client has connected.
    fn connected(&mut self, _client: ClientId, _credentials: Credentials) {}
    /// Notes that a client has sent notification bits.
    fn notified(&mut self, _client: ClientId, _bits: u64) {}
    /// Notes that a client is gone, and runs down what it held.
    fn gone(&mut self, _client: ClientId) {}
}

/// Several services behind one endpoint.
pub struct Router<T: ServerTransport> {
    entries: Vec<RoutedService<T>>,
    next_base: u16,
}

/// A service of a router.
struct RoutedService<T: ServerTransport> {
    /// The operation number at the endpoint of the service's operation 0.
    base: u16,
    service: Box<dyn Service<T> + Send>,
}

impl<T: ServerTransport> Default for Router<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: ServerTransport> core::fmt::Debug for Router<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Router").field("services", &self.entries.len()).finish_non_exhaustive()
    }
}

/// There are no operation numbers left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more operations than one endpoint can number")]
pub struct RouterFull;

impl<T: ServerTransport> Router<T> {
    /// Creates a router without services.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Vec::new(), next_base: 0 }
    }

    /// Adds a service behind those already there.
    ///
    /// # Errors
    /// [`RouterFull`] if its operations do not fit below [`BIND_OP`].
    pub fn add(&mut self, service: impl Service<T> + Send + 'static) -> Result<(), RouterFull> {
        let next = self.next_base.checked_add(service.operations()).filter(|next| *next < BIND_OP);
        let next = next.ok_or(RouterFull)?;
        self.entries.push(RoutedService { base: self.next_base, service: Box::new(service) });
        self.next_base = next;
        Ok(())
    }
}

impl<T: ServerTransport> Service<T> for Router<T> {
    fn base_of(&self, wanted: &InterfaceId) -> Option<u16> {
        self.entries.iter().find_map(|entry| Some(entry.base + entry.service.base_of(wanted)?))
    }

    fn operations(&self) -> u16 {
        self.next_base
    }

    fn dispatch(&mut self, op: u16, oneway: bool, request: T::Request<'_>) -> Served<T::Ready> {
        let behind = self.entries.partition_point(|entry| entry.base <= op);
        match behind.checked_sub(1).and_then(|at| self.entries.get_mut(at)) {
            Some(RoutedService { base, service }) => service.dispatch(op - *base, oneway, request),
            None => unknown_operation::<T>(oneway, request),
        }
    }

    fn connected(&mut self, client: ClientId, credentials: Credentials) {
        self.entries.iter_mut().for_each(|entry| entry.service.connected(client, credentials));
    }

    fn notified(&mut self, client: ClientId, bits: u64) {
        self.entries.iter_mut().for_each(|entry| entry.service.notified(client, bits));
    }

    fn gone(&mut self, client: ClientId) {
        self.entries.iter_mut().for_each(|entry| entry.service.gone(client));
    }
}

/// Answers [`Fault::UNKNOWN_OPERATION`]; a one-way message with an unknown number is a violation.
pub fn unknown_operation<T: ServerTransport>(
    oneway: bool,
    request: T::Request<'_>,
) -> Served<T::Ready> {
    if oneway {
        let client = request.caller().client;
        return Served::Violation(client, DecodeError::new(Cause::Discriminant, 0));
    }
    Served::Reply(request.into_token().fault(Fault::UNKNOWN_OPERATION))
}

/// Returns what is to be done about a request that could not be read: a stale handle is answered
/// with [`Fault::BAD_CONTEXT`], everything else is a violation, answered with a fault if `answer`.
#[cold]
pub fn refuse<T: ServerTransport>(
    request: T::Request<'_>,
    error: DecodeError,
    oneway: bool,
    answer: bool,
) -> Served<T::Ready> {
    let caller: Caller = request.caller();
    match error.cause {
        Cause::Handle if oneway => Served::Done,
        Cause::Handle => Served::Reply(request.into_token().fault(Fault::BAD_CONTEXT)),
        _ if answer && oneway => Served::Done,
        _ if answer => Served::Reply(request.into_token().fault(Fault::BAD_MESSAGE)),
        _ => Served::Violation(caller.client, error),
    }
}

/// Serves until `deadline`: receives, dispatches, replies and receives again in one operation.
///
/// # Errors
/// What ends the server.
pub fn serve<T: ServerTransport>(
    server: &mut T,
    service: &mut (impl Service<T> + ?Sized),
    deadline: Deadline,
) -> Result<(), T::Error> {
    let mut ready = None;
    loop {
        let served = match server.next(ready.take(), deadline)? {
            Arrival::Call(request) => answer(service, false, request),
            Arrival::Send(request) => answer(service, true, request),
            arrival => {
                if !observe(service, &arrival) {
                    return Ok(());
                }
                continue;
            }
        };
        match served {
            Served::Reply(reply) => ready = Some(reply),
            Served::Done => {}
            Served::Violation(client, _) => server.expel_for_bad_message(client),
        }
    }
}

/// Tells the service what happened; returns false if the wait is over.
fn observe<T: ServerTransport, R>(
    service: &mut (impl Service<T> + ?Sized),
    arrival: &Arrival<R>,
) -> bool {
    match *arrival {
        Arrival::Connected(client, credentials) => service.connected(client, credentials),
        Arrival::Notify(client, bits) => service.notified(client, bits),
        Arrival::Gone(client) => service.gone(client),
        Arrival::Idle => return false,
        Arrival::Call(_) | Arrival::Send(_) => {}
    }
    true
}

/// Serves one request, the binding call included.
#[inline]
pub fn answer<T: ServerTransport>(
    service: &mut (impl Service<T> + ?Sized),
    oneway: bool,
    request: T::Request<'_>,
) -> Served<T::Ready> {
    match request.op() {
        BIND_OP if !oneway => bind(service, request),
        op => service.dispatch(op, oneway, request),
    }
}

/// Serves the binding call.
#[cold]
fn bind<T: ServerTransport>(
    service: &(impl Service<T> + ?Sized),
    mut request: T::Request<'_>,
) -> Served<T::Ready> {
    let wanted = match read_bind_request(&mut request.decoder()) {
        Ok(wanted) => wanted,
        Err(error) => return Served::Violation(request.caller().client, error),
    };
    let token = request.into_token();
    let Some(base) = service.base_of(&wanted) else {
        return Served::Reply(token.fault(Fault::UNKNOWN_INTERFACE));
    };
    let size = Measured { body_len: BIND_REPLY_LEN, forms: Forms::BODY };
    Served::Reply(super::stub::reply(token, Ok(size), None, |writer| {
        let block = writer.object::<BIND_REPLY_LEN>()?;
        block.put::<0, u32>(u32::from(base));
        block.put::<4, u32>(0);
        Ok::<(), EncodeError>(())
    }))
}

fn read_bind_request(decoder: &mut super::Decoder<'_>) -> Result<InterfaceId, DecodeError> {
    let view = decoder.primary::<BIND_REQUEST_LEN>(&[])?;
    decoder.finish()?;
    view.zero::<20, 4>()?;
    let version = Version { major: view.get::<16, u16>(), minor: view.get::<18, u16>() };
    Ok(InterfaceId { uuid: *view.bytes::<0, 16>(), version })
}
