//! What the server's answers say, as far as it makes sense.
//!
//! Not here: the calls (`sojourn_protocol::client`, `remote::channel` of the library).

/// Returns how many of `len` bytes the server has taken; `None` if it says more than there were, or
/// none. It takes some, or says that it would have to wait: a caller would try again for ever.
#[must_use]
pub fn taken(sent: u32, len: usize) -> Option<usize> {
    let sent = usize::try_from(sent).ok()?;
    (sent <= len && (sent > 0 || len == 0)).then_some(sent)
}

#[cfg(test)]
mod tests {
    use super::taken;

    #[test]
    fn more_than_there_was_and_nothing_at_all_make_no_sense() {
        assert_eq!([taken(5, 5), taken(1, 5), taken(0, 0)], [Some(5), Some(1), Some(0)]);
        for (sent, len) in [(6, 5), (0, 5), (1, 0), (u32::MAX, 65_536)] {
            assert_eq!(taken(sent, len), None, "{sent} of {len}");
        }
    }
}
