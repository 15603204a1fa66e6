//! Congestion control: how many bytes may be in the network.
//!
//! [`Window`] is what all algorithms move: the congestion window and the slow start threshold.
//! [`Controller`] is the algorithm: [`cubic`] or [`reno`], each with [`hystart`] in its first slow
//! start. [`usage`] tells whether the window is used at all, without which it must not grow. Not
//! here: what happens inside a recovery ([`crate::prr`]), what is lost ([`crate::rack`]). All sizes
//! are bytes; algorithms that their RFCs give in segments are scaled by the segment size.

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
