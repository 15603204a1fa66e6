//! `sojourn doctor`: checks everything that Sojourn needs of this machine, and gives advice.
//!
//! Each check returns one [`Item`]. The checks are in `kernel` (features), `machine` (limits,
//! processors), `parts` (library, server), `streams` (stdio), `rewriting` and `network` (sessions
//! with other hosts; `attached` lists the programs in the packet path). The checks change nothing,
//! and none takes longer than two seconds.

mod attached;
mod item;
mod kernel;
mod machine;
mod network;
mod parts;
mod rewriting;
mod settings;
mod streams;

use crate::args::Report;
use crate::failure::FAILED;
use crate::output::{Table, print, print_json, printable};
use anyhow::Result;
use attached::Attached;
use item::{Item, State};
use serde::Serialize;
use settings::Value;
use sojourn_session::config;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Findings {
    version: u32,
    state: State,
    items: Vec<Item>,
    /// Sojourn's programs in the packet path; null if this user may not list them.
    attached: Option<Vec<Attached>>,
    configuration: Vec<Value>,
}

/// Runs all checks and prints the results. Returns the exit status: 1 if something is missing.
pub(crate) fn doctor(options: &Report) -> Result<u8> {
    let configuration = settings::in_force();
    let mut items = vec![
        kernel::release(),
        kernel::futex_waitv(),
        kernel::events(),
        kernel::seals(),
        kernel::tables(),
        kernel::unix_diag(),
        kernel::processes(),
        machine::processors(),
        machine::wake_cost(),
        machine::open_files(),
        machine::locked_memory(),
    ];
    let wants_rewriting = config::load([], |name| std::env::var_os(name));
    items.push(rewriting::rewriting(wants_rewriting.is_ok_and(|config| config.rewrite)));
    items.extend(parts::library());
    items.extend(parts::server(&options.server_args));
    let network = network::findings(&options.server_args);
    items.extend(network.items);
    let names = std::env::vars_os().map(|(name, _)| name);
    items.extend(config::misspelt(names).map(|error| {
        Item::limited("variable", error.to_string(), "correct or unset it: it counts for nothing")
    }));
    let configuration = match configuration {
        Ok(values) => values,
        Err(error) => {
            let advice = "correct it: `sojourn run` does nothing before";
            items.push(Item::missing("configuration", error.to_string(), advice));
            Vec::new()
        }
    };
    let state = items.iter().map(|item| item.state).max().unwrap_or(State::Ok);
    let findings = Findings { version: 1, state, items, attached: network.attached, configuration };
    match options.json {
        true => print_json(&findings)?,
        false => print(&text(&findings))?,
    }
    Ok(if state == State::Missing { FAILED } else { 0 })
}

fn text(findings: &Findings) -> String {
    let mut text = String::new();
    for item in &findings.items {
        let state = match item.state {
            State::Ok => "ok",
            State::Limited => "limited",
            State::Missing => "MISSING",
        };
        text.push_str(&format!("{state:8} {:15} {}\n", item.name, printable(&item.found)));
        if !item.advice.is_empty() {
            text.push_str(&format!("{:24} → {}\n", "", printable(&item.advice)));
        }
    }
    if let Some(attached) = findings.attached.as_ref().filter(|attached| !attached.is_empty()) {
        text.push('\n');
        text.push_str(&attached::table(attached));
    }
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for value in &findings.configuration {
        let shown = if value.value.is_empty() { "-".into() } else { value.value.clone() };
        table.row(vec![value.setting.into(), shown, value.from.clone()]);
    }
    if !findings.configuration.is_empty() {
        text.push('\n');
        text.push_str(&table.text());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        let items =
            vec![Item::ok("kernel", "6.1"), Item::missing("library", "not there", "install it")];
        let value = Value { setting: "tcp", value: "true".into(), from: "default".into() };
        let (version, configuration) = (1, vec![value]);
        Findings { version, state: State::Missing, items, attached: None, configuration }
    }

    #[test]
    fn json_keeps_its_schema() {
        let json = serde_json::to_string(&findings()).unwrap();
        assert_eq!(
            json,
            r#"{"version":1,"state":"missing","items":[{"name":"kernel","state":"ok","found":"6.1","advice":""},{"name":"library","state":"missing","found":"not there","advice":"install it"}],"attached":null,"configuration":[{"setting":"tcp","value":"true","from":"default"}]}"#
        );
    }

    #[test]
    fn text_says_what_to_do() {
        let text = text(&findings());
        assert!(text.contains("MISSING  library") && text.contains("→ install it"), "{text}");
        assert!(text.contains("tcp      true   default"), "{text}");
    }

    #[test]
    fn what_this_kernel_has_is_seen() {
        // Every machine that can run the tests has these features.
        assert_eq!(kernel::events().state, State::Ok);
        assert_eq!(kernel::seals().state, State::Ok);
        assert_ne!(kernel::processes().state, State::Missing);
        assert_ne!(machine::open_files().state, State::Missing);
    }
}
