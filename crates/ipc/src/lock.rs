//! Locking of mutexes that may be poisoned.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex even if a holder panicked, because the guarded state is consistent at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
