//! The program's data calls on one session: routing, receiving, sending, and waiting.
//!
//! Not here: waiting for several descriptors (`ready`). Read `calls` first.

pub(crate) mod call_flags;
pub(crate) mod calls;
pub(crate) mod cork;
pub(crate) mod datagrams;
pub(crate) mod from_kernel;
#[cfg(test)]
mod from_kernel_tests;
pub(crate) mod lend;
#[cfg(test)]
mod lend_tests;
pub(crate) mod placement;
pub(crate) mod receive;
mod receive_remote;
#[cfg(test)]
mod receive_tests;
pub(crate) mod send;
#[cfg(test)]
mod send_tests;
pub(crate) mod served;
pub(crate) mod signals;
pub(crate) mod sleep;
pub(crate) mod timed;
