//! Many sessions between an echo server and a client, each with one thread and epoll(7).

use std::time::Duration;

use anyhow::Result;

use super::client::ms;
use crate::local::row::Unit;
use crate::local::rows::of_lab;
use crate::net::row::{Measured, Row};
use crate::net::way::{Side, Stacks, Wait};
use crate::net::world::{Between, Watched, World, parse};

/// Time that a program is used before it has certainly measured both homes.
const SETTLING: Duration = Duration::from_secs(6);

struct Many {
    sessions: usize,
    /// Whether they stay away, or are where the policy has them in the end.
    wait: Wait,
}

/// Returns all rows.
pub(super) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let row = |wait| move |sessions: usize| -> Box<dyn Row> { Box::new(Many { sessions, wait }) };
    let away = [1, 10, 100, 1000].into_iter().filter(|&sessions| !quick || sessions <= 10);
    let settled = [1, 50, 1000].into_iter().filter(|_| !quick);
    away.map(row(Wait::Default)).chain(settled.map(row(Wait::Settled))).collect()
}

impl Row for Many {
    fn name(&self) -> String {
        match self.wait {
            Wait::Settled => format!("settled-{}", self.sessions),
            _ => format!("sessions-{}", self.sessions),
        }
    }

    fn group(&self) -> &'static str {
        "sessions"
    }

    fn ways(&self) -> &'static [Stacks] {
        match self.wait {
            Wait::Settled => Stacks::PROGRAMS,
            _ => Stacks::OURS,
        }
    }

    fn rounds(&self) -> usize {
        3
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        let hosts = world.place(way, Between::Wire)?;
        let address = hosts.free_name();
        let server = hosts.lab_server(self.wait, &["many-serve", &address])?;
        let is_settling = self.wait == Wait::Settled && way != Stacks::Kernel;
        let warm = Duration::from_millis(100 + 3 * self.sessions as u64);
        let (warm, length) = (if is_settling { warm + SETTLING } else { warm }, length * 2);
        let (sessions, time, warm_ms) = (self.sessions.to_string(), ms(length), ms(warm));
        let words = ["many", &address, "--sessions", &sessions, "--time-ms", &time];
        // Each session has to be used 32 times to become hot; then all of them need time to move.
        let more = ["--warm-calls", "40", "--warm-ms", &warm_ms];
        let words: Vec<&str> = words.into_iter().chain(more).collect();
        let command = hosts.lab(Side::Client, self.wait, &words);
        let Watched { text, away } = hosts.watch(command, &server, self.sessions, None, length)?;
        let sample = of_lab(self.name(), &parse(&text)?, Unit::PerS);
        // Where the policy has them is right.
        let away = away.filter(|_| self.wait != Wait::Settled);
        Ok(vec![Measured { sample, wait: self.wait, away }])
    }
}
