//! Arguments of the command; help, completions and man page come from this one definition.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Compiles COM and DCE interface definitions to Rust and C stubs for Sojourn IPC.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Without a command, FILE is compiled: sojourn-idl calc.idl --rust")]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(super) generate: Generate,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

/// What to compile and where to.
#[derive(Args, Debug)]
pub(super) struct Generate {
    #[command(flatten)]
    pub(super) input: Input,
    /// Generate Rust (if neither --rust nor --c is given: both)
    #[arg(long)]
    pub(super) rust: bool,
    /// Generate C
    #[arg(long)]
    pub(super) c: bool,
    /// Generate the client side (if none of the three is given: everything)
    #[arg(long)]
    pub(super) client: bool,
    /// Generate the server side
    #[arg(long)]
    pub(super) server: bool,
    /// Generate types and declarations
    #[arg(long)]
    pub(super) header: bool,
    /// Generate tests too: random calls, and mutated messages that must be refused
    #[arg(long)]
    pub(super) tests: bool,
    /// Folder for the generated files
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub(super) out_dir: PathBuf,
    /// Write a rule for make that names every file read
    #[arg(long, value_name = "FILE")]
    pub(super) depend: Option<PathBuf>,
    /// Explain a diagnostic: --explain SJ0411
    #[arg(long, value_name = "CODE", exclusive = true)]
    pub(super) explain: Option<String>,
    /// List all diagnostics
    #[arg(long, exclusive = true)]
    pub(super) list_codes: bool,
}

/// An IDL file and how to read it.
#[derive(Args, Debug)]
pub(super) struct Input {
    /// The IDL file
    #[arg(value_name = "FILE", required_unless_present_any = ["explain", "list_codes"])]
    pub(super) file: Option<PathBuf>,
    #[command(flatten)]
    pub(super) reading: Reading,
}

/// How to read IDL files.
#[derive(Args, Debug)]
pub(super) struct Reading {
    /// Application configuration file (default: FILE with the extension .acf, if it exists)
    #[arg(long, value_name = "FILE")]
    pub(super) acf: Option<PathBuf>,
    /// Use no application configuration file
    #[arg(long, conflicts_with = "acf")]
    pub(super) no_acf: bool,
    /// Look for imported files in this folder too
    #[arg(short = 'I', value_name = "DIR")]
    pub(super) include_dirs: Vec<PathBuf>,
    /// max_is is a count, as in DICE, not the last index
    #[arg(long)]
    pub(super) max_is_count: bool,
    /// Print diagnostics as JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Formats IDL and ACF files in place
    Fmt {
        /// The files; `-` reads standard input and writes standard output
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Write nothing; fail if a file is not formatted
        #[arg(long)]
        check: bool,
    },
    /// Writes documentation made from the comments of an IDL file
    Doc {
        /// The IDL file
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// HTML instead of Markdown
        #[arg(long)]
        html: bool,
        /// Where to write (default: standard output)
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Writes what an interface promises on the wire, to be frozen
    Dump {
        /// The IDL file
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// Where to write (default: standard output)
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Lists which operations have stubs and why others have none; with --against, checks that an
    /// interface still keeps the promises of a dump
    Check {
        /// The IDL file
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// The dump
        #[arg(long, value_name = "DUMP")]
        against: Option<PathBuf>,
    },
    /// Prints completions for a shell
    #[command(hide = true)]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints the man page
    #[command(hide = true)]
    Man,
}
