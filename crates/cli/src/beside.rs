//! The paths of the other parts of Sojourn, relative to this program, as installed or as built.
//!
//! `PREFIX/bin/sojourn` has `PREFIX/bin/sojournd`, and in `PREFIX/lib/sojourn` the preload library
//! and the loader; in the directory of a build all of them lie together. `SOJOURN_PRELOAD` names
//! another library, for development.

use crate::inspect;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The preload library's name.
pub(crate) const LIBRARY: &str = "libsojourn_preload.so";
const SERVER: &str = "sojournd";
pub(crate) const LOADER: &str = "sojourn-abi";

/// The error that a part is missing.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PartError {
    /// The part is in none of these places.
    #[error("{part} is in none of the places where it belongs ({}); install Sojourn anew (cargo xtask install)", places(.looked))]
    Missing {
        /// The part's name.
        part: &'static str,
        /// The paths that were tried.
        looked: Vec<PathBuf>,
    },
    /// `SOJOURN_PRELOAD` names no file.
    #[error("SOJOURN_PRELOAD is {0:?}, and there is no such file; correct it or unset it")]
    Named(PathBuf),
    /// `SOJOURN_PRELOAD` names a file that is no library for this machine: the dynamic loader would
    /// report an error in every program.
    #[error(
        "SOJOURN_PRELOAD is {0:?}, which is no library for this machine ({1}); correct it or unset it"
    )]
    NoLibrary(PathBuf, String),
    /// The kernel does not tell the path of this program.
    #[error(
        "where Sojourn is installed cannot be seen (/proc/self/exe: {0}); mount /proc, or name the library in SOJOURN_PRELOAD"
    )]
    Nowhere(String),
    /// The path is relative, or has a character that `LD_PRELOAD` gives another meaning (space,
    /// colon, dollar).
    #[error(
        "the preload library's path {0:?} must be absolute and without spaces, colons and dollar signs for the loader to take it; install Sojourn elsewhere"
    )]
    Unusable(PathBuf),
}

fn places(looked: &[PathBuf]) -> String {
    let shown: Vec<_> = looked.iter().map(|path| path.display().to_string()).collect();
    shown.join(", ")
}

/// Returns the directory of this program.
fn own_directory() -> Result<PathBuf, PartError> {
    match std::env::current_exe() {
        Ok(program) => Ok(program.parent().unwrap_or(Path::new("")).to_owned()),
        Err(error) => Err(PartError::Nowhere(error.to_string())),
    }
}

/// Returns the path of the preload library.
pub(crate) fn library() -> Result<PathBuf, PartError> {
    let found = match std::env::var_os("SOJOURN_PRELOAD").filter(|path| !path.is_empty()) {
        Some(path) => named(path.into())?,
        None => belonging(&own_directory()?)?,
    };
    usable(found)
}

/// Checks the library that `SOJOURN_PRELOAD` names.
fn named(path: PathBuf) -> Result<PathBuf, PartError> {
    if !path.exists() {
        return Err(PartError::Named(path));
    }
    match inspect::inspect_library(&path) {
        Ok(()) => Ok(path),
        Err(error) => Err(PartError::NoLibrary(path, error.to_string())),
    }
}

/// Returns the library that belongs to a program in this directory.
fn belonging(directory: &Path) -> Result<PathBuf, PartError> {
    let installed = directory.parent().unwrap_or(directory).join("lib/sojourn");
    first(LIBRARY, [installed.join(LIBRARY), directory.join(LIBRARY)])
}

fn usable(found: PathBuf) -> Result<PathBuf, PartError> {
    let is_usable = |byte: &u8| !matches!(byte, b' ' | b':' | b'$');
    match found.is_absolute() && found.as_os_str().as_bytes().iter().all(is_usable) {
        true => Ok(found),
        false => Err(PartError::Unusable(found)),
    }
}

/// Returns the path of the loader of programs that make their own system calls. It is in the
/// library's directory, where the library looks for it, too.
pub(crate) fn loader(library: &Path) -> Result<PathBuf, PartError> {
    first(LOADER, [library.with_file_name(LOADER)])
}

/// Returns the path of the session server's program.
pub(crate) fn server() -> Result<PathBuf, PartError> {
    first(SERVER, [own_directory()?.join(SERVER)])
}

fn first<const N: usize>(part: &'static str, places: [PathBuf; N]) -> Result<PathBuf, PartError> {
    match places.iter().find(|path| path.is_file()) {
        Some(path) => Ok(path.clone()),
        None => Err(PartError::Missing { part, looked: places.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::Scratch;

    #[test]
    fn the_library_is_found_installed_and_built() {
        let scratch = Scratch::new("beside");
        let bin = scratch.path("bin");
        std::fs::create_dir_all(scratch.path("lib/sojourn")).unwrap();
        std::fs::create_dir_all(&bin).unwrap();
        let error = belonging(&bin).unwrap_err();
        assert!(error.to_string().contains("lib/sojourn/libsojourn_preload.so"), "{error}");
        std::fs::write(bin.join(LIBRARY), "").unwrap();
        assert_eq!(belonging(&bin), Ok(bin.join(LIBRARY)));
        let installed = scratch.path("lib/sojourn").join(LIBRARY);
        std::fs::write(&installed, "").unwrap();
        assert_eq!(belonging(&bin), Ok(installed));
        let other = scratch.path("other:one.so");
        assert_eq!(usable(other.clone()), Err(PartError::Unusable(other)));
    }

    #[test]
    fn what_is_named_must_be_a_library() {
        let scratch = Scratch::new("named");
        let text = scratch.path("text.so");
        assert_eq!(named(text.clone()), Err(PartError::Named(text.clone())));
        std::fs::write(&text, "no library").unwrap();
        for wrong in [text, scratch.path(".")] {
            let error = named(wrong.clone()).unwrap_err();
            assert!(matches!(&error, PartError::NoLibrary(path, _) if *path == wrong), "{error}");
        }
        let program = std::env::current_exe().unwrap();
        let error = named(program).unwrap_err();
        assert!(error.to_string().contains("it is a program"), "{error}");
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let is_libc = |line: &&str| line.contains("/libc.so");
        let libc = maps.lines().find(is_libc).unwrap().split_whitespace().last().unwrap();
        assert_eq!(named(libc.into()), Ok(libc.into()));
    }
}
