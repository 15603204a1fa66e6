//! The search for a program, as execvp(3) and the shell do it.
//!
//! Not here: the check of the file (`inspect`), its execution (`launch`).

use rustix::fs::{Access, FileType};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The C library's search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The error that a program cannot be found.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SearchError {
    /// There is no such file.
    #[error("{0:?}: there is no such program; is it installed, and its directory in PATH?")]
    NotFound(OsString),
    /// The only files of that name cannot be executed.
    #[error("{path:?}: cannot be run: {cause}")]
    NotExecutable {
        /// The first such file.
        path: PathBuf,
        /// The kernel's error.
        cause: Errno,
    },
}

/// Returns the file that `name` means. A name with a slash is the file's path; any other name is
/// searched for in `path`, the value of `PATH`.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, SearchError> {
    let not_found = || SearchError::NotFound(name.to_owned());
    if name.as_bytes().contains(&b'/') {
        let file = PathBuf::from(name);
        return match check(&file) {
            Ok(()) => Ok(file),
            Err(Errno::NOENT | Errno::NOTDIR) => Err(not_found()),
            Err(cause) => Err(SearchError::NotExecutable { path: file, cause }),
        };
    }
    let mut refused = None;
    let directories = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    for directory in std::env::split_paths(directories).filter(|_| !name.is_empty()) {
        // An empty entry of `PATH` stands for the working directory.
        let file = match directory.as_os_str().is_empty() {
            true => Path::new(".").join(name),
            false => directory.join(name),
        };
        match check(&file) {
            Ok(()) => return Ok(file),
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(cause) => {
                refused.get_or_insert(SearchError::NotExecutable { path: file, cause });
            }
        }
    }
    Err(refused.unwrap_or_else(not_found))
}

fn check(file: &Path) -> Result<(), Errno> {
    let found = rustix::fs::stat(file)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => Err(Errno::ISDIR),
        FileType::RegularFile => rustix::fs::accessat(
            rustix::fs::CWD,
            file,
            Access::EXEC_OK,
            rustix::fs::AtFlags::EACCESS,
        ),
        _ => Err(Errno::ACCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn put(directory: &Path, name: &str, mode: u32) {
        std::fs::create_dir_all(directory).unwrap();
        std::fs::write(directory.join(name), "").unwrap();
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(directory.join(name), mode).unwrap();
    }

    #[test]
    fn the_first_that_can_be_run_counts() {
        let scratch = crate::inspect::tests::Scratch::new("search");
        let (a, b, c) = (scratch.path("a"), scratch.path("b"), scratch.path("c"));
        put(&a, "x", 0o644);
        put(&b, "x", 0o755);
        put(&c, "x", 0o755);
        put(&a, "y", 0o644);
        std::fs::create_dir(b.join("y")).unwrap();
        let path = std::env::join_paths([Path::new("/nowhere"), &a, &b, &c]).unwrap();
        let found = |name: &str| find(OsStr::new(name), Some(&path));
        assert_eq!(found("x"), Ok(b.join("x")));
        let refused = SearchError::NotExecutable { path: a.join("y"), cause: Errno::ACCESS };
        assert_eq!(found("y"), Err(refused));
        assert_eq!(found("z"), Err(SearchError::NotFound("z".into())));
        assert_eq!(found(""), Err(SearchError::NotFound("".into())));
        let with_slash = a.join("x").into_os_string();
        assert!(matches!(find(&with_slash, None), Err(SearchError::NotExecutable { .. })));
        assert!(matches!(find(OsStr::new("/no/such"), None), Err(SearchError::NotFound(_))));
        assert_eq!(find(OsStr::new("sh"), None), Ok("/bin/sh".into()));
    }
}
