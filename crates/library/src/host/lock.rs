//! Locks of this process's own.
//!
//! Not here: what they guard, and in which order they are taken; that is said where they are.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a poisoned lock is as good as any, for no data call leaves anything half done.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
