//! Arguments of the command; help, completions and man page come from this one definition.

mod generate;
mod show;
mod tools;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

/// Compiles COM and DCE interface definitions to Rust and C stubs for Sojourn IPC.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Without a command, FILE is compiled: sojourn-idl calc.idl --rust")]
pub(crate) struct Cli {
    #[command(flatten)]
    generate: Generate,
    #[command(subcommand)]
    command: Option<Command>,
}

/// What to compile and where to.
#[derive(Args, Debug)]
struct Generate {
    #[command(flatten)]
    input: Input,
    /// Generate Rust (if neither --rust nor --c is given: both)
    #[arg(long)]
    rust: bool,
    /// Generate C
    #[arg(long)]
    c: bool,
    /// Generate the client side (if none of the three is given: everything)
    #[arg(long)]
    client: bool,
    /// Generate the server side
    #[arg(long)]
    server: bool,
    /// Generate types and declarations
    #[arg(long)]
    header: bool,
    /// Generate tests too: random calls, and mutated messages that must be refused
    #[arg(long)]
    tests: bool,
    /// Folder for the generated files
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    out_dir: PathBuf,
    /// Write a rule for make that names every file read
    #[arg(long, value_name = "FILE")]
    depend: Option<PathBuf>,
    /// Explain a diagnostic: --explain SJ0411
    #[arg(long, value_name = "CODE", exclusive = true)]
    explain: Option<String>,
    /// List all diagnostics
    #[arg(long, exclusive = true)]
    list_codes: bool,
}

/// An IDL file and how to read it.
#[derive(Args, Debug)]
struct Input {
    /// The IDL file
    #[arg(value_name = "FILE", required_unless_present_any = ["explain", "list_codes"])]
    file: Option<PathBuf>,
    #[command(flatten)]
    reading: Reading,
}

/// How to read IDL files.
#[derive(Args, Debug)]
struct Reading {
    /// Application configuration file (default: FILE with the extension .acf, if it exists)
    #[arg(long, value_name = "FILE")]
    acf: Option<PathBuf>,
    /// Use no application configuration file
    #[arg(long, conflicts_with = "acf")]
    no_acf: bool,
    /// Look for imported files in this folder too
    #[arg(short = 'I', value_name = "DIR")]
    include_dirs: Vec<PathBuf>,
    /// max_is is a count, as in DICE, not the last index
    #[arg(long)]
    max_is_count: bool,
    /// Print diagnostics as JSON, one object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Command {
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
    /// Checks that an interface still keeps the promises of a dump
    Check {
        /// The IDL file
        file: PathBuf,
        #[command(flatten)]
        reading: Reading,
        /// The dump
        #[arg(long, value_name = "DUMP")]
        against: PathBuf,
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

/// Does what the arguments say. `Ok(false)`: mistakes have been reported.
///
/// # Errors
/// Failures of the system.
pub(crate) fn run(cli: Cli) -> Result<bool> {
    match cli.command {
        None if cli.generate.list_codes => tools::list_codes(),
        None => match &cli.generate.explain {
            Some(code) => tools::explain(code),
            None => generate::run(&cli.generate),
        },
        Some(Command::Fmt { files, check }) => tools::format(&files, check),
        Some(Command::Doc { file, reading, html, output }) => {
            tools::document(&file, &reading, html, output.as_deref())
        }
        Some(Command::Dump { file, reading, output }) => {
            tools::dump(&file, &reading, output.as_deref())
        }
        Some(Command::Check { file, reading, against }) => tools::check(&file, &reading, &against),
        Some(Command::Completions { shell }) => tools::completions(shell),
        Some(Command::Man) => tools::man(),
    }
}
