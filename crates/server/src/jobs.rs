//! Ends whose holders are to be counted, on their way to the scanner's thread.
//!
//! Not here: the thread (`scanner`), the counting (`holders`).

use crate::holders::Object;
use crate::registry::ToCount;
use std::sync::mpsc::{Receiver, Sender, channel};

/// An end whose holders are to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// The end, and the count's number, from the registry.
    pub(crate) counted: ToCount,
    pub(crate) pid: u32,
    pub(crate) object: Object,
}

/// Returns the two ends of the queue.
pub(crate) fn queue() -> (Sender<Job>, Receiver<Job>) {
    channel()
}
