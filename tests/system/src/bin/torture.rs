//! The program behind `cargo xtask torture`, which builds the programs that it runs.
//!
//! `torture [--minutes N] [--seed S] [--episodes N] [--strikes N] [--json FILE]`: status 0 if no
//! fault was found. Not here: the episodes (`sojourn_system::torture`).

use anyhow::{Context, Result, bail};
use sojourn_system::torture::{Options, isolate, run};
use std::process::ExitCode;
use std::time::Duration;

/// Duration of a run, if no option gives one.
const MINUTES: f64 = 10.0;

fn options() -> Result<Options> {
    let mut options = Options {
        seed: 1,
        time: Duration::from_secs_f64(60.0 * MINUTES),
        episodes: u64::MAX,
        strikes: None,
        json: None,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word}: a value is missing"))?;
        let number = || value.parse::<u64>().with_context(|| format!("{word} {value}: no number"));
        match word.as_str() {
            "--minutes" => {
                let minutes: f64 = value.parse().with_context(|| format!("{value}: no number"))?;
                options.time = Duration::try_from_secs_f64(60.0 * minutes)?;
            }
            "--seed" => options.seed = number()?,
            "--episodes" => options.episodes = number()?,
            "--strikes" => options.strikes = Some(number()?),
            "--json" => options.json = Some(std::path::absolute(&value)?),
            _ => bail!("no such option: {word}"),
        }
    }
    Ok(options)
}

fn torture() -> Result<ExitCode> {
    let options = options()?;
    isolate()?;
    Ok(if run(&options)? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn main() -> ExitCode {
    torture().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
