//! The command line; help, completions and manual pages come from this one definition.
//!
//! The flags of `run` are made from the table of settings (`sojourn_session::config::SETTINGS`), so
//! a setting is added there and nowhere else. Not here: what the commands do.

use crate::failure::{RUN_FAILED, USAGE};
use crate::sessions::Name;
use clap::builder::StyledStr;
use clap::{Arg, ArgAction, ArgMatches, Args, Parser, Subcommand, ValueEnum};
use sojourn_session::KindT;
use sojourn_session::config::SETTINGS;
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

/// Settings as flags: name without dashes, and value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings(Vec<(String, String)>);

impl Settings {
    /// As `sojourn_session::config::load` takes them.
    pub(crate) fn flags(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(flag, value)| (flag.as_str(), value.as_str()))
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
            if setting.metavar == "on|off" {
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
        let given = SETTINGS.iter().filter_map(|setting| Some((setting.flag(), of(setting.name)?)));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Which server to ask.
#[derive(Args, Debug)]
pub(crate) struct Where {
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
    pub(crate) place: Where,
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
    pub(crate) pid: Option<u32>,
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
    pub(crate) place: Where,
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
    pub(crate) pid: Option<u32>,
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
    pub(crate) place: Where,
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
    pub(crate) place: Where,
}

/// A home to move to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Home {
    /// Home, to the kernel
    Kernel,
    /// To the programs' own memory (sessions do that by themselves when they are hot)
    Library,
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
        place: Where,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn run(words: &[&str]) -> Run {
        let all = ["sojourn", "run"].iter().chain(words);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Run(run) => run,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_is_a_flag() {
        for setting in SETTINGS {
            let flag = format!("--{}=x", setting.flag());
            let run = run(&[&flag, "true"]);
            assert_eq!(run.settings.flags().collect::<Vec<_>>(), [(setting.flag().as_str(), "x")]);
        }
    }

    #[test]
    fn the_page_for_users_names_every_command() {
        let page = include_str!("../../../docs/use/cli.md");
        for command in Cli::command().get_subcommands() {
            let name = format!("sojourn {}", command.get_name());
            assert!(page.contains(&name), "docs/use/cli.md: {name}");
        }
    }

    #[test]
    fn the_page_of_settings_names_every_setting_once() {
        let page = include_str!("../../../docs/use/settings.md");
        for setting in SETTINGS {
            let rows = page.lines().filter(|line| line.starts_with("| `"));
            let is_it = |line: &&str| line.starts_with(&format!("| `{}` |", setting.name));
            assert_eq!(rows.filter(is_it).count(), 1, "docs/use/settings.md: {}", setting.name);
        }
    }

    #[test]
    fn the_page_for_troubleshooting_has_a_section_for_every_reason() {
        let page = include_str!("../../../docs/use/troubleshooting.md");
        for words in sojourn_session::reason::ALL {
            let heading = format!("\n### `{}`\n", words.word);
            assert!(page.contains(&heading), "docs/use/troubleshooting.md: {}", words.word);
        }
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let run = run(&["--strict", "redis-server", "--strict", "-q", "--", "--port", "1"]);
        assert_eq!(run.command, ["redis-server", "--strict", "-q", "--", "--port", "1"]);
        assert_eq!(run.settings.flags().collect::<Vec<_>>(), [("strict", "on")]);
        assert!(!run.quiet);
    }

    #[test]
    fn dashes_end_the_flags() {
        let run = run(&["--move-after-calls", "3", "--pipe=off", "--", "--odd", "--"]);
        assert_eq!(run.command, ["--odd", "--"]);
        let flags: Vec<_> = run.settings.flags().collect();
        assert_eq!(flags, [("pipe", "off"), ("move-after-calls", "3")]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for words in [
            &["sojourn"][..],
            &["sojourn", "run"],
            &["sojourn", "run", "--no-such", "true"],
            &["sojourn", "ss", "--kind", "sctp"],
            &["sojourn", "move", "x", "kernel"],
            &["sojourn", "move", "1", "server"],
            &["sojourn", "move", "@x", "library"],
            &["sojourn", "top", "-d", "0"],
            &["sojourn", "capture", "--duration", "-1"],
            &["sojourn", "capture", "--port", "65536"],
        ] {
            assert!(Cli::try_parse_from(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn wrong_arguments_of_run_have_a_status_of_their_own() {
        let status = |words: &[&str]| {
            let error = Cli::try_parse_from(words).unwrap_err();
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            match error.exit_code() {
                0 => 0,
                _ => report(&error, &words),
            }
        };
        assert_eq!(status(&["sojourn", "run", "--no-such"]), 125);
        assert_eq!(status(&["sojourn", "ss", "--no-such"]), 2);
        assert_eq!(status(&["sojourn", "--version"]), 0);
    }
}
