//! The check that there is memory for one more session, or for the record of one that leaves.
//!
//! A session for which the program has no memory is refused before it is taken over, and one that
//! cannot be given back is lost: an allocation that fails in the middle would end the program. Not
//! here: the share of a limited address space that streams may take (the protocol library).

/// Bytes, more than this process allocates for one session and its protocol state.
const NEEDED: usize = 1 << 20;

/// Returns true if `bytes` can be allocated now, and a mebibyte for all else. The memory is not
/// touched: the check costs a mapping that is undone at once.
#[must_use]
pub fn has_room(bytes: usize) -> bool {
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
