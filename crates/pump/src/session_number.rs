//! The name of a session in a pump.
//!
//! Not here: the tables by number (`driven`, `datagrams`), and what the caller calls the session.

/// The number by which a pump knows a session; the caller chooses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNumber(u32);

impl SessionNumber {
    /// Makes a session's name of a number that no other session of the pump has.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }
}
