//! Real programs, run plainly and under Sojourn, and the page that says what became of them.
//!
//! Read in this order: `run` (one run of a script), `seen` (what is looked up meanwhile),
//! `compare` (the runs that make a row), `page` (the text). Not here: the scripts (`programs/`) and
//! their list (`catalog`).

pub mod compare;
pub mod page;
pub mod run;
pub mod seen;
