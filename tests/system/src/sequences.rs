//! Random sequences of legal calls by two processes and their children, which share sessions of
//! each kind: the same script plainly and under Sojourn must be answered alike.
//!
//! The program is `c/sequences`, a step at a time, so that the kernel's answers are the same each
//! time. What differs between two plain runs is not compared. Here: scripts from a seed
//! ([`generate`]), their runs and comparison ([`stage`]), and smaller scripts that still differ
//! ([`shrink`]). Not here: the scripts that are kept (`sequences/`), and the tests.

pub mod compare;
mod data_steps;
mod descriptor_steps;
mod extra_steps;
pub mod generate;
mod model;
pub mod script;
pub mod shrink;
pub mod stage;
mod writer;
