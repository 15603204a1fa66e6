//! The lock of a process's own threads: the real one, or loom's when a model is checked. And a
//! fence.

use sojourn_shm::Ordering;

#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

/// The guard, whether or not another thread has panicked with it.
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
