//! `sojourn-driver`: reads the command line and starts the driver.

use clap::Parser;
use sojourn_driver::process::{serve_handed, serve_interface};
use sojourn_driver::{Address, FrameWay, Serving, Wait};
use std::error::Error;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

/// The driver of Sojourn: holds a network interface, and gives its frames to other processes by
/// calls of Sojourn IPC (crate sojourn-driver).
#[derive(Debug, Parser)]
#[command(name = "sojourn-driver", version)]
struct Flags {
    /// Open packet sockets on this interface. Takes CAP_NET_RAW.
    #[arg(long, value_name = "NAME", requires = "address", required_unless_present = "handed")]
    interface: Option<String>,
    /// Serve at this address: a path, or @NAME. Only this user may connect.
    #[arg(long)]
    address: Option<String>,
    /// Serve the clients that a session server hands over, on standard input (sojournd
    /// --network=driver starts the program so).
    #[arg(long, conflicts_with_all = ["interface", "address"])]
    handed: bool,
    /// Hand over each frame in memory of its own, which the receiver maps, in place of in the
    /// message.
    #[arg(long)]
    by_memory: bool,
    /// Sleep at once, in place of spinning while that pays.
    #[arg(long)]
    sleep: bool,
}

fn main() -> ExitCode {
    match run(&Flags::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sojourn-driver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: &Flags) -> Result<(), Box<dyn Error>> {
    let serving = Serving {
        way: if flags.by_memory { FrameWay::Memory } else { FrameWay::Message },
        wait: if flags.sleep { Wait::Park } else { Wait::Adaptive },
    };
    match (&flags.interface, &flags.address) {
        (Some(name), Some(address)) => {
            let ready = || println!("ready {address}");
            serve_interface(name, Address::parse(address)?, serving, ready)
        }
        _ => serve_handed(&std::io::stdin().as_fd().try_clone_to_owned()?, serving),
    }
}
