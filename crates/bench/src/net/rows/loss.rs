//! Throughput of one session on a bad link: frames are lost in both directions, the delay is 10 ms
//! each way, and the rate is limited.

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::net::{Conditions, End};

use super::bulk::of_bytes;
use super::client::{client, ms};
use crate::net::row::{Measured, Row};
use crate::net::way::{Stacks, Wait};
use crate::net::world::{Between, Watched, World};

/// Bytes of each write of the program.
const FRAME: &str = "16384";
/// Delay in each direction.
const DELAY: Duration = Duration::from_millis(10);
/// Bits per second: fewer than the relay can forward, so that the link is the limit.
const RATE: u64 = 200_000_000;

struct Loss {
    name: &'static str,
    loss: f64,
}

/// Returns all rows.
pub(super) fn all(quick: bool) -> Vec<Box<dyn Row>> {
    let all = [("loss-1%", 0.01), ("loss-0%", 0.0), ("loss-0.1%", 0.001), ("loss-3%", 0.03)];
    let all = all.into_iter().take(if quick { 1 } else { 4 });
    all.map(|(name, loss)| -> Box<dyn Row> { Box::new(Loss { name, loss }) }).collect()
}

impl Row for Loss {
    fn name(&self) -> String {
        self.name.into()
    }

    fn group(&self) -> &'static str {
        "loss"
    }

    fn rounds(&self) -> usize {
        3
    }

    fn ways(&self) -> &'static [Stacks] {
        // At the other rates of loss, rivals need so long for their queued bytes that the run would
        // take too long.
        if matches!(self.name, "loss-0%" | "loss-1%") { Stacks::MEASURED } else { Stacks::OURS }
    }

    fn turn(&self, world: &World, way: Stacks, length: Duration) -> Result<Vec<Measured>> {
        let (warm, length) = (Duration::from_millis(1000), length * 10);
        let hosts = world.place(way, Between::Relay)?;
        let conditions =
            Conditions { loss: self.loss, delay: DELAY, rate: Some(RATE), ..Conditions::default() };
        for end in [End::A, End::B] {
            hosts.link().set_conditions(end, conditions)?;
        }
        let address = hosts.free_name();
        let server = hosts.lab_server(Wait::Default, &["serve", "tcp", &address])?;
        let (time, warm_ms) = (ms(length), ms(warm));
        let words = ["bulk", "tcp", &address, "--size", FRAME];
        let words: Vec<&str> =
            words.into_iter().chain(["--time-ms", &time, "--warm-ms", &warm_ms]).collect();
        let command = client(world, &hosts, Wait::Default, &words)?;
        let Watched { text, away } = hosts.watch(command, &server, 1, None, length)?;
        let sample = of_bytes(self.name.into(), &text)?;
        Ok(vec![Measured { sample, wait: Wait::Default, away }])
    }
}
