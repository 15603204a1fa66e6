//! The command line; help, completions and manual pages come from this one definition.
//!
//! The flags of `run` are made from the table of settings (`sojourn_session::config::SETTINGS`), so
//! a setting is added there and nowhere else. Not here: what the commands do.

use crate::failure::{RUN_FAILED, USAGE};
use crate::sessions::Name;
use clap::builder::StyledStr;
use clap::{Arg, ArgAction, ArgMatches, Args, Parser, Subcommand, ValueEnum};
use sojourn_session::config::{Flag, SETTINGS};
use sojourn_session::{KindT, ProcessId};
use std::ffi::{OsString, c_int};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

const STATUSES: &str = "\
Exit status: that of the command; 1 if it could not be done, 2 for wrong arguments.
`sojourn run` ends with the program's own status, or as env(1) does: 125 if Sojourn itself failed,
126 if the program cannot be run, 127 if there is none.

`sojourn help COMMAND` says more. Settings: flags of `run`, variables SOJOURN_NAME, ~/.config/sojourn.toml,
/etc/sojourn.toml; the first of these that has one counts.";

/// Runs programs so that their connections on this host go through shared memory, and shows what
/// became of them
#[derive(Debug, Parser)]
#[command(name = "sojourn", version, after_help = STATUSES, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a program under Sojourn
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Lists sessions: where each is, and why it is not accelerated
    Ss(Ss),
    /// Shows the server's counters
    Stats(Report),
    /// Moves a session by hand: home to the kernel, or out of it
    #[command(after_help = MOVE_HELP)]
    Move(Move),
    /// Shows the busiest sessions again and again
    Top(Top),
    /// Writes the packets of sessions that are away from the kernel, as pcapng
    #[command(after_help = CAPTURE_HELP)]
    Capture(Capture),
    /// Shows how long each layer of the network stack takes, for a session or a program's sessions
    #[command(after_help = TIME_HELP)]
    Time(Time),
    /// Says what this machine can do, and what to do where it cannot
    Doctor(Report),
    /// Starts or stops this user's session server, or asks how it is
    #[command(subcommand)]
    Server(Server),
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages
    Man {
        /// Where to; made if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

const RUN_HELP: &str = "\
The program keeps its process number, its terminal and its descriptors: `sojourn` becomes it. This user's session
server is started if none answers. A program that cannot be preloaded (static, Go, set-user-ID, ...) is
run plainly, and one line on standard error says why; with --strict that is an error.

Exit status: the program's own; 125 Sojourn itself failed, 126 the program cannot be run, 127 there is none.";

const MOVE_HELP: &str = "\
To the kernel: what is on its way arrives, nothing is lost; the session may leave again when it is hot. Out of the kernel: the programs
that hold its ends under Sojourn are asked to offer it now, hot or not; if it stays the reason is said, and the exit status is 1.

    sojourn ss                             # the first column names sessions
    sojourn move 4611686020574871553 kernel
    sojourn move @81273 library";

const CAPTURE_HELP: &str = "\
Both directions of sessions with other hosts, as they are on the interface, from when they leave the kernel to when they
come home; sessions that leave while it runs are included. Each packet has its direction, its time in nanoseconds and a comment
that names the program. Ctrl-C ends it. Takes root (CAP_NET_RAW, and CAP_SYS_ADMIN or a session server that tells).

    sojourn capture -w away.pcapng
    sojourn capture --port 6379 | tshark -r -";

const TIME_HELP: &str = "\
Send: entry and copy in, tcp/udp output, ip output, link output. Receive: device, filter, ip in, tcp/udp in, wake-up, copy out and exit.
It works on any program, under Sojourn or not, for TCP, UDP, Unix sockets and pipes. The stamps' own time is measured and taken off.
A program's report goes to standard error, and the exit status is the program's. Takes root (CAP_BPF, CAP_PERFMON) for what the kernel does;
a session that is away is stamped by its program.

    sojourn time -- redis-benchmark -t get -n 10000
    sojourn time @13394771                 # a socket, by its inode: `ss -e` and `sojourn ss` show these
    sojourn time --pid 1234 --duration 10 --svg where.svg";

/// `run`.
#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Say nothing if the program runs without acceleration
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// The program, found as the shell would find it, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

/// A setting that is given as a flag.
#[derive(Clone, Debug)]
struct GivenSetting {
    /// The flag's name, without dashes.
    flag: String,
    value: String,
}

/// Settings as flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Vec<GivenSetting>);

impl Settings {
    /// As `sojourn_session::config::load` takes them.
    pub(crate) fn flags(&self) -> impl Iterator<Item = Flag<'_>> {
        self.0.iter().map(|given| Flag { name: &given.flag, value: &given.value })
    }
}

impl Args for Settings {
    fn augment_args(mut command: clap::Command) -> clap::Command {
        for setting in SETTINGS {
            let mut arg = Arg::new(setting.name)
                .long(setting.flag())
                .value_name(setting.metavar)
                .help(StyledStr::from(setting.help))
                .action(ArgAction::Set)
                .help_heading("Settings");
            if setting.metavar.ends_with("on|off") {
                // Alone it switches on, and never takes the program's name for its value.
                arg = arg.num_args(0..=1).require_equals(true).default_missing_value("on");
            }
            command = command.arg(arg);
        }
        command
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let of = |name: &str| matches.get_one::<String>(name).cloned();
        let given = SETTINGS.iter().filter_map(|setting| {
            Some(GivenSetting { flag: setting.flag(), value: of(setting.name)? })
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Which server to ask.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Ask the session server there: a path, or @name (default: the configuration's, else the usual
    /// places)
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) server: Option<String>,
}

/// How to report.
#[derive(Args, Debug)]
pub(crate) struct Report {
    /// JSON instead of text; docs/reference/json.md has the schema
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) server_args: ServerArgs,
}

/// A kind of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// TCP connections
    Tcp,
    /// Unix stream connections
    Unix,
    /// Pipes
    Pipe,
    /// UDP sockets
    Udp,
}

impl Kind {
    /// The same for the interface.
    pub(crate) fn of_interface(self) -> KindT {
        match self {
            Self::Tcp => KindT::Tcp,
            Self::Unix => KindT::Unix,
            Self::Pipe => KindT::Pipe,
            Self::Udp => KindT::Udp,
        }
    }
}

/// Which sessions.
#[derive(Args, Clone, Debug)]
pub(crate) struct Filter {
    /// Only of this kind
    #[arg(long, value_enum)]
    pub(crate) kind: Option<Kind>,
    /// Only of this process, or with it
    #[arg(long, value_name = "N")]
    pub(crate) pid: Option<ProcessId>,
}

/// `ss`.
#[derive(Args, Debug)]
pub(crate) struct Ss {
    /// Also sockets that are not connected (listening ones and others)
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Below each session that is not accelerated, a sentence that says why
    #[arg(short, long)]
    pub(crate) why: bool,
    /// Below each session with another host that is away, how its connection is: windows,
    /// round-trip time, losses
    #[arg(short = 'i', long)]
    pub(crate) details: bool,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) report: Report,
}

/// `top`.
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Seconds between two looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) delay: u32,
    /// End after so many looks
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) count: Option<u32>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    #[command(flatten)]
    pub(crate) server_args: ServerArgs,
}

/// `capture`.
#[derive(Args, Debug)]
pub(crate) struct Capture {
    /// Only from this interface; may be given several times (default: every one that a session is
    /// away on, from then on)
    #[arg(short, long = "interface", value_name = "INTERFACE")]
    pub(crate) interfaces: Vec<String>,
    /// Where to; - is standard output, and the default
    #[arg(short = 'w', long = "write", value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Only this session, by its number from the first column of `sojourn ss`
    #[arg(long, value_name = "STREAM")]
    pub(crate) session: Option<u64>,
    /// Only sessions of this process
    #[arg(long, value_name = "N")]
    pub(crate) pid: Option<ProcessId>,
    /// Only sessions with this port at either end
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<u16>,
    /// Only sessions with this address at either end
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<IpAddr>,
    /// End after so many packets
    #[arg(short, long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) server_args: ServerArgs,
}

/// `time`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("whose").required(true).args(["session", "pid", "command"]))]
pub(crate) struct Time {
    /// A session: @ and the inode of its socket or pipe, or its number from the first column of
    /// `sojourn ss` if it is away
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<Name>,
    /// All sessions of this running process, and of the processes that it makes from now on
    #[arg(long, value_name = "N")]
    pub(crate) pid: Option<ProcessId>,
    /// End after so many seconds (default: with the program; 5 of what runs already)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) duration: Option<Duration>,
    /// Show what is known so far again and again, every so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) interval: Option<u32>,
    /// Show so many sessions, those with the most messages first
    #[arg(short = 'n', long, value_name = "N", default_value_t = 8)]
    pub(crate) sessions: usize,
    /// JSON instead of text; docs/reference/json.md has the schema
    #[arg(long)]
    pub(crate) json: bool,
    /// Also draw a picture, a bar for each home
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write the report there instead
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server_args: ServerArgs,
    /// A program to run, and its arguments
    #[arg(value_name = "PROGRAM", last = true)]
    pub(crate) command: Vec<OsString>,
}

/// A span of time, as people write it.
fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

/// `move`.
#[derive(Args, Debug)]
pub(crate) struct Move {
    /// Its name, from the first column of `sojourn ss`: a number if it is away, @ and the inode if
    /// it is in the kernel
    #[arg(value_name = "SESSION")]
    pub(crate) session: Name,
    /// Where to
    #[arg(value_enum)]
    pub(crate) home: Home,
    #[command(flatten)]
    pub(crate) server_args: ServerArgs,
}

/// A home to move to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Home {
    /// Home, to the kernel
    Kernel,
    /// To the programs' own memory (sessions do that by themselves when they are hot)
    Library,
    /// To the protocol server: TCP sessions with other hosts
    Server,
}

/// `server`.
#[derive(Debug, Subcommand)]
pub(crate) enum Server {
    /// Starts a session server, unless one answers already: where --server or SOJOURN_SERVER says,
    /// else this user's
    Start {
        /// The server ends when nobody has used it for so long (default: never)
        #[arg(long, value_name = "SECONDS")]
        idle_exit: Option<u32>,
        /// Serve there: a path, or @name (default: the configuration's, else this user's place)
        #[arg(long, value_name = "ADDRESS")]
        server: Option<String>,
    },
    /// Asks the server to end when the last program under Sojourn has ended
    Stop {
        /// Now; sessions go on without it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        server_args: ServerArgs,
    },
    /// Says which server answers, and how it is (exit status 1: none)
    Status(Report),
}

/// Says what is wrong with the arguments, or helps, and answers the exit status. Wrong arguments of
/// `run` end with its own status, so that they are never taken for the program's.
pub(crate) fn report(error: &clap::Error, words: &[OsString]) -> c_int {
    let _ = error.print();
    let is_run = words.get(1).is_some_and(|word| word == "run");
    match error.exit_code() {
        0 => 0,
        _ if is_run => RUN_FAILED.into(),
        _ => USAGE.into(),
    }
}
