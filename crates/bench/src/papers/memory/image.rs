//! The files of the traced virtual machine: an initial RAM file system, as the kernel takes it (an
//! archive of cpio, format `newc`).
//!
//! It has the release build's programs, without their symbols, the host's `ip` and `redis-server`,
//! and the shared libraries of all of them. Not here: what runs there (`guest`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use sojourn_lab::Built;

use super::init::MODULES;

/// Files of the release build that cases need.
const BUILT: [&str; 9] = [
    "sojourn",
    "sojournd",
    "sojourn-protocol",
    "sojourn-udpd",
    "sojourn-abi",
    "lab-peer",
    "libsojourn_preload.so",
    "libsojourn_udp.so",
    "examples/libemulation.so",
];
/// Programs of the host, at the first place where one is.
const HOSTS: [(&str, &[&str]); 2] = [
    ("/usr/bin/ip", &["/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"]),
    ("/usr/bin/redis-server", &["/usr/bin/redis-server"]),
];
/// Where the release build's folder is in the machine: programs find each other by it.
pub(super) const RELEASE: &str = "/target/release";

/// An archive that grows.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    number: u32,
    folders: BTreeSet<PathBuf>,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

impl Archive {
    /// Adds a file with the folders above it.
    fn file(&mut self, path: &Path, content: &[u8]) {
        let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
        above.reverse();
        for folder in above.into_iter().filter(|folder| folder.parent().is_some()) {
            if self.folders.insert(folder.to_owned()) {
                self.entry(folder, FOLDER, &[]);
            }
        }
        self.entry(path, FILE, content);
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        self.number += 1;
        let path = path.to_string_lossy();
        let name = path.trim_start_matches('/');
        // In order: inode, mode, user, group, links, time, bytes, four device numbers, bytes of the
        // name with its zero, checksum.
        let fields = [self.number, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields.into_iter().chain([name.len() as u32 + 1, 0]) {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }
}

/// Writes the image to `to`. `modules` is the folder of the kernel's modules.
pub(super) fn write(to: &Path, modules: &Path) -> Result<()> {
    let (built, mut archive, mut libraries) =
        (Built::without_check()?, Archive::default(), BTreeSet::new());
    let release = Path::new(RELEASE);
    let marker = Path::new("/target/CACHEDIR.TAG");
    archive.file(marker, b"");
    let myself = std::env::current_exe()?;
    let ours = BUILT.iter().map(|name| (built.path(name), release.join(name)));
    for (from, path) in ours.chain([(myself, release.join("sojourn-bench"))]) {
        ensure!(from.exists(), "{} is not built; `cargo xtask papers` builds it", from.display());
        libraries.extend(needed(&from)?);
        archive.file(&path, &stripped(&from, to)?);
    }
    for (path, places) in HOSTS {
        let found = places.iter().map(Path::new).find(|place| place.exists());
        let from = found.with_context(|| format!("{path} is not installed"))?;
        libraries.extend(needed(from)?);
        archive.file(Path::new(path), &read(from)?);
    }
    for library in &libraries {
        archive.file(library, &read(library)?);
    }
    for module in std::fs::read_dir(modules)?.flatten() {
        archive.file(&Path::new(MODULES).join(module.file_name()), &read(&module.path())?);
    }
    std::fs::write(to, archive.end()).with_context(|| to.display().to_string())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// Returns a program without symbols, or as it is where strip(1) is missing.
fn stripped(path: &Path, beside: &Path) -> Result<Vec<u8>> {
    let to = beside.with_extension("stripped");
    let status = Command::new("strip").arg("-o").arg(&to).arg(path).status();
    let content = if status.is_ok_and(|status| status.success()) { read(&to) } else { read(path) };
    let _ = std::fs::remove_file(&to);
    content
}

/// Returns the shared libraries of a program, and the loader.
fn needed(path: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(path).output().context("ldd")?;
    Ok(paths(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the paths in what ldd(1) says; none for a static program.
fn paths(said: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.into_iter().find(|word| word.starts_with('/')).map(PathBuf::from)
    };
    said.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_after_its_folders_and_everything_is_aligned() {
        let mut archive = Archive::default();
        archive.file(Path::new("/a/b/c"), b"12345");
        archive.file(Path::new("/a/d"), b"");
        let bytes = archive.end();
        let text = String::from_utf8_lossy(&bytes);
        let names = ["a\0", "a/b\0", "a/b/c\0", "a/d\0", "TRAILER!!!\0"];
        let at: Vec<_> = names.iter().map(|name| text.find(name).unwrap()).collect();
        assert!(at.is_sorted(), "{at:?}");
        // A header has 110 bytes: six of its format's number, and 13 fields.
        assert_eq!(text.matches("070701").count(), names.len());
        let heads: Vec<_> = text.match_indices("070701").map(|(at, _)| at % 4).collect();
        assert_eq!(heads, [0; 5]);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(&text[at[2] - 110 + 54..][..8], "00000005");
    }

    #[test]
    fn libraries_are_found_in_what_ldd_says() {
        let said =
            "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so (0x3)\n";
        assert_eq!(paths(said), [Path::new("/lib/libc.so.6"), Path::new("/lib64/ld.so")]);
        assert!(paths("\tstatically linked\n").is_empty());
    }
}
