//! `sync` of single operations, in both languages: the kernel says whether the caller slept.

mod common;

use common::{Programs, Running, address, watchdog};
use sojourn_interop::{Watcher, soon, waits};
use sojourn_ipc::{Address, Endpoint, ServerOptions, rt};
use std::process::Command;

/// Serves one client at a time until the client has ended well.
fn watch(client: impl FnOnce(&str) -> Command) {
    let address = address();
    let parsed = Address::parse(&address).expect("an address");
    let endpoint = Endpoint::bind(parsed, ServerOptions::default()).expect("bound");
    let mut server = endpoint.server();
    let serving = std::thread::spawn(move || {
        let mut service = waits::WaitsService::<Watcher>::new(Watcher::default());
        // Ends when the endpoint is closed, or at the deadline.
        let _closed = rt::serve(&mut server, &mut service, soon());
    });
    Running::start(client(&address)).finish();
    drop(endpoint);
    serving.join().expect("the server ends");
}

#[test]
fn rust_calls_wait_as_their_operations_say() {
    let _watchdog = watchdog(100);
    watch(|address| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interop-client"));
        command.args([address, "waits", "1", "1"]);
        command
    });
}

#[test]
fn c_calls_wait_as_their_operations_say() {
    let _watchdog = watchdog(100);
    let programs = Programs::new();
    let program = programs.own("waits");
    watch(|address| {
        let mut command = Command::new(&program);
        command.arg(address);
        command
    });
}
