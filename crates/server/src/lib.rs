//! The session server: it pairs the ends of sessions that programs on one host offer, makes the
//! memory they share, watches the processes, and shows all of this to administrators.
//!
//! No byte of a session passes through it, and sessions go on without it. Parts: [`registry`] knows
//! and decides (pure); [`identity`] looks at descriptors, [`holders`] finds the other processes
//! that have them, [`memory`] makes the shared memory; [`service`] puts these behind
//! `idl/session.idl`; [`run`] is a server of one process, [`apart`] one of several. Not here:
//! moving bytes (`sojourn-stream`), the programs' side (`sojourn-library`). Read
//! `docs/understand/streams.md` first.

pub mod apart;
mod beat;
mod carried;
mod claim;
mod concerned;
mod drivers;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
#[cfg(any(debug_assertions, fuzzing))]
#[doc(hidden)]
pub mod fuzz_lines;
pub mod holders;
pub mod identity;
mod inspected;
mod inspections;
mod jobs;
pub mod key;
pub mod log;
pub mod memory;
pub mod network;
mod notifier;
mod notify;
mod options;
pub mod pins;
pub mod privileges;
mod prober;
mod probing;
mod protocols;
mod proxies;
pub mod proxy;
mod raw;
pub mod registry;
pub mod run;
mod scanner;
pub mod seccomp;
pub mod service;
mod serving;
mod signals;
