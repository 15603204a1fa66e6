//! Running commands: the name and the duration of each are printed, with the processor time that it
//! took, and a failure names the command.

use anyhow::{Context, Result, bail};
use std::fmt;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Clock ticks in a second, in which `/proc` counts processor time (`USER_HZ`, time(7)).
const TICKS: f64 = 100.0;

/// The package of generated Rust that only has to compile: clippy reads it, and nothing else need.
pub(crate) const ONLY_CHECKED: &str = "sojourn-names-rust";

/// The time since its beginning, and the processor time of the commands that ended meanwhile.
pub(crate) struct Stopwatch {
    start: Instant,
    spent: f64,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { start: Instant::now(), spent: spent() }
    }
}

impl fmt::Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let spent = spent() - self.spent;
        write!(f, "{:.1} s ({spent:.1} s of processors)", self.start.elapsed().as_secs_f64())
    }
}

/// Returns the processor time in seconds of all commands that have ended (`cutime` and `cstime`,
/// proc_pid_stat(5)); 0 where `/proc` does not tell it.
fn spent() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return 0.0 };
    // The program's name, in parentheses, may have spaces. `cutime` is the 14th field behind it.
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(13).take(2);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Returns a command made of words, the first of which is the program.
pub(crate) fn command(words: &[&str]) -> Command {
    let (program, arguments) = words.split_first().unwrap_or((&"true", &[]));
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Returns a Cargo command; Cargo is the one that runs this program.
pub(crate) fn cargo(words: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words);
    command
}

/// Runs a command to its end, under the name `what` in the output.
pub(crate) fn run(what: &str, command: &mut Command) -> Result<()> {
    eprintln!("── {what}");
    let watch = Stopwatch::start();
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("{what}: cannot run {program}"))?;
    if !status.success() {
        bail!("{what}: failed ({status})");
    }
    eprintln!("   {what}: {watch}");
    Ok(())
}

/// A check of this program's own.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Result<()>,
}

/// Runs checks of this program's own, as many at once as there are processors.
///
/// # Errors
/// Those of all checks that fail, with their names.
pub(crate) fn side_by_side(checks: &[Check]) -> Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(|| {
                // SYNC: none: the number only decides who runs which check.
                while let Some(Check { name, run }) =
                    checks.get(next.fetch_add(1, Ordering::Relaxed))
                {
                    eprintln!("── {name}");
                    if let Err(error) = run() {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        failed.push(format!("{name}: {error:#}"));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Ok(())
}

/// Runs a command and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_check_that_fails_is_told_of() {
        let well = Check { name: "one", run: || Ok(()) };
        let wide = Check { name: "two", run: || bail!("wide") };
        let long = Check { name: "three", run: || bail!("long") };
        assert!(side_by_side(std::slice::from_ref(&well)).is_ok());
        let text = side_by_side(&[wide, well, long]).expect_err("two fail").to_string();
        assert!(text.contains("two: wide") && text.contains("three: long"), "{text}");
    }
}
