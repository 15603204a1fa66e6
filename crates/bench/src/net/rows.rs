//! What is measured, one file for each kind of program.

mod bulk;
mod loss;
mod many;
mod moves;
mod redis;
mod round_trip;

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sojourn_lab::net::End;

pub(super) use moves::USUAL_GAP;

use super::row::Row;
use super::way::{Side, Wait, Way};
use super::world::{Place, World};

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

/// The client that measures: `lab-bench`, or a rival that takes the same words and says the same.
fn client(
    world: &World,
    place: &Place,
    (way, wait): (Way, Wait),
    words: &[&str],
) -> Result<Command> {
    let program = match way {
        Way::Smoltcp => super::world::myself()?,
        Way::Gvisor => world.gvisor().context("sojourn-bench-netstack is not there")?,
        _ => return Ok(place.lab(Side::Client, wait, words)),
    };
    let mut command = place.command(Side::Client, wait, program);
    if way == Way::Smoltcp {
        command.arg("net-smoltcp");
    }
    // Addresses beside the host's own: its kernel takes no part, and drops what it sees of this at
    // once.
    let [a, b, c, _] = place.link().v4(End::B).octets();
    let address = format!("{a}.{b}.{c}.77");
    let mac = format!("02:6c:61:{b:02x}:{c:02x}:77");
    command.args(["--interface", place.link().interface(), "--mac", &mac, "--address", &address]);
    command.args(["--spin", if wait == Wait::Spinning { "1" } else { "0" }]);
    command.args(words);
    Ok(command)
}

/// Milliseconds as a word.
fn ms(time: Duration) -> String {
    time.as_millis().to_string()
}

/// Options that tie client and server to processors of their own.
fn pins() -> (Vec<String>, Vec<String>) {
    let processors = crate::os::processors();
    let pin = |processor: Option<&usize>| -> Vec<String> {
        ["--pin".to_owned(), processor.copied().unwrap_or(0).to_string()].into()
    };
    (pin(processors.first()), pin(processors.last()))
}
