//! Entry point for fuzzing: bytes as the messages of the server's processes to each other.
//!
//! What is read must come out as the same bytes, and nothing may panic. Debug and fuzzing builds
//! only; not a part of the interface of this crate. Not here: messages of clients (`fuzz`).
#![allow(clippy::unwrap_used, reason = "what fails here is what is looked for")]

use crate::inspected::{INSPECTED_MAX, Inspected};
use crate::probing::{self, ProbeRequest};

/// Reads the bytes as each kind of message.
///
/// # Panics
/// A message that is read is not the one that was written.
pub fn lines(bytes: &[u8]) {
    if let Some(asked) = ProbeRequest::read(bytes) {
        assert_eq!(asked.request.to_bytes(asked.number), bytes);
    }
    if let Some(answer) = probing::read_answer(bytes) {
        assert_eq!(probing::answer(answer.number, answer.value), bytes);
    }
    if let Some(asked) = probing::read_questions(bytes) {
        assert_eq!(probing::questions(asked.number, &asked.questions), bytes);
    }
    let count = bytes.len().saturating_sub(size_of::<u64>());
    if let Some(answer) = probing::read_verdicts(bytes, count) {
        assert_eq!(probing::verdicts(answer.number, &answer.verdicts), bytes);
    }
    if let Some(inspected) = Inspected::read(bytes, None) {
        let again = inspected.to_bytes();
        assert!(again.len() <= INSPECTED_MAX);
        // Names that are too long are cut.
        let read = Inspected::read(&again, None).unwrap();
        assert_eq!(read.to_bytes(), again);
    }
}
