//! The subjects of events in the protocol thread's sets.
//!
//! Not here: the reactions (`super`, `outside`).

/// Events taken at once.
pub(super) const EVENTS: usize = 64;

/// The subject of an event: the top byte of its data.
pub(super) const DOORBELL: u64 = 0;
pub(super) const BELL: u64 = 6 << 56;
pub(super) const WATCHED: u64 = 7 << 56;
pub(super) const LIVING: u64 = 8 << 56;
pub(super) const SERVER: u64 = 1 << 56;
pub(super) const SESSION: u64 = 2 << 56;
pub(super) const PEER: u64 = 3 << 56;
pub(super) const INBOX: u64 = 4 << 56;
pub(super) const FLUSH: u64 = 5 << 56;
/// The protocol server's bell.
pub(super) const SERVED: u64 = 9 << 56;
pub(super) const WHAT: u64 = 0xff << 56;
