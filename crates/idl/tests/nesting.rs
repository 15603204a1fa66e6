//! Types inside types: what takes time or room without bound is refused, and the rest is gone
//! through once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use sojourn_idl::backend::{Options, c, rust};
use sojourn_idl::source::MemoryLoader;
use sojourn_idl::{compat, compile, docgen, format_source};

/// All that can be done with a file; the diagnostics if it is refused.
fn everything(idl: String) -> Result<(), String> {
    format_source("deep.idl", &idl).map_err(|failure| failure.to_string())?;
    let acf = "interface k { [comm_status] f(); }";
    let loader = MemoryLoader::new().with("deep.idl", &idl).with("deep.acf", acf);
    let (settings, options) = (sojourn_idl::Options::default(), all_outputs());
    let compiled = compile("deep.idl", Some("deep.acf"), &loader, &settings)
        .map_err(|failure| failure.to_string())?;
    let module = &compiled.module;
    let _ = (c::generate(module, &options), rust::generate(module, &options));
    let _ = (docgen::markdown(module), docgen::html(module));
    let dump = compat::dump(module);
    assert!(compat::check(&compiled, "deep.dump", &dump).is_empty());
    Ok(())
}

fn all_outputs() -> Options {
    Options { tests: true, ..Options::default() }
}

/// What `everything` answers. Whatever takes a step for every path through the types instead of
/// one for every type, or for every two, takes years: the bound only ends the test.
fn answer(idl: String) -> Result<(), String> {
    let (done, answer) = channel();
    let worker = thread::Builder::new().stack_size(8 << 20);
    let worker = worker.spawn(move || done.send(everything(idl))).unwrap();
    match answer.recv_timeout(Duration::from_secs(600)) {
        Ok(answer) => answer,
        Err(RecvTimeoutError::Timeout) => panic!("still at it after ten minutes"),
        Err(RecvTimeoutError::Disconnected) => panic!("{:?}", worker.join()),
    }
}

/// `first`, and `levels` types of which each is made from the one before by `next`.
fn chain(first: &str, levels: usize, next: &dyn Fn(usize) -> String) -> String {
    let types: String = (1..=levels).map(next).collect();
    format!(
        "{first}{types}interface k {{ error_status_t f([in] t{levels} *a, [in, out] t{levels} *b); }}"
    )
}

#[test]
fn sixty_doublings_are_refused_at_once() {
    let next = |i: usize| format!("typedef struct {{ t{0} a; t{0} b; }} t{i};\n", i - 1);
    let refused = answer(chain("typedef long t0;\n", 60, &next)).unwrap_err();
    assert!(refused.contains("SJ0322"), "{refused}");
    let next = |i: usize| format!("typedef struct {{ descriptor d; t{0} a[2]; }} t{i};\n", i - 1);
    let refused = answer(chain("typedef long t0;\n", 60, &next)).unwrap_err();
    assert!(refused.contains("SJ0322"), "{refused}");
}

#[test]
fn what_fits_is_gone_through_once() {
    for first in [
        "typedef enum { A, B } t0;\n",
        "typedef struct { [range(0, 5)] long z; } t0;\n",
        "typedef struct { [string] char *s; [ptr] long *p; } t0;\n",
    ] {
        let next = |i: usize| format!("typedef struct {{ t{0} a; t{0} b; }} t{i};\n", i - 1);
        answer(chain(first, 22, &next)).unwrap();
    }
}

#[test]
fn unions_and_pointers_are_gone_through_once() {
    let next = |i: usize| {
        let t = i - 1;
        format!(
            "typedef union switch (long w) u {{ case 1: t{t} a; case 2: t{t} b; case 3: t{t} c; }} t{i};\n"
        )
    };
    answer(chain("typedef long t0;\n", 60, &next)).unwrap();
    let next = |i: usize| {
        format!(
            "typedef struct {{ [unique] t{0} *a; [unique] t{0} *b; [ptr] t{0} *c; }} t{i};\n",
            i - 1
        )
    };
    answer(chain("typedef struct { long z; } t0;\n", 100, &next)).unwrap();
}

#[test]
fn two_hundred_levels_end_and_three_hundred_are_refused() {
    let next = |i: usize| format!("typedef struct {{ t{} a; long b; }} t{i};\n", i - 1);
    answer(chain("typedef long t0;\n", 200, &next)).unwrap();
    let refused = answer(chain("typedef long t0;\n", 300, &next)).unwrap_err();
    assert!(refused.contains("SJ0104"), "{refused}");
}
