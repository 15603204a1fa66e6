//! `sojourn ss`: the list of sessions.

use crate::args::Ss;
use crate::client::Client;
use crate::output::{Table, bytes, note, print, print_json, printable, span};
use crate::sessions::{PROC, Row, gather};
use crate::terminal::terminal;
use anyhow::Result;
use serde::Serialize;
use std::path::Path;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct List {
    version: u32,
    server: Option<String>,
    sessions: Vec<Row>,
}

/// Prints the list. Without a server it is what `/proc` shows.
pub(crate) fn ss(options: &Ss) -> Result<()> {
    let (mut client, silent) = match Client::connect(&options.report.server_args) {
        Ok(client) => (Some(client), None),
        // A server that the user has named must answer. Otherwise the list from `/proc` is enough.
        Err(error) if options.report.server_args.server.is_some() => return Err(error),
        Err(error) => (None, Some(error)),
    };
    let sessions = gather(client.as_mut(), &options.filter, options.all)?;
    let server = client.map(|client| client.address);
    if options.report.json {
        return print_json(&List { version: 1, server, sessions });
    }
    if let Some(error) = silent {
        note(&format!("only what /proc shows is listed: {error:#}"));
    }
    if let Err(error) = std::fs::read_link(Path::new(PROC).join("self")) {
        note(&format!(
            "{PROC}: {error}: sessions that no server knows cannot be seen, nor why they stay in the kernel; mount {PROC}"
        ));
    }
    let columns = terminal().map(|terminal| terminal.columns);
    print(&text(&sessions, options.why, options.details, columns))
}

/// Formats the list, headings first. `why` adds a sentence below each session that is in the
/// kernel, `details` the TCP state below each connection that is away. Long addresses are shortened
/// to fit a terminal of `columns` columns.
fn text(rows: &[Row], why: bool, details: bool, columns: Option<usize>) -> String {
    let mut table = Table::new(&[
        ">SESSION",
        "KIND",
        "HOME",
        "REASON",
        ">PID",
        "PROGRAM",
        "~FROM",
        "~TO",
        "PEER",
        ">SENT",
        ">RECEIVED",
        ">SINCE",
    ]);
    for row in rows {
        table.row(cells(row));
    }
    let text = table.text_within(columns);
    if !why && !details {
        return text;
    }
    let mut lines = text.lines();
    let mut explained: Vec<String> = lines.next().map(str::to_owned).into_iter().collect();
    for (line, row) in lines.zip(rows) {
        explained.push(line.to_owned());
        if why && row.is_in_kernel() {
            explained.push(format!("        {}", row.sentence()));
            // Whoever may make control groups has chosen their names.
            let rule = row.rule.as_deref().map(printable);
            explained.extend(rule.map(|rule| format!("        The rule: {rule}.")));
            explained.extend(row.rates.map(|rates| format!("        {rates}")));
        }
        if let Some(connection) = row.connection.as_ref().filter(|_| details) {
            explained.push(format!("        {connection}"));
        }
        if let Some(datagrams) = row.datagrams.as_ref().filter(|_| details) {
            explained.push(format!("        {datagrams}"));
        }
    }
    explained.join("\n") + "\n"
}

fn cells(row: &Row) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let peer = row.peer_pid.map(|pid| match &row.peer_program {
        Some(program) => format!("{pid}/{program}"),
        None => pid.to_string(),
    });
    vec![
        or_dash(row.name().map(|name| name.to_string())),
        row.kind.into(),
        row.home.into(),
        if row.is_in_kernel() { row.reason.into() } else { "-".into() },
        row.pid.to_string(),
        row.program.clone(),
        row.from.clone(),
        row.to.clone(),
        or_dash(peer),
        or_dash(row.sent.map(bytes)),
        or_dash(row.received.map(bytes)),
        or_dash(row.age_ms.map(span)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::tests::{joined, waiting};

    #[test]
    fn json_keeps_its_schema() {
        let mut carried = joined();
        carried.connection = Some(crate::sessions::tests::connection());
        let list = List {
            version: 1,
            server: Some("/run/sojourn/server".into()),
            sessions: vec![carried, waiting()],
        };
        let json = serde_json::to_string_pretty(&list).unwrap();
        assert_eq!(json, include_str!("../tests/ss.json").trim_end());
    }

    #[test]
    fn details_are_below_the_sessions_that_have_them() {
        let mut carried = joined();
        carried.connection = Some(crate::sessions::tests::connection());
        let text = text(&[carried, joined()], false, true, None);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[2].trim_start().starts_with("established  windows "), "{text}");
    }

    #[test]
    fn the_name_of_a_rule_makes_no_line_and_controls_no_terminal() {
        let rule = "eBPF programs of control group /user\n1 TCP\u{1b}[2J".to_owned();
        let row = crate::sessions::Row { rule: Some(rule), ..waiting() };
        let text = text(&[row], true, false, None);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.ends_with("/user?1 TCP?[2J.\n"), "{text}");
    }

    #[test]
    fn every_line_says_where_and_why() {
        let rows = [joined(), waiting()];
        let text = text(&rows, true, false, None);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        assert!(lines[0].contains("SESSION") && lines[0].contains("REASON"));
        assert!(lines[1].contains("library  -") && lines[1].contains("7/redis-server"), "{text}");
        assert!(lines[2].contains("kernel   no-peer"), "{text}");
        assert!(lines[3].contains("sojourn run"), "{text}");
    }
}
