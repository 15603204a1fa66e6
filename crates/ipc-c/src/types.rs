//! The structures of `sojourn/ipc.h`, field by field.
//!
//! They are only ever reached through raw pointers, since C need not have initialised them. A test
//! compares sizes and offsets with those a C compiler finds.

use core::ffi::{c_int, c_void};
use sojourn_ipc::{ClientId, FDS_MAX, GRANTS_MAX, ITEMS_MAX};

/// One string item of an `sj_out`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemRef {
    pub(crate) start: *const u8,
    pub(crate) len: usize,
}

/// A grant of an `sj_out` or `sj_in`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GrantRef {
    pub(crate) id: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// `sj_out`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Out {
    pub(crate) body: *mut u8,
    pub(crate) body_len: usize,
    pub(crate) op: u16,
    pub(crate) n_items: u8,
    pub(crate) n_fds: u8,
    pub(crate) n_grants: u8,
    pub(crate) is_reply: u8,
    pub(crate) pad: [u8; 2],
    pub(crate) items: [ItemRef; ITEMS_MAX],
    pub(crate) fds: [c_int; FDS_MAX],
    pub(crate) grants: [GrantRef; GRANTS_MAX],
    /// The first: which message of its handle this is.
    pub(crate) private: [u64; 24],
}

/// `sj_in`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct In {
    pub(crate) body: *const u8,
    pub(crate) body_len: usize,
    pub(crate) op: u16,
    pub(crate) n_items: u8,
    pub(crate) n_fds: u8,
    pub(crate) n_grants: u8,
    pub(crate) pad: [u8; 3],
    pub(crate) fault: u32,
    pub(crate) pad2: u32,
    pub(crate) item_lens: [usize; ITEMS_MAX],
    pub(crate) fds: [c_int; FDS_MAX],
    pub(crate) grants: [GrantRef; GRANTS_MAX],
    /// The first two: the handle (its lowest bit: a server's), and which message of it this is.
    pub(crate) private: [u64; 24],
}

/// `sj_client`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Client {
    pub(crate) index: u32,
    pub(crate) generation: u32,
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
pub(crate) struct Token {
    pub(crate) opaque: [u64; 4],
}

/// `sj_pending`: reply line and sequence number.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingCall {
    pub(crate) opaque: u64,
}

/// `sj_credentials`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CredentialsOut {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// `sj_event_kind`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventKind {
    Call = 1,
    Send = 2,
    Notify = 3,
    Connected = 4,
    Gone = 5,
}

/// `sj_event`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EventOut {
    pub(crate) kind: EventKind,
    pub(crate) reason: c_int,
    pub(crate) client: Client,
    pub(crate) badge: u64,
    pub(crate) bits: u64,
    pub(crate) token: Token,
    pub(crate) message: In,
}

/// `sj_options`; zero is the default of each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) wait: u32,
    pub(crate) spin_us: u32,
    pub(crate) area: u64,
    pub(crate) max_message: u64,
    pub(crate) max_inflight: u32,
    pub(crate) max_clients: u32,
    pub(crate) max_granted: u64,
    pub(crate) timeout_ms: u32,
    pub(crate) check_uid: u32,
    pub(crate) server_uid: u32,
}

/// `sj_wait`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitOut {
    pub(crate) wait: u32,
    pub(crate) spin_us: u32,
}

/// What a C server gave to `sj_endpoint_set_local`.
#[derive(Debug)]
pub(crate) struct LocalObject(pub(crate) *mut c_void);

// SAFETY: only carried about; what it points at is the business of the C program.
unsafe impl Send for LocalObject {}
// SAFETY: no code here looks at what it points at.
unsafe impl Sync for LocalObject {}
