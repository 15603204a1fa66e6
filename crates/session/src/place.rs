//! Address of the session server, and the order in which a client tries addresses.
//!
//! There is one address for the whole system and one for each user. A user's socket is in a
//! directory that must be that user's alone, because a program that could put a socket there would
//! be handed descriptors. Not here: who may listen at an address (`trust`), connecting
//! (`sojourn-ipc`), and starting a server.

use crate::unmapped::unmapped_user;
use rustix::fs::{CWD, FileType, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::Uid;
use std::path::{Path, PathBuf};

/// Path of the socket of the system's server, which serves all users.
pub const SYSTEM: &str = "/run/sojourn/server";
/// Directory of root's own server, which serves only root.
const ROOTS: &str = "/run/sojourn-root";

/// Reason for which the address of a server cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// The directory belongs to another user.
    #[error(
        "{path} belongs to user {owner}, not to user {user}: it is not used. {}",
        instead_of(.path, *.user)
    )]
    Foreign {
        /// Path of the directory.
        path: PathBuf,
        /// User that owns the directory.
        owner: Uid,
        /// User that should own the directory.
        user: Uid,
    },
    /// The user is one of those whom this user name space cannot tell apart, so others' directories
    /// look like its own.
    #[error(
        "{0} is not used: user {1} stands for all users without a number in this user namespace. Give the user one (unshare --map-current-user), or name a place of your own, such as SOJOURN_SERVER=DIR/server (sojournd --address DIR/server)"
    )]
    Nobodys(PathBuf, Uid),
    /// Other users may enter or change the directory.
    #[error("{0} is open to other users: chmod 700 it, or remove it")]
    Open(PathBuf),
    /// The path is not a directory.
    #[error("{0} is not a directory (or a symbolic link to one): remove it")]
    NotADirectory(PathBuf),
    /// The kernel refused a system call.
    #[error("{path}: {error}. {advice}", path = .0.display(), error = .1, advice = instead_of_refused(.0, *.1))]
    System(PathBuf, Errno),
}

/// Returns the advice for a directory that the kernel refuses.
fn instead_of_refused(directory: &Path, error: Errno) -> &'static str {
    let is_the_systems = Path::new(SYSTEM).parent() == Some(directory);
    match error {
        // Root of the initial user namespace is never refused root's own directory.
        Errno::ACCESS | Errno::PERM if directory == Path::new(ROOTS) => {
            "Root of a user namespace is another user outside of it: name another place, such as SOJOURN_SERVER=DIR/server (sojournd --address DIR/server)"
        }
        Errno::ACCESS | Errno::PERM if is_the_systems => {
            "Only root can serve the whole system, and root of a user namespace is another user outside of it: start the server as root, with --user, or at a place of your own, such as SOJOURN_SERVER=DIR/server (sojournd --address DIR/server)"
        }
        _ => {
            "Name a place in a folder that is there and can be written, such as SOJOURN_SERVER=DIR/server (sojournd --address DIR/server)"
        }
    }
}

/// Returns the advice for a directory that belongs to another user.
fn instead_of(directory: &Path, user: Uid) -> &'static str {
    let is_roots = user.is_root() && directory == Path::new(ROOTS);
    match is_roots || Path::new(SYSTEM).parent() == Some(directory) {
        false => "Unset XDG_RUNTIME_DIR if it is another user's",
        // Both directories belong to root, unless root is that of another user namespace.
        true if user.is_root() => {
            "Root of a user namespace is another user outside of it: name another place, such as SOJOURN_SERVER=DIR/server"
        }
        true => "Only root can serve the whole system: start the server as root, or with --user",
    }
}

/// Parts of the environment that determine the server's address, as values so that tests can set
/// them.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Value of `SOJOURN_SERVER` or of the setting `server`.
    pub server: Option<String>,
    /// Value of `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// Effective user ID.
    pub user: Uid,
    /// Path of the system's server, normally [`SYSTEM`].
    pub system: PathBuf,
    /// Directory for the servers of users without `runtime`, normally `/tmp`.
    pub temporary: PathBuf,
    /// Directory of root's own server.
    roots: PathBuf,
}

impl Surroundings {
    /// Returns the environment of this process. `server` is the configured address, or empty for
    /// none.
    #[must_use]
    pub fn of_this_process(server: &str) -> Self {
        let filled = |text: &std::ffi::OsString| !text.is_empty();
        Self {
            server: (!server.is_empty()).then(|| server.to_owned()),
            runtime: std::env::var_os("XDG_RUNTIME_DIR").filter(filled).map(PathBuf::from),
            user: rustix::process::geteuid(),
            system: PathBuf::from(SYSTEM),
            temporary: PathBuf::from("/tmp"),
            roots: PathBuf::from(ROOTS),
        }
    }

    /// Returns the environment of another process, with paths as this process sees them. `root` is
    /// the other process's root directory.
    #[must_use]
    pub fn of_other(root: &Path, server: &str, runtime: Option<&Path>, user: Uid) -> Self {
        let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
        let runtime = runtime.filter(|path| path.is_absolute());
        Self {
            server: (!server.is_empty()).then(|| server.to_owned()),
            runtime: runtime.map(inside),
            user,
            system: inside(Path::new(SYSTEM)),
            temporary: inside(Path::new("/tmp")),
            roots: inside(Path::new(ROOTS)),
        }
    }

    /// Returns the path of this user's own server; the server need not exist.
    #[must_use]
    pub fn own(&self) -> PathBuf {
        self.user_directory().join("server")
    }

    fn user_directory(&self) -> PathBuf {
        if self.user.is_root() {
            // `su` and `sudo` may keep the environment of the calling user, so root does not trust
            // `XDG_RUNTIME_DIR`.
            return self.roots.clone();
        }
        match self.runtime.as_ref().filter(|path| path.is_absolute()) {
            Some(runtime) => runtime.join("sojourn"),
            None => self.temporary.join(format!("sojourn-{}", self.user)),
        }
    }

    /// Returns the address of the server for a client, in the form that
    /// `sojourn_ipc::Address::parse` reads.
    ///
    /// The configured address comes first, then the system's server if its socket exists, then the
    /// user's own. A server need not listen at the returned address.
    ///
    /// # Errors
    /// [`PlaceError`] if the user's own directory exists and cannot be trusted.
    pub fn for_client(&self) -> Result<String, PlaceError> {
        if let Some(server) = &self.server {
            return Ok(server.clone());
        }
        let own = self.own();
        if !is_socket(&self.system) {
            match check(&self.user_directory(), self.user) {
                Ok(()) | Err(PlaceError::System(_, Errno::NOENT)) => {}
                Err(_) if is_kept(&own, self.user) => {}
                Err(error) => return Err(error),
            }
            return Ok(own.to_string_lossy().into_owned());
        }
        Ok(self.system.to_string_lossy().into_owned())
    }

    /// Makes the directory of the user's own server and returns the path for the server's socket.
    ///
    /// # Errors
    /// [`PlaceError`] if the directory cannot be made or cannot be trusted.
    pub fn prepare_own(&self) -> Result<PathBuf, PlaceError> {
        let directory = self.user_directory();
        make(&directory, Mode::RWXU)?;
        check(&directory, self.user)?;
        Ok(self.own())
    }

    /// Makes the directory of the system's server and returns the path for the server's socket.
    ///
    /// # Errors
    /// [`PlaceError`] if the directory cannot be made or cannot be trusted.
    pub fn prepare_system(&self) -> Result<PathBuf, PlaceError> {
        let directory = self.system.parent().unwrap_or(Path::new("/"));
        let everybody = Mode::RWXU | Mode::RGRP | Mode::XGRP | Mode::ROTH | Mode::XOTH;
        make(directory, everybody)?;
        let found = stat_directory(directory)?;
        if found.st_uid != self.user.as_raw() {
            return Err(foreign(directory, &found, self.user));
        }
        if found.st_mode & 0o022 != 0 {
            return Err(PlaceError::Open(directory.into()));
        }
        Ok(self.system.clone())
    }
}

fn make(directory: &Path, mode: Mode) -> Result<(), PlaceError> {
    match rustix::fs::mkdir(directory, mode) {
        // The umask of the process may have removed bits from the mode (mkdir(2)).
        Ok(()) => rustix::fs::chmod(directory, mode)
            .map_err(|error| PlaceError::System(directory.into(), error)),
        Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(PlaceError::System(directory.into(), error)),
    }
}

/// Returns the metadata of the directory itself; a symbolic link is not followed.
pub(crate) fn stat_directory(directory: &Path) -> Result<rustix::fs::Stat, PlaceError> {
    let system = |error| PlaceError::System(directory.into(), error);
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = openat(CWD, directory, flags, Mode::empty()).map_err(system)?;
    let found = rustix::fs::fstat(&fd).map_err(system)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(PlaceError::NotADirectory(directory.into()));
    }
    Ok(found)
}

fn check(directory: &Path, user: Uid) -> Result<(), PlaceError> {
    let found = stat_directory(directory)?;
    if found.st_uid != user.as_raw() {
        return Err(foreign(directory, &found, user));
    }
    if found.st_mode & 0o077 != 0 {
        return Err(PlaceError::Open(directory.into()));
    }
    if unmapped_user() == Some(user) {
        return Err(PlaceError::Nobodys(directory.into(), user));
    }
    Ok(())
}

/// Returns true if the socket belongs to this user or to root and no other user can replace it.
///
/// Its directory must belong to one of the two. If others may write there, the directory must have
/// the sticky bit, so that they can neither remove nor rename the socket (unlink(2)). A directory
/// that containers share has such a mode, 1777.
fn is_kept(socket: &Path, user: Uid) -> bool {
    const STICKY: u32 = 0o1000;
    const WRITABLE: u32 = 0o022;
    let is_told_apart = unmapped_user() != Some(user);
    let is_ours = |found: &rustix::fs::Stat| {
        found.st_uid == user.as_raw() && is_told_apart || found.st_uid == 0
    };
    let holds = |found: rustix::fs::Stat| {
        is_ours(&found) && (found.st_mode & STICKY != 0 || found.st_mode & WRITABLE == 0)
    };
    let is_socket = |found: rustix::fs::Stat| {
        is_ours(&found) && FileType::from_raw_mode(found.st_mode) == FileType::Socket
    };
    socket.parent().is_some_and(|directory| stat_directory(directory).is_ok_and(holds))
        && rustix::fs::lstat(socket).is_ok_and(is_socket)
}

fn foreign(directory: &Path, found: &rustix::fs::Stat, user: Uid) -> PlaceError {
    PlaceError::Foreign { path: directory.into(), owner: Uid::from_raw(found.st_uid), user }
}

fn is_socket(path: &Path) -> bool {
    rustix::fs::stat(path)
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let path =
                std::env::temp_dir().join(format!("sojourn-place-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Returns an environment within the scratch directory, for the user that runs the tests.
    fn surroundings(scratch: &Scratch) -> Surroundings {
        Surroundings {
            server: None,
            runtime: Some(scratch.0.clone()),
            user: rustix::process::geteuid(),
            system: scratch.0.join("run/server"),
            temporary: "/tmp".into(),
            // Root gets the directory that any other user would have, so that the tests expect the
            // same path for both.
            roots: scratch.0.join("sojourn"),
        }
    }

    #[test]
    fn the_named_server_comes_first_then_the_systems_then_the_users() {
        let scratch = Scratch::new("order");
        let mut around = Surroundings { user: Uid::from_raw(4711), ..surroundings(&scratch) };
        let own = scratch.0.join("sojourn/server");
        assert_eq!(around.for_client().unwrap(), own.to_str().unwrap());
        std::fs::create_dir(scratch.0.join("run")).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&around.system).unwrap();
        assert_eq!(around.for_client().unwrap(), around.system.to_str().unwrap());
        around.server = Some("@other".into());
        assert_eq!(around.for_client().unwrap(), "@other");
        around = Surroundings { server: None, runtime: None, system: "/nowhere".into(), ..around };
        assert_eq!(around.own(), Path::new("/tmp/sojourn-4711/server"));
        around = Surroundings { user: Uid::ROOT, roots: "/nowhere-either".into(), ..around };
        assert_eq!(around.for_client().unwrap(), "/nowhere-either/server", "not everybody's");
        around.system = scratch.0.join("run/server");
        assert_eq!(around.for_client().unwrap(), around.system.to_str().unwrap());
    }

    #[test]
    fn a_directory_of_somebody_else_or_open_to_others_is_never_used() {
        let scratch = Scratch::new("foreign");
        let owner = rustix::process::geteuid();
        let directory = scratch.0.join("sojourn");
        std::fs::create_dir(&directory).unwrap();
        let stranger =
            Surroundings { user: Uid::from_raw(owner.as_raw() + 1), ..surroundings(&scratch) };
        assert!(matches!(stranger.for_client(), Err(PlaceError::Foreign { .. })));
        assert!(matches!(stranger.prepare_own(), Err(PlaceError::Foreign { .. })));
        rustix::fs::chmod(&directory, Mode::from_raw_mode(0o750)).unwrap();
        assert_eq!(check(&directory, owner), Err(PlaceError::Open(directory.clone())));
        rustix::fs::chmod(&directory, Mode::RWXU).unwrap();
        assert_eq!(check(&directory, owner), Ok(()));
        let link = scratch.0.join("link");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        assert_eq!(check(&link, owner), Err(PlaceError::NotADirectory(link)));
    }

    #[test]
    fn a_shared_directory_may_hold_the_socket_if_nobody_can_replace_it() {
        let scratch = Scratch::new("shared");
        let owner = rustix::process::geteuid();
        let directory = scratch.0.join("sojourn");
        std::fs::create_dir(&directory).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(directory.join("server")).unwrap();
        let mode = |mode| rustix::fs::chmod(&directory, Mode::from_raw_mode(mode)).unwrap();
        let around = Surroundings { user: owner, ..surroundings(&scratch) };
        mode(0o1777);
        assert!(around.for_client().is_ok());
        mode(0o777);
        assert!(around.for_client().is_err());
        let stranger =
            Surroundings { user: Uid::from_raw(owner.as_raw() + 4711), ..surroundings(&scratch) };
        mode(0o1777);
        assert_eq!(stranger.for_client().is_ok(), owner.is_root(), "only root's and one's own");
    }

    /// This test runs once more in a user name space without a map, where everybody's directories
    /// look like one's own.
    #[test]
    fn nobody_has_directories_of_its_own() {
        const FAILED: i32 = 101;
        let scratch = Scratch::new("nobody");
        let around = surroundings(&scratch);
        let own = around.prepare_own();
        if unmapped_user() == Some(around.user) {
            assert!(matches!(own, Err(PlaceError::Nobodys(..))), "{own:?}");
            return;
        }
        assert!(own.is_ok(), "{own:?}");
        let mut again = std::process::Command::new("unshare");
        again.arg("--user").arg(std::env::current_exe().unwrap());
        again.args(["--exact", "place::tests::nobody_has_directories_of_its_own"]);
        // Other ends mean that no such name space can be made here.
        let code = again.output().ok().and_then(|ended| ended.status.code());
        assert_ne!(code, Some(FAILED));
    }

    #[test]
    fn what_to_do_fits_whose_place_it_is() {
        let foreign = |path: &str, user| {
            let (owner, user) = (Uid::from_raw(65534), Uid::from_raw(user));
            PlaceError::Foreign { path: path.into(), owner, user }.to_string()
        };
        assert!(foreign("/run/sojourn", 0).contains("user namespace"));
        assert!(foreign("/run/sojourn-root", 0).contains("user namespace"));
        assert!(foreign("/run/sojourn", 1000).contains("as root"));
        assert!(foreign("/run/user/1", 1000).contains("XDG_RUNTIME_DIR"));
        let refused = |error| PlaceError::System("/run/sojourn".into(), error).to_string();
        assert!(refused(Errno::ROFS).contains("SOJOURN_SERVER"), "{}", refused(Errno::ROFS));
        assert!(!refused(Errno::ROFS).contains("as root"), "{}", refused(Errno::ROFS));
        assert!(refused(Errno::ACCESS).contains("as root, with --user"));
    }

    #[test]
    fn directories_are_made_with_their_modes() {
        let scratch = Scratch::new("made");
        let around = surroundings(&scratch);
        let system = around.prepare_system().unwrap();
        let mode = |path: &Path| rustix::fs::stat(path).unwrap().st_mode & 0o777;
        assert_eq!(mode(system.parent().unwrap()), 0o755);
        let own = around.prepare_own().unwrap();
        assert_eq!(mode(own.parent().unwrap()), 0o700);
        rustix::fs::chmod(system.parent().unwrap(), Mode::from_raw_mode(0o777)).unwrap();
        assert!(matches!(around.prepare_system(), Err(PlaceError::Open(_))));
    }
}
