//! Ends whose holders are to be counted, on their way to the scanner's thread.
//!
//! Not here: the thread (`scanner`), the counting (`holders`).

use crate::holders::Question;
use crate::registry::ToCount;

/// An end whose holders are to be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// The end, and the count's number, from the registry.
    pub(crate) counted: ToCount,
    pub(crate) question: Question,
}
