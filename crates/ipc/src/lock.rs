//! Taking a mutex that a thread may have died with.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock whose holder panicked is as good as any: what it guards is consistent at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
