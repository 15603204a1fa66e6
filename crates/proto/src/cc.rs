//! Congestion control: the limit on the bytes that may be in the network.
//!
//! [`Window`] is the state that every algorithm changes: the congestion window and the slow start
//! threshold. [`Controller`] is the algorithm: [`cubic`] or [`reno`], each with [`hystart`] in its
//! first slow start. [`usage`] finds out whether the sender fills the window; a window that is not
//! filled must not grow. Not here: the sending rate inside a recovery ([`crate::prr`]), and loss
//! detection ([`crate::rack`]). All sizes are bytes; algorithms that their RFCs give in segments
//! are scaled by the segment size.

mod controller;
pub mod cubic;
pub mod hystart;
pub mod reno;
pub mod usage;
mod window;

pub use controller::{Controller, Kind};
pub use window::{Acked, Signal, Window};

#[cfg(test)]
mod tests;
