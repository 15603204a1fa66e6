//! The command line of `sojourn-udpd`; the manual page and the completions are made from it.

use clap::{CommandFactory as _, Parser};
use core::net::SocketAddrV4;
use sojourn_ipc::Wait;

/// The UDP server of Sojourn: sends and receives datagrams for programs that ask it to over Sojourn
/// IPC (crate sojourn-udp, sojourn/udp.h). Needs CAP_NET_RAW.
#[derive(Debug, Parser)]
#[command(name = "sojourn-udpd", version)]
pub(crate) struct Flags {
    /// Serve at this address: a path, or @NAME.
    #[arg(long, default_value = sojourn_udp::SYSTEM)]
    pub(crate) address: String,
    /// Threads that take requests. Each client is served by one of them.
    #[arg(long, value_name = "COUNT", default_value = "1")]
    pub(crate) threads: core::num::NonZeroU8,
    /// How threads wait for requests.
    #[arg(long, value_name = "HOW", default_value = "adaptive")]
    pub(crate) wait: WaitPolicy,
    /// Let the threads that wait for packets, one for each port, spin too.
    #[arg(long)]
    pub(crate) spin_on_network: bool,
    /// Send datagrams for this address and port back (RFC 862), by a program in the server's own
    /// process. May be given several times. Ports that may answer by themselves (below 1024, and
    /// those given here) are not answered.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) echo: Vec<SocketAddrV4>,
    /// Print the manual page.
    #[arg(long, exclusive = true)]
    pub(crate) man: bool,
    /// Print completions for a shell.
    #[arg(long, value_name = "SHELL", exclusive = true)]
    pub(crate) completions: Option<clap_complete::Shell>,
}

/// The values of `--wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WaitPolicy {
    /// Spin while that pays, then sleep.
    Adaptive,
    /// Never sleep.
    Spin,
    /// Sleep at once.
    Park,
    /// Never sleep, but let others go first: for fewer processors than threads that spin.
    Yield,
}

impl From<WaitPolicy> for Wait {
    fn from(how: WaitPolicy) -> Self {
        match how {
            WaitPolicy::Adaptive => Self::Adaptive,
            WaitPolicy::Spin => Self::Spin(None),
            WaitPolicy::Park => Self::Park,
            WaitPolicy::Yield => Self::Yield,
        }
    }
}

impl Flags {
    /// Returns the text that `--man` or `--completions` prints, if one of them was given.
    pub(crate) fn printed(&self) -> std::io::Result<Option<Vec<u8>>> {
        let (mut command, mut text) = (Self::command(), Vec::new());
        if self.man {
            clap_mangen::Man::new(command).section("8").render(&mut text)?;
        } else if let Some(shell) = self.completions {
            clap_complete::generate(shell, &mut command, "sojourn-udpd", &mut text);
        } else {
            return Ok(None);
        }
        Ok(Some(text))
    }
}

#[cfg(test)]
#[path = "flags_tests.rs"]
mod tests;
