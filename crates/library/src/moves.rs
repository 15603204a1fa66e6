//! The moves of sessions: offers, joining, going home, `fork`, descriptors that change their
//! meaning.
//!
//! Not here: which sessions are worth a move (`policy`). Read `offer`, `join` and `home` first.

pub(crate) mod descriptors;
pub(crate) mod ended;
pub(crate) mod flush;
#[cfg(test)]
mod flush_tests;
pub(crate) mod fork;
mod freeze;
pub(crate) mod home;
#[cfg(test)]
mod hostile_tests;
pub(crate) mod join;
pub(crate) mod offer;
pub(crate) mod own_numbers;
pub(crate) mod put_back;
mod queued;
#[cfg(test)]
mod queued_tests;
#[cfg(test)]
mod recall_tests;
pub(crate) mod residue;
#[cfg(test)]
mod residue_tests;
pub(crate) mod service;
pub(crate) mod together;
pub(crate) mod within;
