//! PostgreSQL and `pgbench -S`: selects by primary key, over TCP and over a Unix socket.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use sojourn_lab::Running;

use crate::local::process::{self, User};
use crate::local::row::{QUICK, Row, Sample, Turn, Unit};
use crate::local::way::RunMode;
use crate::local::world::{World, free_port, listens, run, wait_until};

/// One transport and number of clients.
struct Database {
    name: &'static str,
    is_unix: bool,
    clients: &'static str,
}

/// Returns all rows.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    let of =
        |name, is_unix, clients| -> Box<dyn Row> { Box::new(Database { name, is_unix, clients }) };
    vec![
        of("pgbench-tcp-c1", false, "1"),
        of("pgbench-tcp-c8", false, "8"),
        of("pgbench-unix-c1", true, "1"),
        of("pgbench-unix-c8", true, "8"),
    ]
}

/// Finds the folder of the server's programs, as Debian and other distributions install them.
fn programs() -> Result<PathBuf> {
    let folder = Path::new("/usr/lib/postgresql");
    let versions = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = versions.map(|entry| entry.path().join("bin"));
    let newest = found.filter(|bin| bin.join("initdb").exists()).max();
    match newest {
        Some(bin) => Ok(bin),
        None if Path::new("/usr/bin/initdb").exists() => Ok("/usr/bin".into()),
        None => bail!("no PostgreSQL server is installed"),
    }
}

/// Returns the user for the server's programs, if this process is root: PostgreSQL refuses to run
/// as root.
fn user() -> Option<User> {
    let named = || process::user_named("postgres").or_else(|| process::user_named("nobody"));
    process::is_root().then(|| named().unwrap_or(User { uid: 65534, gid: 65534 }))
}

fn as_user(world: &World, way: RunMode, program: &Path) -> Command {
    let Some(User { uid, gid }) = user() else {
        return world.command(way, program);
    };
    let mut command = world.command(way, "setpriv");
    command.args([&format!("--reuid={uid}"), &format!("--regid={gid}"), "--clear-groups", "--"]);
    command.arg(program);
    command
}

/// Returns a cluster with its tables, which is made once per run and copied for every server.
fn template(world: &World) -> Result<PathBuf> {
    let made = world.top().join("cluster");
    if made.exists() {
        return Ok(made);
    }
    let building = world.top().join("cluster-new");
    std::fs::create_dir(&building)?;
    if let Some(User { uid, gid }) = user() {
        std::os::unix::fs::chown(&building, Some(uid), Some(gid))?;
    }
    let bin = programs()?;
    let mut initdb = as_user(world, RunMode::Plain, &bin.join("initdb"));
    initdb.arg("-D").arg(&building).args(["-A", "trust", "-U", "bench", "--no-sync", "-E", "UTF8"]);
    initdb.args(["--locale", "C"]);
    run(initdb)?;
    let server = Server::start(world, RunMode::Plain, &building, true)?;
    let mut fill = server.client(world, true);
    fill.args(["-i", "-q", "-s", "1"]);
    run(fill)?;
    server.stop(world, &building)?;
    std::fs::rename(&building, &made)?;
    Ok(made)
}

struct Server {
    way: RunMode,
    port: u16,
    sockets: PathBuf,
    running: Running,
}

impl Server {
    fn start(world: &World, way: RunMode, cluster: &Path, is_unix: bool) -> Result<Self> {
        let (port, sockets) = (free_port("127.0.0.1")?, cluster.to_owned());
        let mut command = as_user(world, way, &programs()?.join("postgres"));
        command.arg("-D").arg(cluster).args(["-p", &port.to_string(), "-k"]).arg(&sockets);
        // The server is killed at the end and would leave POSIX shared memory in /dev/shm, so its
        // memory is in files of its own folder.
        let memory = ["shared_buffers=64MB", "dynamic_shared_memory_type=mmap"];
        for setting in ["listen_addresses=127.0.0.1", "fsync=off"].into_iter().chain(memory) {
            command.args(["-c", setting]);
        }
        let mut running = Running::start(command)?;
        let file = sockets.join(format!(".s.PGSQL.{port}"));
        wait_until(&mut running, || {
            if is_unix {
                std::os::unix::net::UnixStream::connect(&file).is_ok()
            } else {
                listens("127.0.0.1", port)
            }
        })?;
        let server = Self { way, port, sockets, running };
        // The server listens before it serves.
        for _ in 0..200 {
            let mut command = as_user(world, RunMode::Plain, &programs()?.join("pg_isready"));
            command.args(["-q", "-p", &port.to_string(), "-h"]).arg(&server.sockets);
            if Running::start(command)?.finish(Duration::from_secs(5))?.status == 0 {
                return Ok(server);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("the database server did not begin to serve")
    }

    fn client(&self, world: &World, is_unix: bool) -> Command {
        let bin = programs().unwrap_or_default();
        let mut command = as_user(world, self.way, &bin.join("pgbench"));
        command.args(["-U", "bench", "-p", &self.port.to_string(), "-h"]);
        if is_unix {
            command.arg(&self.sockets);
        } else {
            command.arg("127.0.0.1");
        }
        command.arg("postgres");
        command
    }

    /// Stops the server in an orderly way, so that its files are consistent and can be copied.
    fn stop(self, world: &World, cluster: &Path) -> Result<()> {
        let mut command = as_user(world, RunMode::Plain, &programs()?.join("pg_ctl"));
        command.args(["stop", "-m", "fast", "-w", "-D"]).arg(cluster);
        run(command)?;
        self.running.finish(Duration::from_secs(10))?;
        Ok(())
    }
}

impl Row for Database {
    fn name(&self) -> &'static str {
        self.name
    }

    fn ways(&self) -> &'static [RunMode] {
        if self.is_unix { RunMode::LOCAL } else { RunMode::TCP }
    }

    fn rounds(&self) -> usize {
        3
    }

    fn prepare(&self, world: &World, way: RunMode) -> Result<Box<dyn Turn>> {
        let template = template(world)?;
        let cluster = world.folder(self.name, way)?.join("cluster");
        let mut copy = Command::new("cp");
        copy.arg("-a").arg(&template).arg(&cluster);
        run(copy)?;
        let server = Server::start(world, way, &cluster, self.is_unix)?;
        let (name, is_unix, clients) = (self.name, self.is_unix, self.clients);
        Ok(Box::new(Client { name, is_unix, clients, server }))
    }
}

struct Client {
    name: &'static str,
    is_unix: bool,
    clients: &'static str,
    server: Server,
}

impl Turn for Client {
    fn turn(&mut self, world: &World, length: Duration) -> Result<Vec<Sample>> {
        let mut command = self.server.client(world, self.is_unix);
        // pgbench counts whole seconds only, so the quick run has a number of transactions instead.
        let amount = if length < QUICK { ["-t", "100"] } else { ["-T", "1"] };
        command.args(amount).args(["-S", "-n", "-j", "1", "-c", self.clients]);
        let text = run(command)?;
        let found = sample(self.name, &text);
        Ok(vec![found.with_context(|| format!("pgbench said {text}"))?])
    }
}

fn sample(name: &str, text: &str) -> Option<Sample> {
    let word_after = |start: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(start))?;
        line.trim().split([' ', '/']).next()?.parse::<f64>().ok()
    };
    let rate = word_after("tps = ")?;
    let operations = word_after("number of transactions actually processed: ")?;
    Some(Sample { rate: Some(rate), ..Sample::new(name, Unit::PerS, rate, operations) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_says() {
        let text = "number of transactions actually processed: 12345\n\
                    latency average = 0.081 ms\ntps = 12350.5 (without initial connection time)\n";
        let found = sample("x", text).unwrap();
        assert_eq!((found.value, found.operations), (12350.5, 12345.0));
    }
}
