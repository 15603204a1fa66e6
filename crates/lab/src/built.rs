//! Where the programs under test are.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The programs and libraries of a release build.
#[derive(Clone, Debug)]
pub struct Built {
    folder: PathBuf,
}

impl Built {
    /// Finds the release build that belongs to the running test or benchmark.
    ///
    /// # Errors
    /// If there is none: says how to make it.
    pub fn find() -> Result<Self> {
        let built = Self::whatever()?;
        for name in ["sojourn", "sojournd", "libsojourn_preload.so", "sojourn-abi", "lab-peer"] {
            if !built.has(name) {
                bail!("{}: not built; run `cargo xtask build` first", built.path(name).display());
            }
        }
        Ok(built)
    }

    /// The same folder, whatever is in it.
    ///
    /// # Errors
    /// If it is not known where the running program is.
    pub fn whatever() -> Result<Self> {
        let here = std::env::current_exe().context("where this program is")?;
        // target/PROFILE/deps/test, or target/PROFILE/program.
        let target = here.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
        let folder = target.unwrap_or(Path::new("target")).join("release");
        Ok(Self { folder })
    }

    /// Whether there is a file of that name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// The file of that name.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
