//! The measuring client, and its arguments.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sojourn_lab::net::End;

use crate::net::way::{Side, Stacks, Wait};
use crate::net::world::{self, Hosts, World};

/// Returns the command of the measuring client: `lab-bench`, or a rival that takes the same
/// arguments and prints the same results.
pub(super) fn client(world: &World, hosts: &Hosts, wait: Wait, words: &[&str]) -> Result<Command> {
    let program = match hosts.way() {
        Stacks::Smoltcp => world::myself()?,
        Stacks::ProtocolServer => return hosts.served(wait, words),
        Stacks::Gvisor => world.gvisor().context("sojourn-bench-netstack is not there")?,
        _ => return Ok(hosts.lab(Side::Client, wait, words)),
    };
    let mut command = hosts.command(Side::Client, wait, program);
    if hosts.way() == Stacks::Smoltcp {
        command.arg("net-smoltcp");
    }
    // Addresses beside the host's own. The host's kernel takes no part, and drops at once the
    // packets for them that it sees.
    let [a, b, c, _] = hosts.link().v4(End::B).octets();
    let address = format!("{a}.{b}.{c}.77");
    let mac = format!("02:6c:61:{b:02x}:{c:02x}:77");
    command.args(["--interface", hosts.link().interface(), "--mac", &mac, "--address", &address]);
    command.args(["--spin", if wait == Wait::Spinning { "1" } else { "0" }]);
    command.args(words);
    Ok(command)
}

/// Formats a duration in milliseconds as an argument.
pub(super) fn ms(time: Duration) -> String {
    time.as_millis().to_string()
}

/// The options that tie client and server to processors of their own.
pub(super) struct Pins {
    pub(super) client: Vec<String>,
    pub(super) server: Vec<String>,
}

pub(super) fn pins() -> Pins {
    let processors = crate::os::processors();
    let pin = |processor: Option<&usize>| -> Vec<String> {
        ["--pin".to_owned(), processor.copied().unwrap_or(0).to_string()].into()
    };
    Pins { client: pin(processors.first()), server: pin(processors.last()) }
}
