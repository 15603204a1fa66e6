//! What is measured, one file for each kind of program.

mod bulk;
mod client;
mod loss;
mod many;
mod moves;
mod redis;
mod round_trip;

pub(super) use moves::USUAL_GAP;

use super::row::Row;

/// All rows, in the order of the tables.
pub(super) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let mut rows: Vec<Box<dyn Row>> = Vec::new();
    rows.extend(round_trip::tcp(quick));
    rows.extend(bulk::all());
    rows.extend(redis::all());
    rows.extend(many::all(quick));
    rows.extend(moves::all());
    rows.extend(loss::all(quick));
    rows.extend(round_trip::udp(quick));
    rows
}
