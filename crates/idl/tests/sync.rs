//! `sync` of operations in generated code: the stubs as they must be, in both languages. What they
//! do is tested by `tests/c/behave.c`, `tests/stubs-rust` and `tests/interop`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_idl::backend::{Options, Output, c, rust};
use sojourn_idl::compile;
use sojourn_idl::diag::codes::{ACF_KEY_PLACE, ACF_MISUSE};
use sojourn_idl::source::MemoryLoader;

const IDL: &str = "[uuid(6f1d2b60-1c7e-4a6e-9f0b-0a6a5f6d2c99), version(1.0)] interface i {
    long f([in] long a); void g(void); [oneway] void h(void); void k(void); void l(void); }";
const ACF: &str = "[sync(spin(3))] interface i {
    [sync(park)] f(); [sync(spin(20)), timeout(7)] g(); [sync(spin)] h(); [sync(adaptive)] k(); }";

fn generated(make: fn(&sojourn_idl::ir::Module, &Options) -> Vec<Output>) -> Vec<Output> {
    let loader = MemoryLoader::new().with("main.idl", IDL).with("main.acf", ACF);
    let options = sojourn_idl::Options::default();
    let compiled = compile("main.idl", Some("main.acf"), &loader, &options).unwrap();
    make(&compiled.module, &Options::default())
}

/// What lies between `from` and the next `to`.
fn between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from} in\n{text}"));
    rest.split_once(to).map_or(rest, |(found, _)| found)
}

#[test]
fn rust_stubs_set_the_wait_for_the_call_alone() {
    let all = generated(rust::generate);
    let text = &all[0].text;
    let golden = [
        ("f", "call(&mut*rt::stub::waiting(&mutself.transport,sojourn_ipc::Wait::Park)"),
        (
            "g",
            "call(&mut*rt::stub::waiting(&mutself.transport,\
             sojourn_ipc::Wait::Spin(Some(core::time::Duration::from_micros(20))))",
        ),
        ("h", "send(&mut*rt::stub::waiting(&mutself.transport,sojourn_ipc::Wait::Spin(None))"),
        ("k", "call(&mut*rt::stub::waiting(&mutself.transport,sojourn_ipc::Wait::Adaptive)"),
        ("l", "call(&mutself.transport"),
    ];
    for (name, wanted) in golden {
        let method = between(text, &format!("pub fn {name}(&mut self"), "\n    }");
        let call = between(method, "rt::stub::", "self.base");
        // As the formatter breaks it or not.
        let call = call.split_whitespace().collect::<String>().replace(",)", ")");
        assert_eq!(call, format!("{wanted},"), "{name}");
    }
    assert!(
        text.contains("wait: sojourn_ipc::Wait::Spin(Some(core::time::Duration::from_micros(3)))")
    );
}

#[test]
fn c_stubs_set_the_wait_for_the_call_alone() {
    let all = generated(c::generate);
    let find = |path: &str| &all.iter().find(|output| output.path == path).unwrap().text;
    let client = find("main_client.c");
    let golden = [
        ("f", "sj_stub_call_waiting(sj_s, &sj_o, INT64_C(0), 2u, 0u)"),
        ("g", "sj_stub_call_waiting(sj_s, &sj_o, INT64_C(7000000), 1u, 20u)"),
        ("h", "sj_stub_send_waiting(sj_s, &sj_o, INT64_C(0), 1u, 0u)"),
        ("k", "sj_stub_call_waiting(sj_s, &sj_o, INT64_C(0), 0u, 0u)"),
        ("l", "sj_stub_call(sj_s, &sj_o, INT64_C(0))"),
    ];
    for (name, wanted) in golden {
        let stub = between(client, &format!("sj_status sj_of_i_{name}_remote("), "\n}");
        assert_eq!(between(stub, "sj_status sj_r = ", ";"), wanted, "{name}");
    }
    let options = between(find("main.h"), "i_options(sj_options *options)", "}");
    assert!(options.contains("options->wait = 1;") && options.contains("options->spin_us = 3;"));
}

#[test]
fn words_about_waiting_that_would_say_nothing_are_refused() {
    let idl = "interface i { void f(void); [local] void g(void); }";
    let codes = |acf: &str| -> Vec<_> {
        let loader = MemoryLoader::new().with("main.idl", idl).with("main.acf", acf);
        let options = sojourn_idl::Options::default();
        match compile("main.idl", Some("main.acf"), &loader, &options) {
            Ok(_) => Vec::new(),
            Err(failure) => failure.diagnostics.iter().map(|found| found.code).collect(),
        }
    };
    assert_eq!(codes("[max_inflight(4)] interface i { [sync(park), timeout(3)] f(); }"), []);
    assert_eq!(codes("interface i { [max_inflight(4)] f(); }"), [ACF_KEY_PLACE]);
    for key in ["sync(park)", "timeout(3)", "max_message(9)", "on_violation(fault)", "deferred"] {
        assert_eq!(codes(&format!("interface i {{ [{key}] g(); }}")), [ACF_MISUSE], "{key}");
    }
    // What an interface says is meant for those of its operations that it can be said of.
    assert_eq!(codes("[sync(park), timeout(3)] interface i { }"), []);
}
