//! The beginning and the end of connections: the longest call of the first second, and the time
//! until the end of a connection is noticed.
//!
//! `first-second`: fifty connections without TCP_NODELAY, which move meanwhile (`lab-bench first`);
//! the figure is the longest call of all. `ends`: the time from the last question until the client
//! notices the end of the connection, for connections that were never hot, are just hot, and have
//! moved (`lab-bench ends`).

use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use super::figures::of_lab;
use crate::local::row::{QUICK, Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{Listening, World, free_port, lab_result, wait_until};

const SESSIONS: &str = "50";

/// Returns both rows.
pub(super) fn all() -> [Box<dyn Row>; 2] {
    [Box::new(FirstSecond), Box::new(Ends)]
}

struct FirstSecond;

struct Ends;

struct Client {
    way: RunMode,
    address: String,
    measure: fn(&Client, &World, Duration) -> Result<Vec<Sample>>,
    _server: Running,
}

impl Row for FirstSecond {
    fn name(&self) -> &'static str {
        "first-second"
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let Listening { address, server } = world.lab_service(way, "many-serve")?;
        Ok(Box::new(Client { way, address, measure: first, _server: server }))
    }
}

impl Row for Ends {
    fn name(&self) -> &'static str {
        "ends"
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let address = format!("127.0.0.1:{}", free_port("127.0.0.1")?);
        let mut server = Running::start(eager(world, way, &["ends-serve", &address]))?;
        wait_until(&mut server, || TcpStream::connect(&address).is_ok())?;
        Ok(Box::new(Client { way, address, measure: ends, _server: server }))
    }
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        (self.measure)(self, world, length)
    }
}

fn first(client: &Client, world: &World, length: Duration) -> Result<Vec<Sample>> {
    let ms = if length < QUICK { "100" } else { "1000" };
    let words = ["first", &client.address, "--sessions", SESSIONS, "--time-ms", ms];
    let measured = world.lab_result(client.way, &words)?;
    let longest = measured["longest_ns"].as_f64().unwrap_or(0.0);
    let sample = of_lab("first-second: longest call".into(), &measured, Unit::Ns);
    Ok(vec![Sample { value: longest, ..sample }])
}

/// Returns a command whose sessions move although the ones before have ended soon, as no other
/// threshold than the default one lets them wait for.
fn eager(world: &World, way: RunMode, words: &[&str]) -> Command {
    let mut command = world.lab(way, words);
    command.env("SOJOURN_MOVE_AFTER_CALLS", "33");
    command
}

fn ends(client: &Client, world: &World, length: Duration) -> Result<Vec<Sample>> {
    let ms = length.as_millis().to_string();
    let cases = [("ends: never hot", "1"), ("ends: just hot", "36"), ("ends: moved", "400")];
    let measure = |(name, calls): (&str, &str)| {
        let words = ["ends", &client.address, "--warm-calls", calls, "--time-ms", &ms];
        let measured = lab_result(eager(world, client.way, &words))?;
        Ok(of_lab(name.into(), &measured, Unit::Ns))
    };
    cases.into_iter().map(measure).collect()
}
