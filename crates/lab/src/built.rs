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
        let here = std::env::current_exe().context("where this program is")?;
        // target/PROFILE/deps/test, or target/PROFILE/program.
        let target = here.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
        let folder = target.unwrap_or(Path::new("target")).join("release");
        for name in ["sojourn", "sojournd", "libsojourn_preload.so", "lab-peer"] {
            if !folder.join(name).exists() {
                bail!("{}: not built; run `cargo xtask build` first", folder.join(name).display());
            }
        }
        Ok(Self { folder })
    }

    /// The file of that name.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}
