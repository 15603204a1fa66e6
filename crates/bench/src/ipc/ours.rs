//! Sojourn's own rows.

use super::many::Crowd;
use super::row::Row;

/// Rows of the table of round trips.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    Vec::new()
}

/// Rows of the table of bandwidth.
pub(super) fn streaming() -> Vec<Box<dyn Row>> {
    Vec::new()
}

/// Servers of many clients.
pub(super) fn crowds() -> Vec<Crowd> {
    Vec::new()
}
