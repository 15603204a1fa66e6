//! `sojourn stats`: the server's counters.

use crate::args::Report;
use crate::client::Client;
use crate::output::{Table, bytes, print, print_json, span};
use anyhow::Result;
use serde::Serialize;
use sojourn_session::reason;
use std::collections::BTreeMap;

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct Stats {
    version: u32,
    server: String,
    uptime_ms: u64,
    processes: u32,
    streams: u32,
    offers: u64,
    joins: u64,
    returns: u64,
    refusals: u64,
    scans: u64,
    bytes: u64,
    returns_by_reason: BTreeMap<&'static str, u64>,
}

/// Prints them.
pub(crate) fn stats(options: &Report) -> Result<()> {
    let mut client = Client::connect(&options.server_args)?;
    let out = client.stats()?;
    let counters = out.counters;
    let by_reason = out.returns_by_reason.unwrap_or_default();
    let counted = reason::ALL.iter().zip(&by_reason).filter(|(_, count)| **count > 0);
    let stats = Stats {
        version: 1,
        server: client.address,
        uptime_ms: counters.uptime_ms,
        processes: counters.processes,
        streams: counters.streams,
        offers: counters.offers,
        joins: counters.joins,
        returns: counters.returns,
        refusals: counters.refusals,
        scans: counters.scans,
        bytes: counters.bytes,
        returns_by_reason: counted.map(|(words, count)| (words.word, *count)).collect(),
    };
    if options.json { print_json(&stats) } else { print(&text(&stats)) }
}

fn text(stats: &Stats) -> String {
    let mut table = Table::new(&[&stats.server, ">", ""]);
    let mut line = |name: &str, value: String, what: &str| {
        table.row(vec![name.into(), value, what.into()]);
    };
    line("up for", span(stats.uptime_ms), "");
    line("programs", stats.processes.to_string(), "known now");
    line("streams", stats.streams.to_string(), "now");
    line("offers", stats.offers.to_string(), "sessions that were hot");
    line("joins", stats.joins.to_string(), "streams made");
    line("refusals", stats.refusals.to_string(), "offers that could not move");
    line("returns", stats.returns.to_string(), "ends that went home to the kernel");
    for (word, count) in &stats.returns_by_reason {
        line(&format!("  {word}"), count.to_string(), "");
    }
    line("scans", stats.scans.to_string(), "looks through all processes for other holders");
    line("bytes", bytes(stats.bytes), "through streams");
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Stats {
        Stats {
            version: 1,
            server: "/run/sojourn/server".into(),
            uptime_ms: 61_000,
            processes: 2,
            streams: 1,
            offers: 4,
            joins: 2,
            returns: 2,
            refusals: 0,
            scans: 1,
            bytes: 2048,
            returns_by_reason: [("closed", 1), ("peer-left", 1)].into(),
        }
    }

    #[test]
    fn json_keeps_its_schema() {
        let json = serde_json::to_string(&example()).unwrap();
        assert_eq!(
            json,
            r#"{"version":1,"server":"/run/sojourn/server","uptime_ms":61000,"processes":2,"streams":1,"offers":4,"joins":2,"returns":2,"refusals":0,"scans":1,"bytes":2048,"returns_by_reason":{"closed":1,"peer-left":1}}"#
        );
    }

    #[test]
    fn text_names_reasons() {
        let text = text(&example());
        assert!(text.contains("  closed") && text.contains("1 min 1 s"), "{text}");
    }
}
