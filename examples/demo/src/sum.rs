//! Sum of numbers, shared by both servers so that the comparison is of the transports only.

/// Returns the sum of the terms.
pub(crate) fn sum(terms: &[i32]) -> i64 {
    terms.iter().map(|term| i64::from(*term)).sum()
}
