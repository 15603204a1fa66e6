//! Inside of the traced virtual machine: the programs of one case.
//!
//! `traced` (guest/traced.c) is one end, and tells by a file when its sessions must be where the
//! case says; that is looked up before and after the measured part. Only if it is so, the last line
//! is said that the run is taken by. Not here: the first process (`init`), the machine (`machine`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use sojourn_ipc::Wait;
use sojourn_lab::net::{End, Host, Link};
use sojourn_lab::{Built, Mode, Running, Sandbox};

use super::case::{Case, Home, Work};
use crate::papers::emulation;
use crate::udp::world::World;

const TRACED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/traced"));

/// The line that ends a case whose sessions were where they should be.
pub(super) const MEASURED: &str = "measured";

/// Operations that warm up: a session leaves the kernel, then caches fill.
const WARM: &str = "100";

const PORT: &str = "7400";
const MTU: u32 = 1500;
/// The longest time of each part of a case, of the machine's time.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder of a case's files, which Drop removes.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// Makes the folder, with the traced program.
    fn new() -> Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let name = format!("sojourn-bench-traced-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir(&folder.0).with_context(|| folder.0.display().to_string())?;
        let path = folder.0.join("traced");
        std::fs::write(&path, TRACED)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        Ok(folder)
    }

    fn program(&self) -> PathBuf {
        self.0.join("traced")
    }

    fn mark(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Adds the words that every traced program takes.
    fn trace(&self, command: &mut Command, case: Case) {
        command.arg(case.work.word()).arg(self.mark("mark"));
        command.args([WARM, &case.count().to_string()]);
    }
}

/// Runs a case.
pub(super) fn run(case: Case) -> Result<()> {
    let folder = Folder::new()?;
    match case.work {
        Work::Pipe => pipe(case, &folder),
        _ => between_hosts(case, &folder),
    }?;
    println!("{MEASURED} {}", case.name());
    Ok(())
}

/// Waits until a program has made the file, and removes it.
fn take_mark(path: &Path, program: &mut Running, look: impl FnOnce() -> Result<()>) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !path.exists() {
        if !program.is_running() || Instant::now() > end {
            bail!("a program did not come to {}", path.display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let looked = look();
    std::fs::remove_file(path)?;
    looked
}

/// Lets the program that is traced run to its end. `look` checks where its sessions are.
fn follow(command: Command, folder: &Folder, look: impl Fn() -> Result<()>) -> Result<()> {
    let mut program = Running::start(command)?;
    let path = folder.mark("mark");
    let followed =
        take_mark(&path, &mut program, &look).and_then(|()| take_mark(&path, &mut program, &look));
    let finished = program.finish(PATIENCE);
    followed.with_context(|| format!("{finished:?}"))?;
    finished?.success("traced").map(drop)
}

/// The settings of programs under Sojourn: sessions move at once and stay away. What these settings
/// switch off decides by time measured whether the kernel is faster.
fn settle(sandbox: &mut Sandbox, home: &str) {
    for (name, value) in [
        ("MOVE_AFTER_CALLS", "0"),
        ("AWAIT_MOVES", "on"),
        ("MEASURE_BULK", "off"),
        ("STRICT", "on"),
        ("HOME", home),
    ] {
        sandbox.set(name, value);
    }
}

/// Fails unless so many sessions are in that home.
fn expect(sandbox: &Sandbox, home: &str, count: usize) -> Result<()> {
    let told = sandbox.sessions()?;
    let sessions = told["sessions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = sessions.iter().filter(|one| one["home"] == home).count();
    ensure!(found >= count, "{found} of {count} sessions have the home {home}: {told}");
    Ok(())
}

fn pipe(case: Case, folder: &Folder) -> Result<()> {
    match case.home {
        Home::Kernel => {
            let mut command = Command::new(folder.program());
            folder.trace(&mut command, case);
            follow(command, folder, || Ok(()))
        }
        Home::Library => {
            let mut sandbox = Sandbox::new()?;
            settle(&mut sandbox, "library");
            let mut command = sandbox.command(Mode::Sojourn, folder.program());
            folder.trace(&mut command, case);
            follow(command, folder, || expect(&sandbox, "library", 4))
        }
        Home::Server => {
            let mut world = World::default();
            let server = emulation::serve(&mut world, 0, false, Wait::Adaptive)?;
            let mut command = Command::new(folder.program());
            folder.trace(&mut command, case);
            command.env("LD_PRELOAD", Built::find()?.path(emulation::LIBRARY));
            command.env("EMULATION_SERVER", server).env("EMULATION_BY", "ipc");
            command.env("EMULATION_WAIT", "adaptive");
            follow(command, folder, || Ok(()))
        }
    }
}

/// A host with what its programs need in a home.
struct Testbed {
    host: Host,
    sandbox: Option<Sandbox>,
    /// The UDP server, if datagrams go by one.
    server: Option<UdpServer>,
}

struct UdpServer {
    _process: Running,
    address: PathBuf,
}

impl Testbed {
    fn new(host: &Host, case: Case, address: PathBuf) -> Result<Self> {
        let mut testbed = Self { host: host.clone(), sandbox: None, server: None };
        match (case.work, case.home) {
            (_, Home::Kernel) => {}
            (Work::Udp, Home::Server) => testbed.serve(address)?,
            (_, home) => {
                let mut sandbox = Sandbox::on(host)?;
                if home == Home::Server {
                    // Everybody's server has no protocol servers.
                    sandbox.restart_for_own_user()?;
                }
                settle(&mut sandbox, home.word());
                testbed.sandbox = Some(sandbox);
            }
        }
        Ok(testbed)
    }

    fn serve(&mut self, address: PathBuf) -> Result<()> {
        let mut command = Command::new(Built::find()?.path("sojourn-udpd"));
        command.arg("--address").arg(&address);
        self.host.place(&mut command);
        let mut server = Running::start(command)?;
        let end = Instant::now() + PATIENCE;
        while !address.exists() {
            ensure!(server.is_running() && Instant::now() < end, "sojourn-udpd does not serve");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.server = Some(UdpServer { _process: server, address });
        Ok(())
    }

    fn command(&self, program: &Path) -> Result<Command> {
        if let Some(sandbox) = &self.sandbox {
            return Ok(sandbox.command(Mode::Sojourn, program));
        }
        let mut command = Command::new(program);
        self.host.place(&mut command);
        if let Some(UdpServer { address, .. }) = &self.server {
            command.env("UDP_SERVER", address);
            command.env("UDP_LIBRARY", Built::find()?.path("libsojourn_udp.so"));
        }
        Ok(command)
    }

    fn expect(&self, home: Home) -> Result<()> {
        self.sandbox.as_ref().map_or(Ok(()), |sandbox| expect(sandbox, home.word(), 1))
    }
}

fn between_hosts(case: Case, folder: &Folder) -> Result<()> {
    let (a, b) = (Host::new()?, Host::new()?);
    let link = Link::direct(&a, &b, MTU)?;
    let far = Testbed::new(&a, case, folder.mark("far"))?;
    let near = Testbed::new(&b, case, folder.mark("near"))?;
    let address = link.v4(End::A).to_string();
    let server = match case.work {
        Work::Redis => redis(&far, &address)?,
        work => {
            let (mut command, mark) = (far.command(&folder.program())?, folder.mark("answers"));
            command.arg("answer").arg(&mark).args([work.word(), &address, PORT]);
            let mut server = Running::start(command)?;
            take_mark(&mark, &mut server, || Ok(()))?;
            server
        }
    };
    let mut command = near.command(&folder.program())?;
    folder.trace(&mut command, case);
    command.args([&address, PORT]);
    let look = || far.expect(case.home).and(near.expect(case.home));
    let followed = follow(command, folder, look);
    // The client ends first; the server does not end by itself.
    drop(server);
    followed
}

fn redis(far: &Testbed, address: &str) -> Result<Running> {
    let mut command = far.command(Path::new("/usr/bin/redis-server"))?;
    command.args(["--bind", address, "--port", PORT, "--save", "", "--protected-mode", "no"]);
    let mut server = Running::start(command)?;
    let end = Instant::now() + PATIENCE;
    let port: u16 = PORT.parse()?;
    while far.host.enter(|| std::net::TcpStream::connect((address, port)).is_err())? {
        ensure!(server.is_running() && Instant::now() < end, "redis-server does not serve");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(server)
}
