//! The runtime of stubs that `sojourn-idl` generates: reading and writing messages, binding,
//! dispatch, context handles.
//!
//! Independent of the transport: [`Transport`] and [`ServerTransport`] are all that generated code
//! knows of one, and [`loopback`] is one without a second process. Generated code reaches this
//! crate as `sojourn_ipc::rt`. Not here: the transport between address spaces (`sojourn-ipc`), the
//! compiler (`sojourn-idl`). What travels is `docs/reference/idl-wire.md`; how IDL becomes Rust is
//! `docs/reference/idl-rust.md`. Start reading at [`Encoder`] and [`Decoder`].
#![allow(unsafe_code, reason = "messages are read and written where they travel, in shared memory")]

mod arrays;
mod base;
mod binding;
mod block;
mod context;
mod decode;
mod deferred;
mod encode;
mod error;
pub mod expr;
pub mod gather;
mod item;
pub mod loopback;
mod measure;
mod pod;
mod pool;
pub mod random;
mod reason;
mod router;
mod shared;
mod slots;
pub mod stub;
#[cfg(test)]
mod tests;
mod threshold;
mod transport;
mod value;
mod view;

pub use arrays::Header;
pub use base::{
    Badge, CallError, ClientId, Credentials, Deadline, InterfaceId, Reason, Uuid, Version, Wait,
};
pub use binding::{BIND_OP, BIND_REPLY_LEN, BIND_REQUEST_LEN};
pub use block::{Block, Run};
pub use context::{ContextScope, ContextTable, ServerHandle};
pub use decode::Decoder;
pub use deferred::{Deferred, DeferredTo, Mailbox, MailboxSender, NewMailbox, mailbox};
#[doc(hidden)]
pub use encode::Beside;
pub use encode::{Encoder, Writer};
pub use error::{Cause, DecodeError, EncodeError, Fault};
pub use item::{FDS_MAX, FdList, GRANTS_MAX, Grant, GrantId, ITEMS_MAX, Item, SharedBytes};
pub use measure::{Forms, Measure, Measured, ensure, measure};
pub use pod::{Pod, Words, bytes_of, extend, overwrite, pair, split};
pub use pool::Pool;
pub use router::{Router, RouterFull, Served, Service, answer, refuse, serve, unknown_operation};
pub use shared::Shared;
pub use slots::Slot;
pub use threshold::{reference_threshold, set_reference_threshold};
pub use transport::{
    Arrival, Draft, Gone, Ready, Reply, ReplyDraft, Request, ServerTransport, Token, Transport,
};
pub use value::{Caller, Descriptor, Interface, Represent};
pub use view::{View, try_array};
