//! The measured program's two builds, and commands that start it under the emulation library.
//!
//! Both builds are part of this program (`build.rs`) and are written into a folder of the run.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail, ensure};
use sojourn_lab::Built;

const DYNAMIC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest"));
const STATIC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/guest-static"));

/// The emulation library, in the folder of release builds.
pub(crate) const LIBRARY: &str = "libsojourn_emulation.so";

/// The programs, in a folder that Drop removes.
pub(super) struct Guests {
    folder: PathBuf,
    built: Built,
}

impl Drop for Guests {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Guests {
    /// Writes the programs.
    pub(super) fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojourn-bench-guest-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let guests = Self { folder, built: Built::without_check()? };
        for (name, bytes) in [("guest", DYNAMIC), ("guest-static", STATIC)] {
            let path = guests.folder.join(name);
            std::fs::write(&path, bytes).with_context(|| path.display().to_string())?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(guests)
    }

    /// Returns the programs' folder.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the dynamic program.
    pub(super) fn dynamic(&self) -> PathBuf {
        self.folder.join("guest")
    }

    /// Returns the path of a file of the release build.
    fn file(&self, name: &str) -> Result<PathBuf> {
        if !self.built.has(name) {
            bail!(
                "{} is not built; `cargo xtask build` builds it",
                self.built.path(name).display()
            );
        }
        Ok(self.built.path(name))
    }

    /// Returns a command that runs the dynamic program with the library preloaded.
    pub(super) fn preloaded(&self) -> Result<Command> {
        let mut command = Command::new(self.dynamic());
        command.env("LD_PRELOAD", self.file(LIBRARY)?);
        Ok(command)
    }

    /// Returns a command that runs the static program by Sojourn's loader, which passes its system
    /// calls to the library.
    pub(super) fn loaded(&self) -> Result<Command> {
        ensure!(!STATIC.is_empty(), "no static C library was there when this was built");
        let mut command = Command::new(self.file("sojourn-abi")?);
        command.env("LD_PRELOAD", self.file(LIBRARY)?);
        command.env("SOJOURN_ABI_FILE", self.folder.join("guest-static"));
        // A program that the loader cannot load must fail, instead of running plainly and being
        // measured.
        command.env("SOJOURN_STRICT", "on");
        Ok(command)
    }
}
