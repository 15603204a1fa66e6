//! Whether there is memory for one more session.
//!
//! What a program has no memory for is refused before it is taken over: an allocation that fails in
//! the middle would end the program. Not here: how much of a limited address space streams may take
//! at all (`control`).

/// More than what this process allocates for a session and its protocol state, all together
/// (bytes).
const NEEDED: usize = 1 << 20;

/// Whether so much, and `bytes` more, can be had now. Nothing is touched: it costs a mapping that
/// is undone at once.
pub(crate) fn has_room(bytes: usize) -> bool {
    Vec::<u8>::new().try_reserve_exact(NEEDED.saturating_add(bytes)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_something_and_not_for_everything() {
        assert!(has_room(0));
        assert!(!has_room(isize::MAX as usize));
    }
}
