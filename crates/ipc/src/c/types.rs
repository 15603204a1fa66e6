//! The structures of `sojourn/ipc.h`, field by field.
//!
//! They are only ever reached through raw pointers, since C need not have initialised them. A test
//! compares sizes and offsets with those a C compiler finds.

use crate::rt::{ClientId, FDS_MAX, GRANTS_MAX, ITEMS_MAX};
use core::ffi::{c_int, c_void};

/// One string item of an `sj_out`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemRef {
    pub(super) start: *const u8,
    pub(super) len: usize,
}

/// A grant of an `sj_out` or `sj_in`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantRef {
    pub(super) id: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// `sj_out`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Out {
    pub(super) body: *mut u8,
    pub(super) body_len: usize,
    pub(super) op: u16,
    pub(super) n_items: u8,
    pub(super) n_fds: u8,
    pub(super) n_grants: u8,
    pub(super) is_reply: u8,
    pub(super) pad: [u8; 2],
    pub(super) items: [ItemRef; ITEMS_MAX],
    pub(super) fds: [c_int; FDS_MAX],
    pub(super) grants: [GrantRef; GRANTS_MAX],
    /// The first: which message of its handle this is.
    pub(super) private: [u64; 24],
}

/// `sj_in`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct In {
    pub(super) body: *const u8,
    pub(super) body_len: usize,
    pub(super) op: u16,
    pub(super) n_items: u8,
    pub(super) n_fds: u8,
    pub(super) n_grants: u8,
    pub(super) pad: [u8; 3],
    pub(super) fault: u32,
    pub(super) pad2: u32,
    pub(super) item_lens: [usize; ITEMS_MAX],
    pub(super) fds: [c_int; FDS_MAX],
    pub(super) grants: [GrantRef; GRANTS_MAX],
    /// The first two: the handle (its lowest bit: a server's), and which message of it this is.
    pub(super) private: [u64; 24],
}

/// `sj_client`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl From<ClientId> for Client {
    fn from(id: ClientId) -> Self {
        Self { index: id.index, generation: id.generation }
    }
}

impl From<Client> for ClientId {
    fn from(client: Client) -> Self {
        Self { index: client.index, generation: client.generation }
    }
}

/// `sj_token`; see `token`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) opaque: [u64; 4],
}

/// `sj_pending`: reply line and sequence number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingCall {
    pub(super) opaque: u64,
}

/// `sj_credentials`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct CredentialsOut {
    pub(super) pid: i32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// `sj_event_kind`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) enum EventKind {
    Call = 1,
    Send = 2,
    Notify = 3,
    Connected = 4,
    Gone = 5,
}

/// `sj_event`.
#[repr(C)]
#[derive(Debug)]
pub(super) struct EventOut {
    pub(super) kind: EventKind,
    pub(super) reason: c_int,
    pub(super) client: Client,
    pub(super) badge: u64,
    pub(super) bits: u64,
    pub(super) token: Token,
    pub(super) message: In,
}

/// `sj_options`; zero is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) wait: u32,
    pub(super) spin_us: u32,
    pub(super) area: u64,
    pub(super) max_message: u64,
    pub(super) max_inflight: u32,
    pub(super) max_clients: u32,
    pub(super) max_granted: u64,
    pub(super) timeout_ms: u32,
    pub(super) check_uid: u32,
    pub(super) server_uid: u32,
}

/// `sj_wait`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitOut {
    pub(super) wait: u32,
    pub(super) spin_us: u32,
}

/// What a C server gave to `sj_endpoint_set_local`.
#[derive(Debug)]
pub(super) struct LocalObject(pub(super) *mut c_void);

// SAFETY: only carried about; what it points at is the business of the C program.
unsafe impl Send for LocalObject {}
// SAFETY: as above.
unsafe impl Sync for LocalObject {}
