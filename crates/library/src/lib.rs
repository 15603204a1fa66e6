//! The protocol library: a program's sessions, their moves and their readiness.
