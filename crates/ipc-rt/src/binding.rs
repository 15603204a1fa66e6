//! The binding call, by which a client asks where an interface is served: its number and sizes.

/// Operation number of the binding call.
pub const BIND_OP: u16 = 0xFFFF;
/// Bytes of the binding call's request.
pub const BIND_REQUEST_LEN: usize = 24;
/// Bytes of the binding call's reply.
pub const BIND_REPLY_LEN: usize = 8;
