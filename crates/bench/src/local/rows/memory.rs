//! Memory of each session in use: the difference between the memory of server, client and session
//! server with many sessions and with few.
//!
//! The sizes are proportional set sizes, so that memory that both sides map counts once. The
//! kernel's memory for its sockets is the same in every way and is not counted.

use std::time::Duration;

use anyhow::Result;
use sojourn_lab::Running;

use crate::local::row::{Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{LIMIT, Listening, World, wait_until};

const FEW: u64 = 10;
const MANY: u64 = 1010;

/// The row of memory per session.
pub(super) struct Memory;

impl Row for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn ways(&self) -> &'static [RunMode] {
        RunMode::LOCAL
    }

    fn rounds(&self) -> usize {
        1
    }

    fn prepare(&self, _world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        Ok(Box::new(MemoryTurn { way }))
    }
}

struct MemoryTurn {
    way: RunMode,
}

impl MemoryTurn {
    /// Returns the bytes with `sessions` sessions, all of which have been used for a while.
    fn with(&self, world: &World, sessions: u64) -> Result<f64> {
        let Listening { address, server } = world.lab_service(self.way, "many-serve")?;
        let ready = world.top().join("memory-ready");
        let path = ready.to_string_lossy().into_owned();
        let count = sessions.to_string();
        let words = ["many", &address, "--sessions", &count, "--ready", &path];
        let mut client = Running::start(world.lab(self.way, &words))?;
        wait_until(&mut client, || ready.exists())?;
        // Long enough for all sessions to move and to be used afterwards: their rings wrap many
        // times, so that every page of a ring has been touched.
        std::thread::sleep(Duration::from_millis(1500));
        let ours = if self.way.is_ours() { world.server_pids() } else { Vec::new() };
        let pids = [server.pid(), client.pid()].into_iter().chain(ours);
        let sum = pids.filter_map(set_size).sum();
        std::fs::remove_file(&ready)?;
        client.finish(LIMIT)?.success("lab-bench many")?;
        Ok(sum)
    }
}

impl Turn for MemoryTurn {
    fn turn(&mut self, world: &World, _length: Duration) -> Result<Vec<Sample>> {
        let few = self.with(world, FEW)?;
        let many = self.with(world, MANY)?;
        let count = (MANY - FEW) as f64;
        Ok(vec![Sample::new("memory per session", Unit::Bytes, (many - few) / count, count)])
    }
}

/// Returns the proportional set size of a process in bytes (`smaps_rollup`, proc(5)).
fn set_size(pid: u32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}
