//! The session server: pairs the ends of sessions that programs on one host offer, makes the memory
//! they share, watches the processes, and shows administrators what there is.
//!
//! No byte of a session passes through it, and sessions go on without it. Parts: [`registry`] knows
//! and decides (pure); [`identity`] looks at descriptors, [`holders`] at who else has them,
//! [`memory`] makes what is shared; [`service`] puts them behind `idl/session.idl`; [`run`] is the
//! process. Not here: moving bytes (`sojourn-stream`), the programs' side (`sojourn-library`). Read
//! `docs/understand/streams.md` first.

mod beat;
mod carried;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod holders;
pub mod identity;
mod jobs;
pub mod key;
pub mod log;
mod looked;
mod looks;
pub mod memory;
pub mod network;
mod notifier;
pub mod pins;
pub mod privileges;
mod proxies;
pub mod proxy;
mod raw;
pub mod registry;
pub mod run;
mod scanner;
pub mod seccomp;
pub mod service;
mod signals;
