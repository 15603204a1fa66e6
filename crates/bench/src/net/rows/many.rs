//! Many sessions between an echo server and a client, each with one thread and epoll(7).

use std::time::Duration;

use anyhow::Result;

use super::client::ms;
use crate::local::row::Unit;
use crate::local::rows::of_lab;
use crate::net::row::{Measured, Row};
use crate::net::way::{Side, Stacks, Wait};
use crate::net::world::{Between, Watched, World, parse};

struct Many(usize);

/// Returns all rows.
pub(super) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let all = [1, 10, 100, 1000].into_iter().filter(|&sessions| !quick || sessions <= 10);
    all.map(|sessions| -> Box<dyn Row> { Box::new(Many(sessions)) }).collect()
}

impl Row for Many {
    fn name(&self) -> String {
        format!("sessions-{}", self.0)
    }

    fn group(&self) -> &'static str {
        "sessions"
    }

    fn ways(&self) -> &'static [Stacks] {
        Stacks::OURS
    }

    fn rounds(&self) -> usize {
        3
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        let hosts = world.place(way, Between::Wire)?;
        let address = hosts.free_name();
        let server = hosts.lab_server(Wait::Default, &["many-serve", &address])?;
        let (warm, length) = (Duration::from_millis(100 + 3 * self.0 as u64), length * 2);
        let (sessions, time, warm_ms) = (self.0.to_string(), ms(length), ms(warm));
        let words = ["many", &address, "--sessions", &sessions, "--time-ms", &time];
        // Each session has to be used 32 times to become hot; then all of them need time to move.
        let more = ["--warm-calls", "40", "--warm-ms", &warm_ms];
        let words: Vec<&str> = words.into_iter().chain(more).collect();
        let command = hosts.lab(Side::Client, Wait::Default, &words);
        let Watched { text, away } = hosts.watch(command, &server, self.0, None, length)?;
        let sample = of_lab(self.name(), &parse(&text)?, Unit::PerS);
        Ok(vec![Measured { sample, wait: Wait::Default, away }])
    }
}
