//! Moves per second: the rate at which hot sessions leave the kernel, and the rate at which they go
//! home when they are recalled.
//!
//! A thousand sessions are used in turn without a pause. The row counts, as the server does, the
//! streams made (both ends move) from the first call to the last join, and the ends that came home
//! from the command to the last return.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use sojourn_lab::Running;

use crate::local::row::{Row, Sample, Turn, Unit};
use crate::local::server::{Admin, MoveCounts};
use crate::local::way::RunMode;
use crate::local::world::{LIMIT, Listening, World, wait_until};

const SESSIONS: u64 = 1000;
/// Time between two looks at the server's counters. A look costs the server a read of each
/// stream's memory: more often, the looks would be most of what it does.
const LOOKS_EVERY: Duration = Duration::from_millis(5);

/// The row of moves per second.
pub(super) struct Moves;

impl Row for Moves {
    fn name(&self) -> &'static str {
        "moves"
    }

    fn ways(&self) -> &'static [RunMode] {
        &[RunMode::Sojourn]
    }

    fn rounds(&self) -> usize {
        3
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let Listening { address, server } = world.lab_service(way, "many-serve")?;
        Ok(Box::new(Client { way, address, _server: server }))
    }
}

struct Client {
    way: RunMode,
    address: String,
    _server: Running,
}

/// Waits until `count` has grown by `wanted`; returns the time that it took.
fn wait_for(mut count: impl FnMut() -> Result<u64>, before: u64, wanted: u64) -> Result<Duration> {
    let start = Instant::now();
    loop {
        let now = count()?;
        if now >= before + wanted {
            return Ok(start.elapsed());
        }
        if start.elapsed() > Duration::from_secs(10) {
            bail!("only {} of {wanted} moved within ten seconds", now - before);
        }
        std::thread::sleep(LOOKS_EVERY);
    }
}

impl Turn for Client {
    fn turn(&mut self, world: &World, _length: Duration) -> Result<Vec<Sample>> {
        let mut admin: Admin = world.admin().context("the session server does not answer")?;
        let ready = world.top().join("moves-ready");
        let path = ready.to_string_lossy().into_owned();
        let MoveCounts { joins, returns } = admin.moves()?;
        let count = SESSIONS.to_string();
        let words = ["many", &self.address, "--sessions", &count, "--ready", &path];
        let mut client = Running::start(world.lab(self.way, &words))?;
        wait_until(&mut client, || ready.exists())?;
        let out = wait_for(|| Ok(admin.moves()?.joins), joins, SESSIONS)?;
        let start = Instant::now();
        let recalled = admin.recall_all()? as u64;
        wait_for(|| Ok(admin.moves()?.returns), returns, 2 * recalled)?;
        let home = start.elapsed();
        std::fs::remove_file(&ready)?;
        client.finish(LIMIT)?.success("lab-bench many")?;
        let sample = |case: &str, count: u64, time: Duration| {
            Sample::new(case, Unit::PerS, count as f64 / time.as_secs_f64(), count as f64)
        };
        Ok(vec![
            sample("moves: sessions out", SESSIONS, out),
            sample("moves: sessions home", recalled, home),
        ])
    }
}
