//! `lab-peer`: an ordinary program that talks to another one and checks every byte. It has no code
//! that depends on Sojourn.
//!
//! `lab-peer SIDE KIND WAY [--bytes N] [--rounds N] [--seed N] ...`: one process is the server, the
//! other the client; for pipes and socket pairs the program makes both by running itself again. Not
//! here: any part of the project. The program ends with a line about the transfer, or with status 1
//! and the fault.

#![allow(unsafe_code, reason = "an ordinary program makes ordinary C calls")]

mod flow;
mod link;
mod wait;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match flow::run(&words) {
        Ok(line) => {
            // The standard output of the inheriting side is the link, so that side prints nothing.
            if words.first().is_none_or(|side| side != "inherit") {
                println!("{line}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lab-peer {}: {error}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}
