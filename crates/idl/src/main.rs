//! The command `sojourn-idl`: reads arguments, calls the library, writes files.
//!
//! All that it decides is what to print and the exit status: 0 done, 1 mistakes in the input or
//! failures of the system (nothing is written then), 2 wrong arguments.

mod cli;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("sojourn-idl: {failure:#}");
            ExitCode::FAILURE
        }
    }
}
