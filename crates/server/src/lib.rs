//! The session server.
