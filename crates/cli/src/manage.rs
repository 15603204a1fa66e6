//! `sojourn server`.

use crate::args::{Report, Server, ServerArgs};
use crate::client::Client;
use crate::failure::FAILED;
use crate::output::{print, print_json, span};
use crate::server;
use anyhow::{Result, bail};
use serde::Serialize;
use sojourn_session::config;
use std::time::Duration;

/// The time in which a server has to end.
const END_WITHIN: Duration = Duration::from_secs(5);
/// The time after which a server that was asked to end with its last program counts as in use.
const EMPTY_WITHIN: Duration = Duration::from_millis(1500);

/// Starts a server, stops it or shows its state. Returns the exit status.
pub(crate) fn server(action: &Server) -> Result<u8> {
    match action {
        Server::Start { idle_exit, server } => start(server.as_deref(), *idle_exit),
        Server::Stop { force, server_args } => stop(*force, server_args),
        Server::Status(report) => status(report),
    }
}

fn start(named: Option<&str>, idle_exit_s: Option<u32>) -> Result<u8> {
    let named = match named {
        Some(address) => address.to_owned(),
        None => config::load([], |name| std::env::var_os(name))?.server,
    };
    let address = server::start(&named, idle_exit_s)?;
    print(&format!("serving at {address}\n"))?;
    Ok(0)
}

fn stop(force: bool, server_args: &ServerArgs) -> Result<u8> {
    let mut client = Client::connect(server_args)?;
    let processes = client.stats()?.counters.processes;
    let address = client.address.clone();
    let user = rustix::process::geteuid();
    if !user.is_root() && user != client.uid {
        // The server ignores requests of other users to end, and this command would wait in vain.
        bail!(
            "{address}: it is user {}'s server, which only that user and root may stop",
            client.uid
        );
    }
    let within = if force || processes == 0 { END_WITHIN } else { EMPTY_WITHIN };
    let text = match client.stop(force, within)? {
        true => format!("{address}: ended\n"),
        false if force => bail!("{address}: did not end within {} s", END_WITHIN.as_secs()),
        false => format!(
            "{address}: ends with the last of the programs it knows ({processes} now); --force ends it at once\n"
        ),
    };
    print(&text)?;
    Ok(0)
}

/// The output of `server status --json`.
#[derive(Serialize)]
struct Status {
    version: u32,
    server: Option<String>,
    pid: Option<u32>,
    uid: Option<u32>,
    uptime_ms: Option<u64>,
    processes: Option<u32>,
    streams: Option<u32>,
    log: Option<String>,
}

fn status(report: &Report) -> Result<u8> {
    let mut client = match Client::connect(&report.server_args) {
        Ok(client) => client,
        Err(_) if report.json => {
            print_json(&Status {
                version: 1,
                server: None,
                pid: None,
                uid: None,
                uptime_ms: None,
                processes: None,
                streams: None,
                log: None,
            })?;
            return Ok(FAILED);
        }
        Err(error) => return Err(error),
    };
    let counters = client.stats()?.counters;
    let log = server::log_of(&client.address).map(|path| path.display().to_string());
    if report.json {
        print_json(&Status {
            version: 1,
            server: Some(client.address),
            pid: Some(client.pid.0).filter(|pid| *pid != 0),
            uid: Some(client.uid.as_raw()),
            uptime_ms: Some(counters.uptime_ms),
            processes: Some(counters.processes),
            streams: Some(counters.streams),
            log,
        })?;
        return Ok(0);
    }
    let mut text = format!(
        "{}: {}, user {}, up for {}; {} programs, {} streams\n",
        client.address,
        client.process(),
        client.uid,
        span(counters.uptime_ms),
        counters.processes,
        counters.streams
    );
    if let Some(log) = log {
        text.push_str(&format!("log: {log}\n"));
    }
    print(&text)?;
    Ok(0)
}
