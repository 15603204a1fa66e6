//! Byte streams between two processes in shared memory.
