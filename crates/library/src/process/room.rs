//! Whether there is memory for one more session.
//!
//! What a program has no memory for is refused before it is taken over: an allocation that fails in
//! the middle would end the program. Not here: how much of a limited address space streams may take
//! at all (`control`).

/// More than what this process allocates for a session and its protocol state, all together (bytes).
const NEEDED: usize = 1 << 20;

/// Whether so much can be had now. Nothing is touched: it costs a mapping that is undone at once.
pub(crate) fn has_room() -> bool {
    Vec::<u8>::new().try_reserve_exact(NEEDED).is_ok()
}
