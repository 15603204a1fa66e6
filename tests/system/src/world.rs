//! A sandbox for real programs: ends the programs that were started in it, and finds processes that
//! are left behind.
//!
//! Not here: the scripts (`programs/`), and their runs (`tests/programs.rs`, `crate::programs`).

use anyhow::Result;
use sojourn_lab::{Mode, Sandbox};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The folders in which programs are looked for.
pub const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Longest time for programs to end after they have been told to.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Returns the folder of the scripts.
#[must_use]
pub fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// Returns the folder in which `cargo xtask programs` puts programs that are not Debian's.
#[must_use]
pub fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/programs")
}

/// A process that belongs to a sandbox.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its arguments.
    pub command: String,
}

/// A sandbox whose drop ends every program that was started in it.
#[derive(Debug)]
pub struct World {
    /// The folder, server and settings.
    pub sandbox: Sandbox,
    /// The mode of the programs.
    pub mode: Mode,
}

impl World {
    /// Makes a sandbox with an empty folder `work`.
    ///
    /// # Errors
    /// As [`Sandbox::new`].
    pub fn new(mode: Mode) -> Result<Self> {
        let sandbox = Sandbox::new()?;
        std::fs::create_dir(sandbox.folder().join("work"))?;
        Ok(Self { sandbox, mode })
    }

    /// Returns the folder in which the programs run.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.sandbox.folder().join("work")
    }

    /// Returns a command in the folder `work`.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.sandbox.command(self.mode, program);
        let path = FOLDERS.join(":");
        command.current_dir(self.work()).env("PATH", path).env("PROGRAMS", programs());
        command
    }

    /// Returns a command for a script of [`programs`], behind the prelude, with two ports of its
    /// own. Programs that change to another user can reach server and library too.
    ///
    /// # Errors
    /// If files or ports cannot be made.
    pub fn script(&self, script: &str) -> Result<Command> {
        use std::os::unix::fs::PermissionsExt;
        let everybody = std::fs::Permissions::from_mode(0o666);
        std::fs::set_permissions(self.sandbox.address(), everybody)?;
        let library = self.work().join("libsojourn_preload.so");
        for name in ["libsojourn_preload.so", "sojourn-abi"] {
            let copy = self.work().join(name);
            std::fs::copy(self.sandbox.built().path(name), &copy)?;
            std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755))?;
        }
        let mut command = self.command("bash");
        command.args(["-c", ". \"$PROGRAMS/prelude.sh\"; . \"$PROGRAMS/$1\"", "-", script]);
        command.env("PORT", script_port()?.to_string());
        command.env("PORT2", script_port()?.to_string());
        command.env("SOJOURN_PRELOAD", library);
        command.env("TOOLS", tools());
        Ok(command)
    }

    /// Waits until only the server is left; returns the processes that are still there after some
    /// seconds.
    #[must_use]
    pub fn left_behind(&self) -> Vec<Process> {
        let deadline = Instant::now() + END_WITHIN;
        loop {
            let mut found = processes_of(self.sandbox.folder());
            let servers = self.sandbox.server_pids();
            found.retain(|process| !servers.contains(&process.pid));
            if found.is_empty() || Instant::now() > deadline {
                return found;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.sandbox.kill_server();
        for Process { pid, .. } in processes_of(self.sandbox.folder()) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

/// Returns a port on which nothing listens, and which the kernel gives to no connection before the
/// script uses it: it is below the usual range of those (`ip_local_port_range` of ip(7)). No other
/// script of this process gets it.
fn script_port() -> Result<u16> {
    const PORTS: std::ops::Range<u32> = 12_000..32_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let offset = std::process::id().wrapping_mul(97);
    for _ in PORTS {
        let number = offset.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(PORTS.start + number % (PORTS.end - PORTS.start))?;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free")
}

/// Returns the processes that belong to a folder: its name is in their environment, arguments, or
/// current directory.
fn processes_of(folder: &Path) -> Vec<Process> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // The name must not match as a part of a longer one: ...-1 in ...-10.
    let belongs = |text: &str| {
        let mut places = text.match_indices(&name);
        places
            .any(|(at, _)| !text[at + name.len()..].starts_with(|next: char| next.is_ascii_digit()))
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let read = |file: &str| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let ours = [read("environ"), read("cmdline"), cwd.to_string_lossy().into_owned()];
        // The server's guard, which removes the server's socket, ends with the server.
        let is_guard = ours[1].contains("sojourn-guard");
        let is_other = pid != std::process::id() && !is_guard;
        if is_other && ours.iter().any(|text| belongs(text)) {
            found.push(Process { pid, command: ours[1].replace('\0', " ") });
        }
    }
    found
}
