//! The rows of the local benchmark: one file for each kind of program.

mod costs;
mod database;
mod figures;
mod flow;
mod iperf;
mod life;
mod many;
mod memory;
mod moves;
mod patterns;
mod rate;
pub(crate) mod redis;
mod web;

use super::row::Row;

pub(crate) use figures::of_lab;
pub(super) use patterns::PATTERNS;

/// Returns all rows, in the order of the tables.
pub(super) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let mut rows: Vec<Box<dyn Row>> = Vec::new();
    rows.extend(redis::all());
    rows.extend(flow::all());
    rows.push(Box::new(web::Web));
    rows.extend(database::all());
    rows.push(Box::new(iperf::Iperf));
    rows.extend(patterns::all());
    rows.extend(many::all(quick));
    rows.push(Box::new(rate::Connections));
    rows.extend(life::all());
    rows.push(Box::new(moves::Moves));
    rows.push(Box::new(memory::Memory));
    rows.extend(costs::all());
    rows
}
