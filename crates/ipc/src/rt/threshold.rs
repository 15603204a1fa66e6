//! From which size on an array goes by reference: asked for by stubs, measured once.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes from which an array is cheaper as a string item than in the body: measured on this
/// machine, once per process, when first asked for.
#[inline]
#[must_use]
pub fn reference_threshold() -> usize {
    match REFERENCE_THRESHOLD.load(Ordering::Relaxed) {
        0 => measured_threshold(),
        bytes => bytes,
    }
}

#[cold]
fn measured_threshold() -> usize {
    let bytes = crate::threshold::measure();
    set_reference_threshold(bytes);
    bytes
}

/// Sets what [`reference_threshold`] answers, for programs that know better; 0: measure again.
pub fn set_reference_threshold(bytes: usize) {
    REFERENCE_THRESHOLD.store(bytes, Ordering::Relaxed);
}

static REFERENCE_THRESHOLD: AtomicUsize = AtomicUsize::new(0);
