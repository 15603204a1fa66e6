//! Types inside types: what takes time or room without bound is refused, and the rest is gone through once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use sojourn_idl::backend::{Options, c, rust};
use sojourn_idl::compile;
use sojourn_idl::source::MemoryLoader;

/// All that can be done with a file; the diagnostics if it is refused.
fn everything(idl: String) -> Result<(), String> {
    let loader = MemoryLoader::new().with("deep.idl", &idl);
    let compiled = compile("deep.idl", None, &loader, &sojourn_idl::Options::default())
        .map_err(|failure| failure.to_string())?;
    let options = Options { tests: true, ..Options::default() };
    let _ = (c::generate(&compiled.module, &options), rust::generate(&compiled.module, &options));
    Ok(())
}

/// What `everything` answers, if it does within a minute.
fn within_a_minute(idl: String) -> Result<(), String> {
    let (done, answer) = channel();
    let worker = thread::spawn(move || done.send(everything(idl)));
    match answer.recv_timeout(Duration::from_secs(60)) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => panic!("still at it after a minute"),
        Err(RecvTimeoutError::Disconnected) => panic!("{:?}", worker.join()),
    }
}

/// `first`, and `levels` types of which each is made from the one before by `next`.
fn chain(first: &str, levels: usize, next: &dyn Fn(usize) -> String) -> String {
    let types: String = (1..=levels).map(next).collect();
    format!("{first}{types}interface k {{ void f([in] t{levels} *a, [in, out] t{levels} *b); }}")
}

#[test]
fn sixty_doublings_are_refused_at_once() {
    let next = |i: usize| format!("typedef struct {{ t{0} a; t{0} b; }} t{i};\n", i - 1);
    let refused = within_a_minute(chain("typedef long t0;\n", 60, &next)).unwrap_err();
    assert!(refused.contains("SJ0322"), "{refused}");
    let next = |i: usize| format!("typedef struct {{ descriptor d; t{0} a[2]; }} t{i};\n", i - 1);
    let refused = within_a_minute(chain("typedef long t0;\n", 60, &next)).unwrap_err();
    assert!(refused.contains("SJ0322"), "{refused}");
}
