//! The moves every stub makes: bind, call, send, reply. Generated code supplies what is written
//! and read.

use super::binding::{BIND_OP, BIND_REQUEST_LEN};
use super::transport::{Draft, Reply, ReplyDraft, Token, Transport};
use super::{
    CallError, ContextScope, Deadline, DecodeError, Decoder, EncodeError, Fault, Forms,
    InterfaceId, Measured, Pod, Wait, Writer,
};
use core::ops::{Deref, DerefMut};

/// Makes the binding call; answers the base of the interface on this connection.
///
/// # Errors
/// [`CallError::Fault`] with [`Fault::UNKNOWN_INTERFACE`] if the server does not serve it, and
/// those of the transport.
pub fn bind<T: Transport>(
    transport: &mut T,
    id: &InterfaceId,
    deadline: Deadline,
) -> Result<u16, CallError> {
    let size = Measured { body_len: BIND_REQUEST_LEN, forms: Forms::BODY };
    let write = |writer: &mut Writer<'_, '_>| {
        let block = writer.object::<BIND_REQUEST_LEN>()?;
        block.pods::<0, u8, 16>(&id.uuid);
        block.put::<16, u16>(id.version.major);
        block.put::<18, u16>(id.version.minor);
        block.put::<20, u32>(0);
        Ok(())
    };
    call(transport, BIND_OP, size, deadline, write, |mut decoder| {
        let view = decoder.primary::<8>(&[])?;
        decoder.finish()?;
        view.zero::<4, 4>()?;
        let base = u16::try_from(view.get::<0, u32>());
        base.map_err(|_| view.error(super::Cause::Range, 0))
    })
}

/// A call: measured, written by `write`, the answer read by `read`.
///
/// # Errors
/// Those of `write`, `read` and the transport.
#[allow(clippy::too_many_arguments, reason = "each is another part of a call of generated code")]
#[inline]
pub fn call<'d, T: Transport, R>(
    transport: &mut T,
    op: u16,
    size: Measured,
    deadline: Deadline,
    write: impl FnOnce(&mut Writer<'_, 'd>) -> Result<(), EncodeError>,
    read: impl FnOnce(Decoder<'_>) -> Result<R, DecodeError>,
) -> Result<R, CallError> {
    let mut draft = transport.start(op, size.body_len);
    let mut writer = draft.encoder();
    writer.set_forms(size.forms);
    write(&mut writer)?;
    let mut reply = draft.call(deadline)?;
    Ok(read(reply.decoder())?)
}

/// A one-way message.
///
/// # Errors
/// Those of `write` and the transport.
#[inline]
pub fn send<'d, T: Transport>(
    transport: &mut T,
    op: u16,
    size: Measured,
    deadline: Deadline,
    write: impl FnOnce(&mut Writer<'_, 'd>) -> Result<(), EncodeError>,
) -> Result<(), CallError> {
    let mut draft = transport.start(op, size.body_len);
    let mut writer = draft.encoder();
    writer.set_forms(size.forms);
    write(&mut writer)?;
    draft.send(deadline)
}

/// The transport for one call that waits in its own way: an operation with `sync`.
#[inline]
pub fn waiting<T: Transport>(transport: &mut T, wait: Wait) -> Waiting<'_, T> {
    let before = transport.set_wait(wait);
    Waiting { transport, before }
}

/// A transport that waits as it did before when this is dropped: after an answer, an error or a
/// panic of a conversion of the user's.
#[derive(Debug)]
pub struct Waiting<'t, T: Transport> {
    transport: &'t mut T,
    before: Wait,
}

impl<T: Transport> Deref for Waiting<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.transport
    }
}

impl<T: Transport> DerefMut for Waiting<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.transport
    }
}

impl<T: Transport> Drop for Waiting<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.transport.set_wait(self.before);
    }
}

/// An answer of `size`, written by `write`; [`Fault::DROPPED`] if the values cannot be sent.
#[inline]
pub fn reply<'d, K: Token>(
    token: K,
    size: Result<Measured, EncodeError>,
    contexts: Option<ContextScope>,
    write: impl FnOnce(&mut Writer<'_, 'd>) -> Result<(), EncodeError>,
) -> K::Ready {
    let Ok(size) = size else { return token.fault(Fault::DROPPED) };
    let mut draft = token.start(size.body_len);
    let mut writer = draft.encoder();
    writer.set_forms(size.forms);
    if let Some(scope) = &contexts {
        writer.set_contexts(scope);
    }
    match write(&mut writer) {
        Ok(()) => draft.finish(),
        Err(_) => draft.fault(Fault::DROPPED),
    }
}

/// Runs `read` on `decoder`: ties the lifetimes of what is read to the decoder's.
///
/// # Errors
/// Those of `read`.
#[inline]
pub fn with<'m, R>(
    decoder: Decoder<'m>,
    read: impl FnOnce(Decoder<'m>) -> Result<R, DecodeError>,
) -> Result<R, DecodeError> {
    read(decoder)
}

/// Most bytes that a server provides in place of a caller's buffer.
const BUFFER_MAX: usize = 16 << 20;

/// A server's stand-in for the buffer of `count` values that the client has.
///
/// # Errors
/// [`Fault::TOO_LARGE`] beyond 16 MiB, or for a count that is none.
pub fn buffer<T: Pod>(count: i128) -> Result<Vec<T>, Fault> {
    match usize::try_from(count) {
        Ok(count) if count <= BUFFER_MAX / size_of::<T>() => Ok(vec![T::ZERO; count]),
        _ => Err(Fault::TOO_LARGE),
    }
}
