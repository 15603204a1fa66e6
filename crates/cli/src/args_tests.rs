//! Tests of the command line's definition: flags, pages that name everything, wrong arguments.
//!
//! Not here: the commands themselves.

use crate::args::{Cli, Command, Run, report};
use clap::{CommandFactory as _, Parser as _};
use sojourn_session::config::{Flag, SETTINGS};
use std::ffi::OsString;

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
        assert_eq!(
            run.settings.flags().collect::<Vec<_>>(),
            [Flag { name: &setting.flag(), value: "x" }]
        );
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
    assert_eq!(run.settings.flags().collect::<Vec<_>>(), [Flag { name: "strict", value: "on" }]);
    assert!(!run.quiet);
}

#[test]
fn dashes_end_the_flags() {
    let run = run(&["--move-after-calls", "3", "--pipe=off", "--", "--odd", "--"]);
    assert_eq!(run.command, ["--odd", "--"]);
    let flags: Vec<_> = run.settings.flags().collect();
    let flag = |name, value| Flag { name, value };
    assert_eq!(flags, [flag("pipe", "off"), flag("move-after-calls", "3")]);
}

#[test]
fn wrong_arguments_are_refused() {
    for words in [
        &["sojourn"][..],
        &["sojourn", "run"],
        &["sojourn", "run", "--no-such", "true"],
        &["sojourn", "ss", "--kind", "sctp"],
        &["sojourn", "move", "x", "kernel"],
        &["sojourn", "move", "1", "disk"],
        &["sojourn", "move", "@x", "library"],
        &["sojourn", "top", "-d", "0"],
        &["sojourn", "capture", "--duration", "-1"],
        &["sojourn", "capture", "--port", "65536"],
        &["sojourn", "time"],
        &["sojourn", "time", "@1", "--", "true"],
        &["sojourn", "time", "--pid", "1", "@1"],
        &["sojourn", "time", "x"],
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
