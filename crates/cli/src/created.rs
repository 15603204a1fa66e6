//! Files that this command writes, in folders where others may have put one of that name.
//!
//! Root runs this command, and names files in `/tmp`. Linux guards such files only where an
//! administrator or the service manager has it do so (proc(5), `protected_regular`,
//! `protected_hardlinks`). Not here: standard output (`output`).

use rustix::process::{Uid, geteuid};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// The reason why a file is not written to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// Another user would get, or had prepared, what is written.
    #[error("it belongs to user {0}, in a folder that everybody can write to: name another file")]
    Foreign(Uid),
    /// The file has another name, perhaps one of a file that must stay.
    #[error("it has several names, in a folder that others can write to: name another file")]
    Linked,
    /// The path leads to something else than a file.
    #[error("it is no regular file: remove it, or name another one")]
    Irregular,
    /// The kernel refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// Opens an empty file to write to, which only its owner may read if it is a new one. Devices,
/// pipes and this user's own files are taken as they are.
pub(crate) fn create(path: &Path) -> Result<File, CreateError> {
    let file = open(path, 0)?;
    let found = file.metadata()?;
    check(path, &found)?;
    if found.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
}

/// Opens an empty log: a regular file, to which writes are appended. Waits for nobody.
pub(crate) fn create_log(path: &Path) -> Result<File, CreateError> {
    let file = open(path, libc::O_APPEND | libc::O_NOFOLLOW | libc::O_NONBLOCK)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(CreateError::Irregular);
    }
    check(path, &found)?;
    file.set_len(0)?;
    Ok(file)
}

/// Opens a file, or makes it, without a change of what is in it.
fn open(path: &Path, flags: i32) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    options.open(path)
}

/// Checks that no other user has put an open file, or a link to it, where it is.
fn check(path: &Path, file: &Metadata) -> Result<(), CreateError> {
    const OTHERS_WRITE: u32 = 0o022;
    const EVERYBODY_WRITES: u32 = 0o002;
    let path = std::path::absolute(path)?;
    let named = path.symlink_metadata()?;
    if !file.is_file() && !named.file_type().is_fifo() {
        return Ok(());
    }
    let own = geteuid().as_raw();
    // A file without a name is one that this command was given, as `/dev/fd/3`.
    if file.nlink() == 0 && file.uid() == own {
        return Ok(());
    }
    let folder_of = |path: &Path| path.parent().unwrap_or(Path::new("/")).metadata();
    let folder = folder_of(&path.canonicalize()?)?;
    for (folder, owner) in [(&folder_of(&path)?, named.uid()), (&folder, file.uid())] {
        if folder.mode() & EVERYBODY_WRITES != 0 && owner != own {
            return Err(CreateError::Foreign(Uid::from_raw(owner)));
        }
    }
    let is_others = folder.uid() != own || folder.mode() & OTHERS_WRITE != 0;
    if is_others && file.is_file() && file.nlink() > 1 {
        return Err(CreateError::Linked);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    use std::fs;
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, chown};
    use std::path::PathBuf;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, mode: u32) -> Self {
            let name = format!("sojourn-created-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            fs::create_dir(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            Self(folder)
        }

        fn with(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).unwrap();
            path
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_of_ones_own_begins_anew() {
        let scratch = Scratch::new("own", 0o1777);
        let path = scratch.with("old", "old");
        create(&path).unwrap().write_all(b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        let new = scratch.0.join("new");
        create_log(&new).unwrap();
        assert_eq!(fs::metadata(&new).unwrap().mode() & 0o777, 0o600);
        assert!(create(Path::new("/dev/null")).is_ok());
        let open = File::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        assert!(create(Path::new(&format!("/dev/fd/{number}"))).is_ok());
    }

    #[test]
    fn what_another_user_has_put_there_is_not_written_to() {
        let scratch = Scratch::new("foreign", 0o777);
        let path = scratch.with("file", "theirs");
        if chown(&path, Some(65_533), None).is_err() {
            eprintln!("skipped: not root");
            return;
        }
        assert!(matches!(create(&path), Err(CreateError::Foreign(_))));
        assert!(matches!(create_log(&path), Err(CreateError::Foreign(_))));
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        let (own, link) = (scratch.with("own", "mine"), scratch.0.join("link"));
        std::os::unix::fs::symlink(&own, &link).unwrap();
        std::os::unix::fs::lchown(&link, Some(65_533), None).unwrap();
        assert!(matches!(create(&link), Err(CreateError::Foreign(_))));
        assert_eq!(fs::read(&own).unwrap(), b"mine");
        // In a folder that is not everybody's its owner decides.
        fs::set_permissions(&scratch.0, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(create(&path).is_ok());
    }

    #[test]
    fn a_second_name_of_another_file_is_not_written_to() {
        let scratch = Scratch::new("linked", 0o1777);
        let path = scratch.with("file", "precious");
        let name = scratch.0.join("name");
        fs::hard_link(&path, &name).unwrap();
        assert!(matches!(create(&name), Err(CreateError::Linked)));
        assert!(matches!(create_log(&name), Err(CreateError::Linked)));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_log_waits_for_nobody_and_follows_no_link() {
        let scratch = Scratch::new("log", 0o1777);
        let pipe = scratch.0.join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let (done, is_done) = std::sync::mpsc::channel();
        let refused = move || done.send(create_log(&pipe).is_err());
        std::thread::spawn(refused);
        let limit = std::time::Duration::from_secs(30);
        assert_eq!(is_done.recv_timeout(limit), Ok(true));
        let (path, link) = (scratch.with("file", "x"), scratch.0.join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(create_log(&link).is_err());
    }
}
