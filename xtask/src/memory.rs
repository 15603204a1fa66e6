//! What the table `memory` of the papers needs beside the project's own programs: QEMU, and a
//! kernel of Debian's with a few of its modules, unpacked into `target/memory`.
//!
//! The kernel is not installed: its package is only unpacked. Not here: the machine
//! (`crates/bench/src/papers/memory`).

use crate::packages::{MEMORY, ensure};
use crate::steps::{cargo, command, output, run};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const FOLDER: &str = "target/memory";
/// The package that depends on the newest kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";
/// Modules that the traced programs need: links between hosts, the packet filter, and what the
/// session server asks the kernel about sockets.
const MODULES: [&str; 8] = [
    "veth",
    "sch_ingress",
    "cls_bpf",
    "inet_diag",
    "tcp_diag",
    "udp_diag",
    "unix_diag",
    "af_packet_diag",
];

/// Builds the plugin. If the table is `wanted` by name, QEMU is installed and the kernel unpacked
/// as well; without that the table is measured where both are there already.
pub(crate) fn prepare(wanted: bool) -> Result<()> {
    let words = ["build", "--release", "-p", "sojourn-memory", "--example", "plugin"];
    run("plugin", &mut cargo(&words))?;
    if !wanted || cfg!(not(target_arch = "x86_64")) {
        return Ok(());
    }
    ensure(MEMORY)?;
    let folder = Path::new(FOLDER);
    if !folder.join("vmlinuz").exists() {
        unpack(folder).context("the traced machine’s kernel")?;
    }
    Ok(())
}

fn unpack(folder: &Path) -> Result<()> {
    let depends = output(&mut command(&["apt-cache", "depends", "--important", KERNEL]))?;
    let Some(package) = package(&depends) else { bail!("apt knows no kernel {KERNEL}") };
    let unpacked = folder.join("package");
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir_all(&unpacked)?;
    let mut download = command(&["apt-get", "-q", "download", package]);
    run(&format!("apt-get download {package}"), download.current_dir(&unpacked))?;
    let archive = entries(&unpacked)?.into_iter().find(|path| has_ending(path, "deb"));
    let archive = archive.context("no package was downloaded")?;
    let mut unpack = command(&["dpkg-deb", "-x"]);
    run("dpkg-deb -x", unpack.arg(&archive).arg(&unpacked))?;
    let modules = folder.join("modules");
    fs::create_dir_all(&modules)?;
    let kernels = entries(&unpacked.join("lib/modules"))?;
    let found = kernels.iter().map(|kernel| take(kernel, &modules)).sum::<Result<usize>>()?;
    if found != MODULES.len() {
        bail!("{found} of {} modules are in {package}", MODULES.len());
    }
    let kernel = entries(&unpacked.join("boot"))?.into_iter().find(|path| is_kernel(path));
    // The kernel comes last: while it is not there, nothing is.
    fs::copy(kernel.context("no kernel in the package")?, folder.join("vmlinuz"))?;
    fs::remove_dir_all(&unpacked)?;
    Ok(())
}

/// Returns the package that apt-cache(8) says another depends on.
fn package(said: &str) -> Option<&str> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix("Depends: "))?;
    Some(line.trim())
}

/// Copies the wanted modules below `from`; returns their number.
fn take(from: &Path, to: &Path) -> Result<usize> {
    let mut found = 0;
    for path in entries(from)? {
        if path.is_dir() && !path.is_symlink() {
            found += take(&path, to)?;
        } else if has_ending(&path, "ko")
            && let Some(name) = path.file_name()
            && MODULES.iter().any(|module| path.file_stem() == Some(module.as_ref()))
        {
            fs::copy(&path, to.join(name))?;
            found += 1;
        }
    }
    Ok(found)
}

fn is_kernel(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_is_what_the_package_depends_on() {
        let said = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-9-cloud-amd64\n";
        assert_eq!(package(said), Some("linux-image-6.1.0-9-cloud-amd64"));
        assert_eq!(package("linux-image-cloud-amd64\n"), None);
    }

    #[test]
    fn modules_are_found_at_any_depth() {
        let folder = std::env::temp_dir().join(format!("xtask-memory-{}", std::process::id()));
        let (from, to) = (folder.join("from/a/b"), folder.join("to"));
        for folder in [&from, &to] {
            fs::create_dir_all(folder).unwrap();
        }
        for name in ["veth.ko", "other.ko", "veth.txt"] {
            fs::write(from.join(name), name).unwrap();
        }
        assert_eq!(take(&folder.join("from"), &to).unwrap(), 1);
        assert!(to.join("veth.ko").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
