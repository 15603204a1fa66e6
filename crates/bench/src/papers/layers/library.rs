//! Table 4's columns of the library and of the server: a session whose protocol is in its program,
//! or in the protocol server, which stamps its own layers on the request of `sojourn time`.
//!
//! Not here: the kernel's columns (`layers`).

use crate::net::way::{Side, Stacks, Wait};
use crate::net::world::{Between, Hosts, LIMIT, World};
use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use sojourn_lab::Running;
use sojourn_time::{Distribution, Row, Session};
use std::time::{Duration, Instant};

/// The duration of the client's requests (ms), and of the timing (s).
const RUNS_MS: &str = "6000";
const TIMED_S: &str = "1.5";
const QUICK_S: &str = "0.5";
/// The time in which the session has to move.
const PATIENCE: Duration = Duration::from_secs(3);

/// Sends messages of one size back and forth by blocking calls. Returns the client's session.
pub(super) fn measure(world: &World, way: Stacks, size: usize, quick: bool) -> Result<Session> {
    let hosts = world.place(way, Between::Wire)?;
    let address = hosts.free_name();
    let server = hosts.lab_server(Wait::Blocking, &["serve", "tcp", &address])?;
    let size = size.to_string();
    let words =
        ["ping", "tcp", &address, "--size", &size, "--time-ms", RUNS_MS, "--warm-ms", "120"];
    let mut client = Running::start(hosts.lab(Side::Client, Wait::Blocking, &words))?;
    let stream = away(&hosts, &mut client, way)?;
    let seconds = if quick { QUICK_S } else { TIMED_S };
    let said = hosts.sojourn(Side::Client, &["time", "--json", "--duration", seconds, &stream]);
    // Dropping the programs ends them.
    drop((client, server));
    let told: Value = serde_json::from_str(&said?)?;
    session(&told["sessions"][0]).context("no times")
}

/// Returns the number of the client's session, once the session is away and the program's engine
/// runs it.
fn away(hosts: &Hosts, client: &mut Running, way: Stacks) -> Result<String> {
    let home = if way.is_served() { "server" } else { "library" };
    let deadline = Instant::now() + PATIENCE.min(LIMIT);
    while Instant::now() < deadline && client.is_running() {
        let told: Value = serde_json::from_str(&hosts.sojourn(Side::Client, &["ss", "--json"])?)?;
        let mut sessions = told["sessions"].as_array().into_iter().flatten();
        let found = sessions.find(|one| {
            // In the protocol server the session is that process's; there is no other one.
            let is_own = way.is_served() || one["pid"] == client.pid();
            is_own && one["home"] == home && !one["connection"].is_null()
        });
        if let Some(stream) = found.and_then(|one| one["stream"].as_str()) {
            return Ok(stream.to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!("the session does not leave the kernel")
}

/// Makes a session of the command's JSON output.
fn session(told: &Value) -> Option<Session> {
    let mut session = Session::in_library(1);
    for (name, is_send) in [("send", true), ("receive", false)] {
        let way = &told[name];
        let count = way["total"]["count"].as_u64()?;
        for line in way["rows"].as_array()? {
            let row = Row::ALL.into_iter().find(|row| line["row"] == row.key())?;
            if let Some(us) = line["share_us"].as_f64() {
                session.set_row(row, times(us, count));
            }
        }
        let total = times(way["total"]["mean_us"].as_f64()?, count);
        match is_send {
            true => session.send.total = total,
            false => session.receive.total = total,
        }
    }
    Some(session)
}

fn times(us: f64, count: u64) -> Distribution {
    let mut times = Distribution::default();
    times.add_many((us * 1e3) as u64, count);
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_becomes_rows() {
        let way = |row: &str| {
            serde_json::json!({
                "total": { "count": 5, "mean_us": 2.0 },
                "rows": [{ "row": row, "share_us": 1.5 }, { "row": "device", "share_us": null }],
            })
        };
        let told = serde_json::json!({ "send": way("ip_output"), "receive": way("queue") });
        let session = session(&told).unwrap();
        assert_eq!(session.share_ns(Row::IpOutput), Some(1500.0));
        assert_eq!(session.share_ns(Row::Queue), Some(1500.0));
        assert_eq!(session.share_ns(Row::Device), None);
        assert_eq!(session.send.total.mean_ns(), Some(2000.0));
        assert!(super::session(&serde_json::json!({})).is_none());
    }
}
