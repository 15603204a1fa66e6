//! `lab-peer`: an ordinary program that talks to another one, checks every byte, and knows nothing
//! of Sojourn.
//!
//! `lab-peer SIDE KIND WAY [--bytes N] [--rounds N] [--seed N] ...`: one process is the server, one
//! the client; for pipes and socket pairs it makes both itself by running itself twice. Not here:
//! anything of the project. It ends with a line of what was transferred, or with status 1 and what
//! was wrong.

#![allow(unsafe_code, reason = "an ordinary program makes ordinary C calls")]

mod flow;
mod link;
mod wait;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match flow::run(&words) {
        Ok(line) => {
            // The side whose standard output is the link says nothing.
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
