//! The programs that `doors` measures, in a folder of the run, and the ways in which they start.
//!
//! Those in C are part of this program (`build.rs`). Those of musl and Go are made when they are
//! needed, if their compilers are there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use sojourn_lab::{Mode, Running, Sandbox};

use crate::local::process;
use crate::os;

const C_PROGRAMS: [(&str, &[u8]); 3] = [
    ("dynamic", include_bytes!(concat!(env!("OUT_DIR"), "/doors"))),
    ("static", include_bytes!(concat!(env!("OUT_DIR"), "/doors-static"))),
    ("trapped", include_bytes!(concat!(env!("OUT_DIR"), "/doors-trapped"))),
];
const SOURCES: [(&str, &str); 3] = [
    ("doors.c", include_str!("../../guest/doors.c")),
    ("measure.h", include_str!("../../guest/measure.h")),
    ("doors.go", include_str!("../../guest/doors.go")),
];
/// The time limit of a program.
const LIMIT: Duration = Duration::from_secs(20);

/// A program, by how its calls come to the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Dynamic,
    Static,
    /// Static, with a call that cannot be rewritten.
    Trapped,
    Musl,
    Go,
}

impl Program {
    /// Returns the name of its file.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic",
            Self::Static => "static",
            Self::Trapped => "trapped",
            Self::Musl => "musl",
            Self::Go => "go",
        }
    }
}

/// The way in which a start is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    Plain,
    /// By the loader, with a cache of sites.
    Cached,
    /// By the loader, without a cache.
    Searched,
}

/// The programs, and a session server.
pub(super) struct Programs {
    sandbox: Sandbox,
}

impl Programs {
    /// Starts a server, and writes and compiles the programs.
    pub(super) fn new() -> Result<Self> {
        let mut sandbox = Sandbox::new()?;
        // A program that cannot be accelerated must fail, instead of being measured as if it were.
        sandbox.set("STRICT", "on");
        sandbox.set("LOAD", "on");
        let programs = Self { sandbox };
        let path = |name: &str| programs.sandbox.folder().join(name);
        for (name, bytes) in C_PROGRAMS {
            write(&path(name), bytes, 0o755)?;
        }
        for (name, text) in SOURCES {
            write(&path(name), text.as_bytes(), 0o644)?;
        }
        let made = |words: &[&str]| {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).current_dir(programs.sandbox.folder());
            command.env("GOTOOLCHAIN", "local");
            let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !ended.is_ok_and(|status| status.success()) {
                eprintln!("{} does not compile: without its rows", words.join(" "));
            }
        };
        made(&["musl-gcc", "-O2", "-static", "-o", "musl", "doors.c"]);
        made(&["go", "build", "-o", "go", "doors.go"]);
        Ok(programs)
    }

    fn path(&self, program: Program) -> Result<PathBuf> {
        let path = self.sandbox.folder().join(program.title());
        let len = std::fs::metadata(&path).map_or(0, |status| status.len());
        ensure!(len > 0, "no compiler for it");
        Ok(path)
    }

    /// Returns the nanoseconds of a call: the samples of one run of the program.
    pub(super) fn samples(
        &self,
        program: Program,
        call: &str,
        is_under: bool,
        ms: u32,
    ) -> Result<Vec<f64>> {
        let mode = if is_under { Mode::Sojourn } else { Mode::Plain };
        let mut command = self.sandbox.command(mode, self.path(program)?);
        let processor = os::processors().first().copied().unwrap_or(0);
        command.args([call, &processor.to_string(), &ms.to_string()]);
        process::prepare_child(&mut command, None);
        let text = Running::start(command)?.finish(LIMIT)?.success(program.title())?;
        let said: serde_json::Value = serde_json::from_str(text.trim()).context("no samples")?;
        let samples = said["samples"].as_array().map(Vec::as_slice).unwrap_or_default();
        ensure!(!samples.is_empty(), "no samples");
        Ok(samples.iter().filter_map(serde_json::Value::as_f64).collect())
    }

    /// Starts a program until the loader has kept its sites, which it does once the program's file
    /// has not been changed for some time.
    pub(super) fn fill_cache(&self, program: Program) -> Result<()> {
        let folder = self.caches(program).join("sojourn");
        let begun = Instant::now();
        while !std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some()) {
            self.start(program, Start::Cached)?;
            ensure!(begun.elapsed() < LIMIT, "the loader keeps no sites");
        }
        Ok(())
    }

    fn caches(&self, program: Program) -> PathBuf {
        self.sandbox.folder().join(format!("caches-{}", program.title()))
    }

    /// Starts a program that ends at once; returns the microseconds from its creation to its end.
    pub(super) fn start(&self, program: Program, start: Start) -> Result<f64> {
        let path = self.path(program)?;
        let built = self.sandbox.built();
        let mut command = match start {
            Start::Plain => Command::new(&path),
            Start::Cached | Start::Searched => Command::new(built.path("sojourn-abi")),
        };
        command.env("SOJOURN_SERVER", self.sandbox.address()).env("SOJOURN_STRICT", "on");
        if start != Start::Plain {
            let has_cache = start == Start::Cached;
            let caches = if has_cache { self.caches(program) } else { "/dev/null".into() };
            command.env("XDG_CACHE_HOME", caches).env("SOJOURN_ABI_FILE", &path);
            command.env("LD_PRELOAD", built.path("libsojourn_preload.so"));
        }
        let begun = os::now_ns();
        let status = command.status().with_context(|| path.display().to_string())?;
        let ended = os::now_ns();
        ensure!(status.success(), "{}: {status}", path.display());
        Ok((ended - begun) as f64 / 1e3)
    }
}

fn write(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, bytes).with_context(|| path.display().to_string())?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok(())
}
