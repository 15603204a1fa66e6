//! A short torture: a few episodes of fixed seeds, each with a check of every byte.
//!
//! `cargo xtask torture` is the long one. The test also fails if nothing moved or nothing was
//! disturbed, because then it has shown nothing.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use serde_json::Value;
use sojourn_lab::Running;
use std::process::Command;
use std::time::Duration;

/// Seeds of the episodes, and number of disturbances in each: half a minute in all.
const SEEDS: [&str; 3] = ["3", "10", "12"];
const STRIKES: &str = "12";
/// Longest time of a run; the torture's own watchdogs end an episode that hangs before.
const LIMIT: Duration = Duration::from_secs(240);

#[test]
fn episodes_of_fixed_seeds_find_no_fault() {
    for seed in SEEDS {
        let name = format!("sojourn-torture-{}-{seed}.json", std::process::id());
        let file = std::env::temp_dir().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_torture"));
        command
            .args(["--seed", seed, "--episodes", "1", "--strikes", STRIKES, "--json"])
            .arg(&file);
        let said = Running::start(command).unwrap().finish(LIMIT).unwrap();
        let said = said.success(&format!("seed {seed}")).unwrap();
        println!("{said}");
        let counts: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        std::fs::remove_file(&file).unwrap();
        let sum = |what: &str| {
            let rows = counts["disturbances"].as_array().unwrap().iter();
            rows.map(|row| row[what].as_u64().unwrap()).sum::<u64>()
        };
        assert!(sum("times") > 5 && sum("moves") > 0 && sum("bytes") > 1_000_000, "{said}");
    }
}
