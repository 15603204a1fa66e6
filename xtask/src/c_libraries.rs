//! C libraries of other Debian releases, for `tests/system/tests/c_libraries.rs`.
//!
//! Each release's C library and Perl, which needs nothing else, are unpacked into a folder that can
//! be a root folder. They come from the machine's own mirror of Debian and are kept in the target
//! folder. Where that mirror cannot be reached, they are left out with a message. Not here: the
//! tests.

use crate::steps::{command, output};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Releases whose C libraries are older (2.31) and newer (2.41, and the newest there is) than that
/// of Debian 12.
const RELEASES: [&str; 3] = ["bullseye", "trixie", "sid"];
const PACKAGES: [&str; 3] = ["libc6", "libcrypt1", "perl-base"];
/// The folder in which releases are unpacked.
const FOLDER: &str = "target/c-libraries";
/// Debian's own keys, which sign all releases.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Fetches the releases that are not there yet.
pub(crate) fn fetch() {
    for release in RELEASES {
        let folder = Path::new(FOLDER).join(release);
        if folder.join("root").exists() {
            continue;
        }
        eprintln!("── C library of {release}");
        if let Err(error) = fetch_release(release, &folder) {
            eprintln!("   skipped: the C library of {release} is not tried: {error:#}");
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

/// Returns the address of the machine's own mirror of Debian.
fn mirror() -> Result<String> {
    let words =
        ["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian"];
    let text = output(Command::new("apt-get").args(words))?;
    let first = text.lines().next().context("apt-get knows no mirror of Debian")?;
    Ok(first.trim_end_matches('/').to_owned())
}

fn fetch_release(release: &str, folder: &Path) -> Result<()> {
    for part in ["lists/partial", "cache/archives/partial", "new"] {
        fs::create_dir_all(folder.join(part))?;
    }
    let folder = folder.canonicalize()?;
    let list = format!("deb [signed-by={KEYRING}] {} {release} main\n", mirror()?);
    fs::write(folder.join("sources.list"), list)?;
    output(apt(&folder).arg("update"))?;
    output(apt(&folder).arg("download").args(PACKAGES))?;
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") {
            let words = [Path::new("dpkg-deb"), Path::new("-x"), &path, &folder.join("new")];
            output(command(&["env"]).args(words))?;
        }
    }
    // Since Debian 13, packages have files below /usr only, and another package has these links.
    for (link, target) in [("lib", "usr/lib"), ("lib64", "usr/lib64")] {
        if !folder.join("new").join(link).exists() {
            symlink(target, folder.join("new").join(link))?;
        }
    }
    fs::rename(folder.join("new"), folder.join("root"))?;
    Ok(())
}

/// Returns a command for `apt-get` with this folder's source only, and without the list of
/// installed packages.
fn apt(folder: &Path) -> Command {
    let option = |name: &str, path: PathBuf| format!("-o{name}={}", path.display());
    let mut apt = Command::new("apt-get");
    apt.current_dir(folder).stdin(Stdio::null()).args([
        "-qq".to_owned(),
        option("Dir::Etc::SourceList", folder.join("sources.list")),
        option("Dir::State::Lists", folder.join("lists")),
        option("Dir::Cache", folder.join("cache")),
        "-oDir::Etc::SourceParts=/dev/null".to_owned(),
        "-oDir::State::status=/dev/null".to_owned(),
        "-oAPT::Sandbox::User=".to_owned(),
        "-oAcquire::Retries=1".to_owned(),
    ]);
    apt
}
