//! Rust and C from the same files: every operation of every example with random values, in each
//! combination of languages, over the real transport between processes.
//!
//! The client checks what comes back, the server what arrives; see `docs/reference/idl-random.md`.

mod common;

use common::{Language, Programs, Running, address, watchdog};
use std::path::PathBuf;
use std::process::Command;

const SEEDS: [u64; 3] = [1, 77, u64::MAX - 100];
const ROUNDS: &str = "8";

struct Ends {
    file: &'static str,
    client: PathBuf,
    server: PathBuf,
    /// Removes the two.
    _programs: Programs,
}

impl Ends {
    fn build(file: &'static str) -> Self {
        let programs = Programs::new();
        let (client, server) = std::thread::scope(|scope| {
            let client = scope.spawn(|| programs.client(file));
            let server = programs.server(file);
            (client.join().expect("compiled"), server)
        });
        Self { file, client, server, _programs: programs }
    }

    fn server(&self, language: Language, address: &str, seed: &str) -> Running {
        let mut command = match language {
            Language::C => Command::new(&self.server),
            Language::Rust => Command::new(env!("CARGO_BIN_EXE_interop-server")),
        };
        command.arg(address);
        if language == Language::Rust {
            command.arg(self.file);
        }
        command.arg(seed);
        Running::start(command)
    }

    fn client(&self, language: Language, address: &str, seed: &str) -> Running {
        let mut command = match language {
            Language::C => Command::new(&self.client),
            Language::Rust => Command::new(env!("CARGO_BIN_EXE_interop-client")),
        };
        command.arg(address);
        if language == Language::Rust {
            command.arg(self.file);
        }
        command.args([seed, ROUNDS]);
        Running::start(command)
    }

    fn talk(&self, client: Language, server: Language, seed: u64) {
        let (address, seed) = (address(), seed.to_string());
        let server = self.server(server, &address, &seed);
        self.client(client, &address, &seed).finish();
        server.finish();
    }
}

fn every_way(file: &'static str) {
    let _watchdog = watchdog(150);
    let ends = Ends::build(file);
    for seed in SEEDS {
        for client in [Language::Rust, Language::C] {
            for server in [Language::Rust, Language::C] {
                ends.talk(client, server, seed);
            }
        }
    }
}

#[test]
fn the_function_of_the_paper() {
    every_way("paper");
}

#[test]
fn the_calculator() {
    every_way("calc");
}

#[test]
fn files_with_handles_descriptors_and_lists() {
    every_way("files");
}

#[test]
fn every_type_of_the_language() {
    every_way("everything");
}

#[test]
fn types_within_types() {
    every_way("corners");
}

#[test]
fn a_wrong_value_is_noticed_by_both_ends() {
    let _watchdog = watchdog(150);
    let ends = Ends::build("paper");
    for client in [Language::Rust, Language::C] {
        for server in [Language::Rust, Language::C] {
            let address = address();
            let server = ends.server(server, &address, "1");
            assert!(!ends.client(client, &address, "2").ends_well(), "{client:?}");
            drop(server);
        }
    }
}
