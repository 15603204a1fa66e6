//! nginx and `wrk`: a small static file over connections that are kept open.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use sojourn_lab::Running;

use crate::local::row::{Row, Sample, Times, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{World, free_port, listens, run, wait_until};

const CONNECTIONS: &str = "16";

/// The row of nginx.
pub(super) struct Web;

/// Returns a configuration with one worker, which suits two processors and a client of one thread;
/// the rest is as Debian has it.
fn configuration(folder: &str, port: u16) -> String {
    // Workers of a root process change to another user by default, and that user may not read the
    // folder.
    let user = if crate::local::process::is_root() { "user root;" } else { "" };
    format!(
        "{user} daemon off; worker_processes 1; pid {folder}/pid; error_log stderr;
         events {{ worker_connections 1024; }}
         http {{
             access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000;
             client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
             fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi;
             scgi_temp_path {folder}/scgi;
             server {{ listen 127.0.0.1:{port}; location / {{ root {folder}/www; }} }}
         }}"
    )
}

/// The script that makes `wrk` print its results at its end; times are in microseconds.
const REPORT: &str = "done = function(summary, latency, requests)
    io.write(string.format('figures %d %d %d %d %d %d\\n', summary.requests, summary.duration,
        latency:percentile(50), latency:percentile(90), latency:percentile(99),
        summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.status))
end";

impl Row for Web {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn rounds(&self) -> usize {
        3
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let folder = world.folder("nginx", way)?;
        let port = free_port("127.0.0.1")?;
        fs::create_dir(folder.join("www"))?;
        fs::write(folder.join("www/small.html"), "x".repeat(600))?;
        fs::write(folder.join("conf"), configuration(&folder.to_string_lossy(), port))?;
        fs::write(folder.join("report.lua"), REPORT)?;
        let mut command = world.command(way, "nginx");
        command.arg("-p").arg(&folder).arg("-c").arg(folder.join("conf")).args(["-e", "stderr"]);
        let mut server = Running::start(command)?;
        wait_until(&mut server, || listens("127.0.0.1", port))?;
        let script = folder.join("report.lua").to_string_lossy().into_owned();
        Ok(Box::new(Client { way, port, script, _server: server }))
    }
}

struct Client {
    way: RunMode,
    port: u16,
    script: String,
    _server: Running,
}

impl Turn for Client {
    fn turn(&mut self, world: &World, _length: Duration) -> Result<Vec<Sample>> {
        let mut command = world.command(self.way, "wrk");
        command.args(["-t", "1", "-c", CONNECTIONS, "-d", "1", "-s", &self.script]);
        command.arg(format!("http://127.0.0.1:{}/small.html", self.port));
        let text = run(command)?;
        Ok(vec![sample(&text).with_context(|| format!("wrk said {text}"))?])
    }
}

fn sample(text: &str) -> Option<Sample> {
    let line = text.lines().find_map(|line| line.strip_prefix("figures "))?;
    let figures: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [requests, us, p50, p90, p99, errors] = figures[..] else { return None };
    if errors > 0.0 {
        return None;
    }
    let rate = requests / (us / 1e6);
    let times = Times { p50: p50 * 1e3, p90: p90 * 1e3, p99: p99 * 1e3 };
    Some(Sample {
        times: Some(times),
        rate: Some(rate),
        ..Sample::new(format!("nginx, {CONNECTIONS} connections"), Unit::PerS, rate, requests)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_requests_are_no_figure() {
        let good = "figures 1000 500000 90 100 300 0\n";
        let found = sample(good).unwrap();
        assert_eq!((found.value, found.times.unwrap().p50), (2000.0, 90_000.0));
        assert!(sample("figures 1000 500000 90 100 300 2\n").is_none());
    }
}
