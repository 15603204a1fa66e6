//! Two connections on a simulated path, with everything that can go wrong on one, on a clock that
//! is only a number: the same seed gives the same run, everywhere.
//!
//! `link` is the path, `host` an end with its program, `world` both with the clock. `runs` are
//! thousands of sessions left to chance, `scenarios` single cases, `throughput` a table that is
//! reviewed.

mod host;
mod link;
mod random;
mod runs;
mod scenarios;
mod throughput;
mod world;
