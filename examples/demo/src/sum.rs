//! The sum, as both ways of serving compute it.

/// The sum, as both ways of serving compute it.
pub(crate) fn sum(terms: &[i32]) -> i64 {
    terms.iter().map(|term| i64::from(*term)).sum()
}
