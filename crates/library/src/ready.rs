//! Waiting for many descriptors: epoll sets and polls.
//!
//! Not here: waiting for one session (`io::sleep`). Read `docs/understand/streams.md`, "Waiting",
//! then `set` or `poll`.

pub(crate) mod adopted;
pub(crate) mod poll;
pub(crate) mod poll_sleep;
#[cfg(test)]
mod poll_tests;
pub(crate) mod pollers;
pub(crate) mod readiness;
pub(crate) mod set;
pub(crate) mod set_call;
pub(crate) mod set_entry;
#[cfg(test)]
pub(crate) mod set_fakes;
pub(crate) mod set_member;
pub(crate) mod set_order;
#[cfg(test)]
mod set_order_tests;
pub(crate) mod set_readiness;
pub(crate) mod set_ready;
#[cfg(test)]
mod set_ready_model_tests;
#[cfg(test)]
mod set_ready_tests;
pub(crate) mod set_round;
pub(crate) mod set_state;
#[cfg(test)]
mod set_stress_tests;
#[cfg(test)]
mod set_tests;
pub(crate) mod set_wait;
pub(crate) mod sets;
#[cfg(test)]
pub(crate) mod sets_tests;
pub(crate) mod siblings;
