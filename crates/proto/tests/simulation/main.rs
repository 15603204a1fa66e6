//! Two connections on a simulated path with all faults of real ones, on a simulated clock: the same
//! seed gives the same run on every machine.
//!
//! `link` is the path, `host` an end with its program, `world` both with the clock. `runs` are
//! thousands of random sessions, `scenarios` single cases, `throughput` a reviewed table.

mod host;
mod link;
mod random;
mod runs;
mod scenarios;
mod throughput;
mod world;
