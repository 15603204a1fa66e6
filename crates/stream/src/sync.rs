//! The lock between a process's own threads, which is loom's when a model is checked, and a fence.
//!
//! Not here: the atomics that two processes share (`sojourn_shm`).

use sojourn_shm::Ordering;

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// Locks `mutex`, also if a thread has panicked while it held the lock: the values behind these
/// locks are consistent between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A full fence after a read-modify-write of the same thread.
#[inline(always)]
pub(crate) fn fence_after_update() {
    // A locked instruction is a full fence by itself; only the compiler has to be told.
    #[cfg(all(target_arch = "x86_64", not(loom)))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(loom))))]
    sojourn_shm::fence(Ordering::SeqCst);
}
