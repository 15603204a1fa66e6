//! The check that a session server leaves nothing behind some time after it and its sessions have
//! ended.

use crate::LIMIT;
use anyhow::{Context, Result};
use sojourn_lab::Sandbox;
use sojourn_lab::net::{End, Link};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Longest time until everything is gone.
const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the path of the socket at which the keeper of a sandbox's sessions listens.
#[must_use]
pub fn keeper_path(world: &Sandbox) -> String {
    world.address().to_string_lossy().into_owned() + ".keeper"
}

/// Finds the keeper that listens at `path`; returns its process number.
#[must_use]
pub fn keeper(path: &str) -> Option<u32> {
    let is_it = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == path.as_bytes())
    };
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
}

/// The places that are checked after a test: the keeper, and the hooks on the host's interfaces.
#[derive(Debug)]
pub struct Leftovers<'l> {
    link: &'l Link,
    end: End,
    path: String,
    sojourn: PathBuf,
}

impl<'l> Leftovers<'l> {
    /// Returns the places of the sandbox at this end of the link.
    #[must_use]
    pub fn of(link: &'l Link, end: End, world: &Sandbox) -> Self {
        Self { link, end, path: keeper_path(world), sojourn: world.built().path("sojourn") }
    }

    fn found(&self) -> Result<Vec<String>> {
        let mut found: Vec<_> =
            keeper(&self.path).map(|pid| format!("keeper {pid}")).into_iter().collect();
        if std::path::Path::new(&self.path).exists() {
            found.push(self.path.clone());
        }
        let words = ["doctor", "--json"];
        let output =
            self.link.host(self.end).run(&self.sojourn.to_string_lossy(), &words, LIMIT)?;
        let doctor: serde_json::Value = serde_json::from_str(&output.out)?;
        let attached = doctor["attached"].as_array().context("what is attached may not be seen")?;
        let on_interfaces = attached.iter().filter(|one| one["interface"] != "");
        found.extend(on_interfaces.map(ToString::to_string));
        Ok(found)
    }

    /// Waits until nothing is left.
    ///
    /// # Panics
    /// If something stays, or cannot be found out.
    #[track_caller]
    pub fn assert_none(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.found().unwrap_or_else(|error| panic!("{error:#}"));
            if found.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left behind: {found:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
