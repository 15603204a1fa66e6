//! Help for `build.rs`: compile IDL files into `OUT_DIR` and tell cargo what they depend on.

use std::env;
use std::path::{Path, PathBuf};

use crate::backend::{self, Output};
use crate::compile::{Failure, Options, compile};
use crate::output::{WriteError, write_all};
use crate::source::FileLoader;

/// A build step that failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The IDL or ACF has mistakes; the text shows all of them.
    #[error("the interface does not compile\n\n{0}")]
    Compile(Box<Failure>),
    /// A file could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// Neither [`Build::out_dir`] nor cargo said where to write.
    #[error("no output folder: call out_dir(), or run from build.rs, where cargo sets OUT_DIR")]
    NoOutDir,
    /// Neither [`Build::rust`] nor [`Build::c`] was asked for, or no IDL file was named.
    #[error("nothing to do: name a file with idl() and a language with rust() or c()")]
    Nothing,
}

/// Compiles IDL files from a build script.
///
/// ```no_run
/// // build.rs
/// sojourn_idl::Build::new().idl("calc.idl").acf("calc.acf").rust().compile_or_exit();
/// ```
///
/// The program then says `include!(concat!(env!("OUT_DIR"), "/calc.rs"));`.
#[derive(Clone, Debug, Default)]
pub struct Build {
    files: Vec<InputFile>,
    include_dirs: Vec<PathBuf>,
    out_dir: Option<PathBuf>,
    rust: bool,
    c: bool,
    stubs: backend::Options,
    options: Options,
}

/// An IDL file with its ACF.
#[derive(Clone, Debug)]
struct InputFile {
    idl: PathBuf,
    acf: Option<PathBuf>,
}

impl Build {
    /// A build that does nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an IDL file.
    #[must_use]
    pub fn idl(mut self, path: impl Into<PathBuf>) -> Self {
        self.files.push(InputFile { idl: path.into(), acf: None });
        self
    }

    /// The ACF of the IDL file added last.
    #[must_use]
    pub fn acf(mut self, path: impl Into<PathBuf>) -> Self {
        if let Some(last) = self.files.last_mut() {
            last.acf = Some(path.into());
        }
        self
    }

    /// A folder where imported files are looked for.
    #[must_use]
    pub fn include_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.include_dirs.push(path.into());
        self
    }

    /// Where to write, instead of cargo's `OUT_DIR`.
    #[must_use]
    pub fn out_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(path.into());
        self
    }

    /// Generates Rust.
    #[must_use]
    pub fn rust(mut self) -> Self {
        self.rust = true;
        self
    }

    /// Generates C.
    #[must_use]
    pub fn c(mut self) -> Self {
        self.c = true;
        self
    }

    /// Leaves the server side out.
    #[must_use]
    pub fn client_only(mut self) -> Self {
        self.stubs.server = false;
        self
    }

    /// Leaves the client side out.
    #[must_use]
    pub fn server_only(mut self) -> Self {
        self.stubs.client = false;
        self
    }

    /// Generates tests too: random calls, and mutated messages that must be refused.
    #[must_use]
    pub fn tests(mut self) -> Self {
        self.stubs.tests = true;
        self
    }

    /// `max_is` is a count, as in DICE.
    #[must_use]
    pub fn max_is_count(mut self) -> Self {
        self.options.max_is_count = true;
        self
    }

    /// Compiles, writes, and prints what cargo wants to know; answers the files written.
    ///
    /// # Errors
    /// [`BuildError`]; its text is meant for people.
    pub fn compile(&self) -> Result<Vec<PathBuf>, BuildError> {
        if self.files.is_empty() || !(self.rust || self.c) {
            return Err(BuildError::Nothing);
        }
        let dir = match &self.out_dir {
            Some(dir) => dir.clone(),
            None => env::var_os("OUT_DIR").map(PathBuf::from).ok_or(BuildError::NoOutDir)?,
        };
        let mut outputs = Vec::new();
        for InputFile { idl, acf } in &self.files {
            outputs.extend(self.compile_one(idl, acf.as_deref())?);
        }
        Ok(write_all(&dir, &outputs)?)
    }

    fn compile_one(&self, idl: &Path, acf: Option<&Path>) -> Result<Vec<Output>, BuildError> {
        let loader = FileLoader { include_dirs: self.include_dirs.clone() };
        let (idl, acf) = (idl.display().to_string(), acf.map(|a| a.display().to_string()));
        let in_cargo = env::var_os("OUT_DIR").is_some();
        if in_cargo {
            for file in std::iter::once(&idl).chain(&acf) {
                println!("cargo:rerun-if-changed={file}");
            }
        }
        let options = Options { for_rust: self.rust, ..self.options };
        let compilation =
            compile(&idl, acf.as_deref(), &loader, &options).map_err(BuildError::Compile)?;
        if in_cargo {
            for file in &compilation.module.sources {
                println!("cargo:rerun-if-changed={file}");
            }
            for line in compilation.rendered().lines() {
                println!("cargo:warning={line}");
            }
        }
        let mut outputs = Vec::new();
        if self.rust {
            outputs.extend(backend::rust::generate(&compilation.module, &self.stubs));
        }
        if self.c {
            outputs.extend(backend::c::generate(&compilation.module, &self.stubs));
        }
        Ok(outputs)
    }

    /// As [`Self::compile`]; prints what is wrong and ends the build script with status 1.
    pub fn compile_or_exit(&self) {
        if let Err(failure) = self.compile() {
            eprintln!("{failure}");
            std::process::exit(1);
        }
    }
}
