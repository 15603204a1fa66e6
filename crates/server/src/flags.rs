//! The command line of `sojournd`; its manual page and completions come from this one definition.

use clap::{CommandFactory as _, Parser};
use sojourn_server::holders::FifoHolders;
use sojourn_server::log::Level;
use sojourn_server::network::{DriverWay, Network};

/// The session server of Sojourn: pairs the ends of sessions so that programs of this host can talk
/// through shared memory.
#[derive(Debug, Parser)]
#[command(name = "sojournd", version)]
pub(crate) struct Flags {
    /// Serve this user's programs, and root's, at $XDG_RUNTIME_DIR/sojourn/server or
    /// /tmp/sojourn-UID/server, for root at /run/sojourn-root/server. The default.
    #[arg(long, conflicts_with = "system")]
    pub(crate) user: bool,
    /// Serve everybody, at /run/sojourn/server or the address that is given. Only root can.
    #[arg(long)]
    pub(crate) system: bool,
    /// Serve at this address instead: a path, @NAME, or fd:N.
    #[arg(long, conflicts_with = "user")]
    pub(crate) address: Option<String>,
    /// End after so many seconds without a client, and leave the terminal's session at once: for
    /// servers that are started when they are needed. Without a number 10.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "10")]
    pub(crate) idle_exit: Option<f64>,
    /// Also carry TCP and UDP sessions with other hosts, those of this network namespace. Takes
    /// CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, and CAP_SYS_ADMIN for ports; whatever else the
    /// server does not need it gives up. Every program gets its packets through a port (a veth pair
    /// of its own); with =rights those that show a packet socket of their own get one on the
    /// interface. See docs/understand/moves.md.
    #[arg(long, value_name = "WAY", num_args = 0..=1, require_equals = true, default_missing_value = "ports")]
    pub(crate) network: Option<NetworkArgument>,
    /// What becomes of sessions with other hosts about whose packets the host's packet filters
    /// (nftables, iptables), IPsec policies or control groups' eBPF programs could say something:
    /// respect leaves them in the kernel, ignore carries them past these. Only with --network.
    #[arg(long, value_name = "HOW", default_value = "respect", requires = "network")]
    pub(crate) firewall: Filtered,
    /// Programs send short frames of such sessions by AF_XDP sockets, which takes less of the
    /// kernel. What is sent so passes the host's queueing disciplines and the programs of TC by,
    /// and tcpdump on this host does not see it; what arrives it sees as ever. Only with --network,
    /// and not with its driver.
    #[arg(long, requires = "network")]
    pub(crate) xdp: bool,
    /// Also join sessions whose two ends are in one process. For test suites that talk to
    /// themselves.
    #[arg(long)]
    pub(crate) same_process: bool,
    /// Who may hold an end of a FIFO although this server may not look into it: all processes of
    /// the host (such sessions stay in the kernel), or, as of pipes that never had a name, only kin
    /// of the program whose session moves. See docs/understand/streams.md.
    #[arg(long, value_name = "WHO", default_value = "all")]
    pub(crate) fifos: Holders,
    /// Say no more than this on standard error: error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: Level,
    /// Print the manual page.
    #[arg(long, exclusive = true)]
    pub(crate) man: bool,
    /// Print completions for a shell.
    #[arg(long, value_name = "SHELL", exclusive = true)]
    pub(crate) completions: Option<clap_complete::Shell>,
}

/// What `--firewall` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Filtered {
    /// Sessions that rules concern stay in the kernel.
    Respect,
    /// They are carried past the rules.
    Ignore,
}

/// What `--fifos` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Holders {
    /// Any process.
    All,
    /// Kin only.
    Kin,
}

impl From<Holders> for FifoHolders {
    fn from(who: Holders) -> Self {
        match who {
            Holders::All => Self::All,
            Holders::Kin => Self::Kin,
        }
    }
}

/// What `--network` says.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum NetworkArgument {
    /// A port for everybody.
    Ports,
    /// A packet socket on the interface for programs with CAP_NET_RAW, a port for others.
    Rights,
    /// As rights, with a system call for every packet instead of a mapped ring: for measurements.
    Messages,
    /// As rights, but packet sockets are held by sojourn-driver, with which programs exchange
    /// frames by calls. Not for everybody's server.
    Driver,
    /// The same, with each frame in memory of its own.
    DriverMemory,
}

impl From<NetworkArgument> for Network {
    fn from(way: NetworkArgument) -> Self {
        match way {
            NetworkArgument::Rights => Self::Rights,
            NetworkArgument::Ports => Self::Ports,
            NetworkArgument::Messages => Self::Messages,
            NetworkArgument::Driver => Self::Driver(DriverWay::Message),
            NetworkArgument::DriverMemory => Self::Driver(DriverWay::Memory),
        }
    }
}

impl Flags {
    /// What `--man` or `--completions` prints, if one of them was given.
    pub(crate) fn printed(&self) -> std::io::Result<Option<Vec<u8>>> {
        let (mut command, mut text) = (Self::command(), Vec::new());
        if self.man {
            clap_mangen::Man::new(command).section("8").render(&mut text)?;
        } else if let Some(shell) = self.completions {
            clap_complete::generate(shell, &mut command, "sojournd", &mut text);
        } else {
            return Ok(None);
        }
        Ok(Some(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_page_and_completions_know_every_option() {
        let printed = |word: &[&str]| {
            let words = ["sojournd"].iter().chain(word);
            String::from_utf8(Flags::parse_from(words).printed().unwrap().unwrap()).unwrap()
        };
        let man = printed(&["--man"]).replace("\\-", "-");
        let bash = printed(&["--completions", "bash"]);
        for option in Flags::command().get_arguments().filter_map(|option| option.get_long()) {
            let option = format!("--{option}");
            assert!(man.contains(&option), "{option}: {man}");
            assert!(bash.contains(&option), "{option}: {bash}");
        }
        assert!(man.contains("sojournd 8"), "{man}");
        assert!(Flags::parse_from(["sojournd"]).printed().unwrap().is_none());
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Flags::command().debug_assert();
    }
}
