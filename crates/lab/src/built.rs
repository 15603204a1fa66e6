//! The programs under test, as a release build left them.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The folder of a release build, with its programs and libraries.
#[derive(Clone, Debug)]
pub struct Built {
    folder: PathBuf,
}

impl Built {
    /// Finds the release build that belongs to the running test or benchmark.
    ///
    /// # Errors
    /// If a program is missing; the error names the command that builds it.
    pub fn find() -> Result<Self> {
        let built = Self::without_check()?;
        for name in ["sojourn", "sojournd", "libsojourn_preload.so", "sojourn-abi", "lab-peer"] {
            if !built.has(name) {
                bail!("{}: not built; run `cargo xtask build` first", built.path(name).display());
            }
        }
        Ok(built)
    }

    /// Finds the same folder without a look at its content.
    ///
    /// # Errors
    /// If the path of the running program cannot be read.
    pub fn without_check() -> Result<Self> {
        let here = std::env::current_exe().context("where this program is")?;
        // The program is target/PROFILE/deps/test, or target/PROFILE/program.
        let target = here.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
        let folder = target.unwrap_or(Path::new("target")).join("release");
        Ok(Self { folder })
    }

    /// Returns true if the folder has a file of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Returns the path of the file of this name.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
