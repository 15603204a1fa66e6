//! The setting `follow`: programs that are started with an emptied environment.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::process::Command;

/// Runs each way of starting a program with that setting. Returns two lines for each way: without
/// environment variables, and with some, among them another library to preload.
fn said(setting: Option<&str>, ways: &[&str]) -> Vec<String> {
    let program = common::build("follow", setting.unwrap_or("unset"));
    let mut command = Command::new(program);
    command.args(ways);
    if let Some(setting) = setting {
        command.env("SOJOURN_FOLLOW", setting);
    }
    command.env("SOJOURN_MOVE_AFTER_CALLS", "16");
    let output = common::run(common::preloaded(command));
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

const WAYS: [&str; 7] = ["execve", "execvpe", "spawn", "spawnp", "vfork", "cleared", "written"];

#[test]
fn the_library_comes_back_where_that_is_set() {
    for setting in ["same-user", "on"] {
        let lines = said(Some(setting), &WAYS);
        let mut lines = lines.iter();
        for way in WAYS {
            assert_eq!(lines.next().unwrap(), &format!("{way}: with 1 0 one"), "{setting}");
            // `execv` and `execvp` take no list of variables.
            let other = if ["cleared", "written"].contains(&way) { "0 one" } else { "1 both" };
            assert_eq!(lines.next().unwrap(), &format!("{way}: with 1 {other}"), "{setting}");
        }
    }
}

#[test]
fn it_does_not_where_it_is_not_set() {
    for setting in [None, Some("off")] {
        for line in said(setting, &WAYS) {
            assert!(line.contains(": without 0 "), "{setting:?}: {line}");
        }
    }
}

#[test]
fn another_user_is_followed_only_if_that_is_said() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: this takes root");
        return;
    }
    assert_eq!(said(Some("same-user"), &["user"])[0], "user: without 0 0 one");
    assert_eq!(said(Some("on"), &["user"])[0], "user: with 1 0 one");
}

#[test]
fn bad_pointers_are_the_kernels_to_refuse() {
    for line in said(Some("on"), &["bad", "badlist"]) {
        assert!(line.contains(": with 1 0 one"), "{line}");
    }
}
