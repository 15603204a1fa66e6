//! Recycled vectors, for `allocate(pool(name))`.

use std::sync::{Mutex, PoisonError};

/// Vectors to be used again, at most a fixed number of them.
#[derive(Debug)]
pub struct Pool<T> {
    free: Mutex<Vec<Vec<T>>>,
    kept_max: usize,
}

impl<T> Pool<T> {
    /// An empty pool that keeps at most `kept_max` vectors.
    #[must_use]
    pub const fn new(kept_max: usize) -> Self {
        Self { free: Mutex::new(Vec::new()), kept_max }
    }

    /// An empty vector with room for `count` values.
    #[must_use]
    pub fn take(&self, count: usize) -> Vec<T> {
        let recycled = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut values = recycled.unwrap_or_default();
        values.reserve(count);
        values
    }

    /// Gives a vector back; its values are dropped.
    pub fn give(&self, mut values: Vec<T>) {
        values.clear();
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.kept_max {
            free.push(values);
        }
    }
}
