//! Runs all tests, and the failed ones once more, alone.
//!
//! Many tests run real programs on two processors that other programs use too. A test that fails
//! twice fails. A test that passes the second time is *unsure* and is named at the very end, so
//! that its cause can be found: one failure in hundreds of runs does not stop all other work. If
//! many tests fail, nothing is run again. Not here: the building and running of one program
//! (`test_programs`), and the other checks (`test`).

use crate::queue::{Queue, Running};
use crate::steps::Stopwatch;
use crate::test_programs::{Outcome, TestProgram, build};
use anyhow::{Result, bail};
use std::collections::VecDeque;
use std::sync::mpsc::channel;

/// Largest number of failed test programs for a second run.
const PROGRAMS_MAX: usize = 10;
/// Largest number of failed tests for a second run.
const TESTS_MAX: usize = 20;

/// The programs that take longest, the longest first, as measured on two processors. They start
/// first, one at a time; a quick run leaves them out.
#[rustfmt::skip]
const SLOW: &[&str] = &[
    "system/conform", "idl/depth", "preload/rewriting", "system/network_programs",
    "preload/tables", "system/hostile", "system/abi", "idl/c_backend", "library/sojourn_library",
    "system/network_udp_server", "system/network_events", "system/network", "system/crowd",
    "system/network_ports", "server/apart", "idl/names", "preload/stack", "targets/corpora",
    "preload/away", "system/abi_odd", "system/network_server", "system/network_survivors",
    "system/network_hold",
    "system/hold", "library/deaths", "system/network_udp_home_server",
    "system/network_home_server", "system/network_udp", "system/why", "system/buffers",
    "stream/fuzz_run", "interop/pairs", "system/churn", "library/moves",
    "system/network_protocol_server", "protocol/sojourn_protocol", "abi/objdump",
    "system/network_options", "preload/programs", "interop/attack", "server/held",
    "server/hostile", "system/network_moves", "preload/unseen", "system/network_udp_weather",
    "system/network_udp_told", "system/network_udp_groups", "preload/lost", "protocol/whole",
    "system/network_udp_paths", "bench/smoke", "system/network_routers", "preload/handlers",
    "system/network_udp_moves", "system/network_rules", "proto/simulation",
];

/// Which programs of the workspace run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of them.
    Whole,
    /// All but those that take long.
    Quick,
}

/// A program whose tests did not all pass.
struct Failure {
    program: TestProgram,
    outcome: Outcome,
}

/// Builds and runs the workspace's tests. Returns the tests that passed only the second time.
///
/// # Errors
/// If tests do not compile, if a test failed twice, or if many failed.
pub(crate) fn tests(extent: Extent) -> Result<Vec<String>> {
    eprintln!("── tests");
    let watch = Stopwatch::start();
    let Groups { slow, quick } = groups(build()?);
    let slow = if extent == Extent::Whole { slow } else { VecDeque::new() };
    let count = slow.len() + quick.len();
    eprintln!("   built: {watch}; {count} programs");
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // Tests of the whole system wait for much of their time, a half to two thirds of it on two
    // processors. Beside each other two whole programs of them were no faster, and tests that wait
    // for what others do ran out of time; so only the last test of a program has others beside it.
    // The compiler beside them, even where it has the processors only when nothing else wants them
    // (SCHED_IDLE, or a control group with cpu.idle), made `deaths` six times as slow.
    let tests = processors + processors.div_ceil(2);
    let at_once = AtOnce { programs: processors, tests, beside: 1 };
    let mut failed = run_all(slow, at_once)?;
    let at_once = AtOnce { programs: processors, tests: processors, beside: usize::MAX };
    failed.extend(run_all(quick, at_once)?);
    if !is_worth_another(&failed) {
        let names: Vec<_> = failed.iter().map(|failure| failure.program.name.as_str()).collect();
        bail!("tests: failed: {}", names.join(", "));
    }
    let mut unsure = Vec::new();
    for Failure { program, outcome } in failed {
        unsure.extend(run_again(&program, &outcome.failed)?);
    }
    eprintln!("   tests: {watch}");
    Ok(unsure)
}

/// The programs of a workspace.
struct Groups {
    slow: VecDeque<TestProgram>,
    quick: VecDeque<TestProgram>,
}

/// Parts the slow programs, the slowest first, from the others.
fn groups(mut programs: Vec<TestProgram>) -> Groups {
    let place = |program: &TestProgram| SLOW.iter().position(|slow| *slow == program.name);
    programs.sort_by_key(|program| place(program).unwrap_or(SLOW.len()));
    let (slow, quick) = programs.into_iter().partition(|program| place(program).is_some());
    Groups { slow, quick }
}

/// How much runs at once.
#[derive(Clone, Copy)]
struct AtOnce {
    programs: usize,
    /// Tests of each program.
    tests: usize,
    /// The most unfinished tests of other programs beside which a program begins.
    beside: usize,
}

/// Runs programs, and prints what each has printed when it ends. Returns those that failed.
fn run_all(programs: VecDeque<TestProgram>, at_once: AtOnce) -> Result<Vec<Failure>> {
    let count = programs.len();
    let queue = Queue::new(programs, at_once.beside);
    let (sender, ended) = channel();
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..at_once.programs {
            let (queue, sender) = (&queue, sender.clone());
            scope.spawn(move || {
                while let Some(Running { program, tests }) = queue.take() {
                    let tell = |unfinished| tests.note(unfinished);
                    let outcome = program.run(at_once.tests, &[], &tell);
                    drop(tests);
                    if sender.send((program, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for (nth, (program, outcome)) in ended.iter().enumerate() {
            let outcome = outcome?;
            show(&format!("{} of {count}", nth + 1), &program, &outcome);
            if !outcome.is_well {
                failed.push(Failure { program, outcome });
            }
        }
        Ok(failed)
    })
}

/// Prints what a program has printed, under its name.
fn show(what: &str, program: &TestProgram, outcome: &Outcome) {
    let seconds = outcome.time.as_secs_f64();
    let end = if outcome.is_well { "" } else { ", failed" };
    println!("     Ran {} ({what}; {seconds:.1} s{end})", program.name);
    print!("{}", String::from_utf8_lossy(&outcome.output));
}

/// Returns true if so little has failed that a second run is sensible.
fn is_worth_another(failed: &[Failure]) -> bool {
    let tests: usize = failed.iter().map(|failure| failure.outcome.failed.len()).sum();
    failed.len() <= PROGRAMS_MAX && tests <= TESTS_MAX
}

/// Runs tests of a program once more, one at a time and beside no other program; all of its tests
/// if none is known to have failed. Returns their names.
fn run_again(program: &TestProgram, failed: &[String]) -> Result<Vec<String>> {
    let name = &program.name;
    eprintln!("── once more, alone: {name}: {}", failed.join(", "));
    let outcome = program.run(1, failed, &|_| ())?;
    show("once more", program, &outcome);
    if !outcome.is_well {
        bail!("{name}: failed twice: {}", failed.join(", "));
    }
    if failed.is_empty() {
        return Ok(vec![format!("{name} as a whole")]);
    }
    Ok(failed.iter().map(|test| format!("{name}: {test}")).collect())
}

/// Prints the tests that passed only the second time.
pub(crate) fn report(unsure: &[String]) {
    if !unsure.is_empty() {
        eprintln!("── unsure, passed only when run once more (please find out why):");
        unsure.iter().for_each(|test| eprintln!("   {test}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(names: &[&str]) -> Vec<TestProgram> {
        names.iter().map(|name| TestProgram::named(name, "true")).collect()
    }

    fn ended(failed: &[&str]) -> Outcome {
        Outcome { failed: failed.iter().map(|name| (*name).into()).collect(), ..Outcome::default() }
    }

    #[test]
    fn the_slowest_run_first_and_apart_from_the_others() {
        let Groups { slow, quick } = groups(named(&["a/b", SLOW[1], "c/d", SLOW[0]]));
        let names = |programs: VecDeque<TestProgram>| -> Vec<String> {
            programs.into_iter().map(|program| program.name).collect()
        };
        assert_eq!(names(slow), [SLOW[0], SLOW[1]]);
        assert_eq!(names(quick), ["a/b", "c/d"]);
    }

    #[test]
    fn each_slow_program_is_there() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        for name in SLOW.iter() {
            let (package, target) = name.split_once('/').expect("package and target");
            let has = |folder: &str| {
                let file = format!("{folder}/{package}/tests/{target}");
                root.join(format!("{file}.rs")).exists() || root.join(file).join("main.rs").exists()
            };
            let is_unit = target.strip_prefix("sojourn_") == Some(package);
            assert!(has("crates") || has("tests") || is_unit, "no such test program: {name}");
        }
    }

    #[test]
    fn what_failed_is_told_and_programs_share_the_time() {
        let at_once = AtOnce { programs: 2, tests: 1, beside: 1 };
        let failed = run_all(named(&["x/one", "x/two"]).into(), at_once).expect("both ran");
        assert!(failed.is_empty());
        let bad = TestProgram::named("x/bad", "false");
        let failed = run_all(vec![bad.clone()].into(), at_once).expect("it ran");
        assert_eq!(failed[0].program, bad);
        assert!(run_again(&bad, &[]).is_err());
    }

    #[test]
    fn nothing_is_run_again_where_much_fails() {
        let one = |outcome| Failure { program: TestProgram::named("x/one", "true"), outcome };
        assert!(is_worth_another(&[one(ended(&["a", "b"])), one(ended(&[]))]));
        assert!(!is_worth_another(&[one(ended(&["a"; TESTS_MAX + 1]))]));
        let many: Vec<_> = (0..=PROGRAMS_MAX).map(|_| one(ended(&[]))).collect();
        assert!(!is_worth_another(&many));
    }
}
