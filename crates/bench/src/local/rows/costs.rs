//! The cost of Sojourn for programs that gain nothing from it: the start of programs, and programs
//! without connections.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Result;
use sojourn_lab::Built;

use super::figures::{of_lab, times_of};
use crate::local::row::{Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::World;
use crate::stats::sorted;

/// Returns all rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    vec![
        Box::new(StartUp),
        Box::new(Children),
        Box::new(Loaded),
        Box::new(Alone::GZIP),
        Box::new(Alone::DD),
    ]
}

/// The program `true`, from fork to its end; under Sojourn, `sojourn run -- true`.
struct StartUp;

impl Row for StartUp {
    fn name(&self) -> &'static str {
        "start-up"
    }

    fn ways(&self) -> &'static [RunMode] {
        RunMode::LOCAL
    }

    fn prepare(&self, _world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        Ok(Box::new(Starter { way }))
    }
}

struct Starter {
    way: RunMode,
}

impl Turn for Starter {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let start = Instant::now();
        let mut ns = Vec::new();
        while start.elapsed() < length {
            let mut command = world.command(self.way, "true");
            let start = Instant::now();
            anyhow::ensure!(command.status()?.success(), "`true` failed");
            ns.push(start.elapsed().as_nanos() as f64);
        }
        let times = times_of(&sorted(&ns));
        let sample = Sample::new("start-up of `true`", Unit::Ns, times.p50, ns.len() as f64);
        Ok(vec![Sample { times: Some(times), ..sample }])
    }
}

/// The program `true`, started by a program that is itself under Sojourn, as by a shell.
struct Children;

impl Row for Children {
    fn name(&self) -> &'static str {
        "children"
    }

    fn ways(&self) -> &'static [RunMode] {
        RunMode::LOCAL
    }

    fn prepare(&self, _world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        Ok(Box::new(Parent { way }))
    }
}

struct Parent {
    way: RunMode,
}

impl Turn for Parent {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let ms = length.as_millis().to_string();
        let measured = world.lab_result(self.way, &["start", "true", "--time-ms", &ms])?;
        Ok(vec![of_lab("a child `true`".into(), &measured, Unit::Ns)])
    }
}

/// The program `true` with a preloaded library: plainly with one that has nothing in it, under
/// Sojourn with the preload library, and no command `sojourn` around it.
struct Loaded;

impl Row for Loaded {
    fn name(&self) -> &'static str {
        "loaded"
    }

    fn ways(&self) -> &'static [RunMode] {
        &[RunMode::Plain, RunMode::Sojourn]
    }

    fn prepare(&self, _world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        Ok(Box::new(Loader { way }))
    }
}

struct Loader {
    way: RunMode,
}

impl Turn for Loader {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let library = match self.way {
            RunMode::Plain => empty_library(world)?,
            _ => Built::without_check()?.path("libsojourn_preload.so"),
        };
        let start = Instant::now();
        let mut ns = Vec::new();
        while start.elapsed() < length {
            let mut command = world.command(RunMode::Plain, "true");
            command.env("LD_PRELOAD", &library);
            let start = Instant::now();
            anyhow::ensure!(command.status()?.success(), "`true` failed");
            ns.push(start.elapsed().as_nanos() as f64);
        }
        let times = times_of(&sorted(&ns));
        let name = "`true` with a library preloaded";
        let sample = Sample::new(name, Unit::Ns, times.p50, ns.len() as f64);
        Ok(vec![Sample { times: Some(times), ..sample }])
    }
}

/// Builds a library that has nothing in it.
fn empty_library(world: &World) -> Result<PathBuf> {
    let library = world.folder("loaded", RunMode::Plain)?.join("empty.so");
    if !library.exists() {
        let mut build = Command::new("cc");
        build.args(["-shared", "-fPIC", "-x", "c", "/dev/null", "-o"]).arg(&library);
        anyhow::ensure!(build.status()?.success(), "the C compiler failed");
    }
    Ok(library)
}

/// A program without connections.
struct Alone {
    name: &'static str,
    words: &'static [&'static str],
}

impl Alone {
    /// Computes.
    const GZIP: Self = Self { name: "gzip", words: &["gzip", "-c", "FILE"] };
    /// Makes only system calls, none of them on a connection.
    const DD: Self = Self {
        name: "dd",
        words: &["dd", "if=/dev/zero", "of=/dev/null", "bs=4k", "count=600000", "status=none"],
    };
}

/// Size of the file that gzip compresses.
const FILE_BYTES: usize = 6 << 20;

impl Row for Alone {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ways(&self) -> &'static [RunMode] {
        RunMode::LOCAL
    }

    fn rounds(&self) -> usize {
        11
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let file = world.top().join("input");
        if !file.exists() {
            fs::write(&file, text(FILE_BYTES))?;
        }
        Ok(Box::new(Work { way, name: self.name, words: self.words, file }))
    }
}

/// Returns bytes that can be compressed a little.
fn text(bytes: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        b"etaoin shrdlu\n.x"[(state >> 60) as usize]
    };
    (0..bytes).map(|_| next()).collect()
}

struct Work {
    way: RunMode,
    name: &'static str,
    words: &'static [&'static str],
    file: PathBuf,
}

impl Work {
    fn command(&self, world: &World) -> Command {
        let file = self.file.to_string_lossy();
        let mut command = world.command(self.way, self.words[0]);
        command.args(self.words[1..].iter().map(|word| word.replace("FILE", &file)));
        command
    }
}

impl Turn for Work {
    fn turn(&mut self, world: &World, _length: Duration) -> Result<Vec<Sample>> {
        let mut command = self.command(world);
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let start = Instant::now();
        anyhow::ensure!(command.status()?.success(), "{} failed", self.name);
        let ns = start.elapsed().as_nanos() as f64;
        Ok(vec![Sample::new(self.name, Unit::Ns, ns, 1.0)])
    }
}
