//! The traced virtual machine: QEMU's interpreter with the plugin, Debian's kernel, and the image.
//!
//! One virtual processor, as the machine of 1993 had. Its clock goes by the instructions that it
//! has executed (`-icount`), so that timers of the machine's programs fire as often as they would
//! without a trace. Every case has a machine of its own. Not here: what runs inside (`guest`).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use sojourn_lab::Built;
use sojourn_memory::Report;

use super::case::Case;
use super::guest::MEASURED;
use super::image::{self, RELEASE};
use crate::local::process;

const QEMU: &str = "qemu-system-x86_64";
/// The plugin, in the folder of the release build.
const PLUGIN: &str = "examples/libplugin.so";
/// The kernel and its modules, in a folder beside that of the release build.
const KERNEL: &str = "memory/vmlinuz";
const MODULES: &str = "memory/modules";
/// Megabytes of the machine's memory.
const MEMORY_MB: &str = "1024";
/// The longest time of one machine.
const LIMIT: Duration = Duration::from_secs(600);

/// How what is missing is got.
pub(super) const HOW_TO_GET: &str = "`cargo xtask papers --table memory` installs QEMU (Debian’s qemu-system-x86) and \
    unpacks a kernel (linux-image-cloud-amd64) below `target/memory`, on x86-64.";

/// What machines are made of.
#[derive(Debug)]
pub(super) struct Machine {
    built: Built,
    folder: PathBuf,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Machine {
    /// Makes the image. An error says what is missing.
    pub(super) fn new() -> Result<Self> {
        ensure!(cfg!(target_arch = "x86_64"), "the programs and the kernel are x86-64’s");
        let there = Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
        ensure!(there.is_ok_and(|status| status.success()), "{QEMU} is not installed");
        let built = Built::without_check()?;
        let folder =
            std::env::temp_dir().join(format!("sojourn-bench-memory-{}", std::process::id()));
        let machine = Self { built, folder };
        for path in [machine.built.path(PLUGIN), machine.beside(KERNEL), machine.beside(MODULES)] {
            ensure!(path.exists(), "{} is missing", path.display());
        }
        std::fs::create_dir_all(&machine.folder)?;
        image::write(&machine.image(), &machine.beside(MODULES))?;
        Ok(machine)
    }

    /// Returns the folder of the image.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn image(&self) -> PathBuf {
        self.folder.join("image")
    }

    /// Returns a path beside the release build's folder.
    fn beside(&self, name: &str) -> PathBuf {
        self.built.path("..").join(name)
    }

    /// Runs a case in a machine of its own.
    pub(super) fn run(&self, case: Case) -> Result<Report> {
        let (report, console) = (self.folder.join("report"), self.folder.join("console"));
        let _ = std::fs::remove_file(&report);
        let mut command = Command::new(QEMU);
        command.args(["-M", "pc", "-m", MEMORY_MB, "-smp", "1", "-accel", "tcg"]);
        command.args(["-icount", "shift=0,sleep=off", "-nodefaults", "-no-user-config"]);
        command.args(["-display", "none", "-no-reboot", "-serial"]);
        command.arg(format!("file:{}", console.display()));
        command.arg("-kernel").arg(self.beside(KERNEL)).arg("-initrd").arg(self.image());
        command.arg("-append").arg(format!(
            "console=ttyS0 quiet panic=-1 rdinit={RELEASE}/sojourn-bench -- traced init {}",
            case.name()
        ));
        let plugin = self.built.path(PLUGIN);
        command.arg("-plugin").arg(format!("{},out={}", plugin.display(), report.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        process::prepare_child(&mut command, None);
        let ended = wait(command);
        let said = std::fs::read(&console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        ended.with_context(|| said.trim().to_owned())?;
        ensure!(said.contains(&format!("{MEASURED} {}", case.name())), "{}", said.trim());
        let text = std::fs::read_to_string(&report).context("the plugin wrote no report")?;
        serde_json::from_str(&text).context("the plugin’s report")
    }
}

/// Runs a machine until it is off.
fn wait(mut command: Command) -> Result<()> {
    let mut child = command.spawn().with_context(|| QEMU.to_owned())?;
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            if status.success() {
                return Ok(());
            }
            let output = child.wait_with_output()?;
            bail!("{QEMU}: {status}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            bail!("{QEMU} was not off after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
