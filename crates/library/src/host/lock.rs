//! Locking of mutexes that only this process uses.
//!
//! Not here: what the locks guard, and in which order they are taken; each lock's owner says that.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A poisoned lock is taken as it is, for no data call leaves anything half done.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
