//! Who may listen at the address of a server: the one rule for all who connect to it.
//!
//! Whoever listens is handed descriptors. A server may have ended, and any user may then listen at
//! its abstract name, or in a directory in which everybody may make files. So each new connection
//! is judged by the listener's credentials (`SO_PEERCRED`, unix(7)), which the kernel took when it
//! began to listen. Not here: the choice of an address (`place`).

use crate::place::{SYSTEM, stat_directory};
use crate::unmapped::unmapped_user;
use rustix::fs::{FileType, lstat, readlink};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Uid;
use sojourn_ipc::{Address, AddressError, Credentials};
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The most symbolic links of a path that are followed (`MAXSYMLINKS` of the kernel).
const LINKS_MAX: usize = 40;

/// The reason why no server was connected to.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A process of this user listens there, whom the caller's user cannot trust.
    #[error("served by user {0}")]
    Foreign(Uid),
    /// The kernel refused the connection.
    #[error(transparent)]
    System(#[from] Errno),
}

/// Connects to the server at `address`, if `user` can trust it: whoever listens is judged by this
/// very connection, because another one may listen at the next. `within`: how long the listener's
/// queue may be full, which it may be for ever; `None` to fail at once (`EAGAIN`).
///
/// # Errors
/// See [`ConnectError`].
pub fn connect(
    address: &str,
    user: Uid,
    within: Option<Duration>,
) -> Result<OwnedFd, ConnectError> {
    let name = Address::parse(address)?.socket_address().ok_or(Errno::NOENT)?;
    let wait = if within.is_none() { SocketFlags::NONBLOCK } else { SocketFlags::empty() };
    let flags = SocketFlags::CLOEXEC | wait;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    set_socket_timeout(&socket, Timeout::Send, within)?;
    rustix::net::connect(&socket, &name)?;
    let listener = sojourn_ipc::peer(socket.as_fd())?;
    match is_trusted(address, listener, user) {
        true => Ok(socket),
        false => Err(ConnectError::Foreign(listener.user())),
    }
}

/// Returns true if this is the address of the system's server, as seen from here or in the root
/// folder of another process (`/proc/PID/root`). Only root can put anything there, so root has
/// chosen as whom that server runs.
#[must_use]
pub fn is_systems(address: &str) -> bool {
    in_root_folder(address).path == SYSTEM
}

/// A path, apart from the root folder in which it is looked up.
struct InRootFolder<'a> {
    root: &'a str,
    path: &'a str,
}

/// Divides a path at the end of the root folder of another process (`/proc/PID/root`), if it begins
/// with one.
fn in_root_folder(path: &str) -> InRootFolder<'_> {
    let inside = |rest: &str| {
        let (pid, after) = rest.split_once('/')?;
        let is_number = pid.bytes().all(|byte| byte.is_ascii_digit()) && !pid.is_empty();
        let inside = after.strip_prefix("root").filter(|inside| inside.starts_with('/'))?;
        is_number.then_some(inside.len())
    };
    let len = path.strip_prefix("/proc/").and_then(inside).unwrap_or(path.len());
    let (root, path) = path.split_at(path.len() - len);
    InRootFolder { root: if root.is_empty() { "/" } else { root }, path }
}

/// Returns true if `user` can trust the process that listens at an address: root's, the user's own,
/// the system's server, or one whose user root has let listen there (`is_let_by_root`).
fn is_trusted(address: &str, listener: Credentials, user: Uid) -> bool {
    let owner = listener.user();
    owner.is_root()
        || owner == user
        || is_systems(address)
        || is_let_by_root(address, listener, user)
}

/// Returns true if the socket is in a directory of root's that others cannot write to, except the
/// listener's group: root has given the directory to it. An access control list other than that
/// shows as rights of the directory's group (acl(5)), which then is not the listener's.
///
/// The path is looked up once more here, after the connection was made: so nobody else may be able
/// to lead it elsewhere (`is_held`).
fn is_let_by_root(address: &str, listener: Credentials, user: Uid) -> bool {
    const OTHERS_WRITE: u32 = 0o002;
    const GROUP_WRITES: u32 = 0o020;
    // An abstract name has no directory.
    let path = Some(Path::new(address)).filter(|_| !address.starts_with('@'));
    let path = path.and_then(|path| std::path::absolute(path).ok());
    let Some(directory) = path.as_deref().and_then(Path::parent) else { return false };
    stat_directory(directory).is_ok_and(|found| {
        found.st_uid == 0
            && found.st_mode & OTHERS_WRITE == 0
            && (found.st_mode & GROUP_WRITES == 0 || found.st_gid == listener.gid)
    }) && directory.parent().is_none_or(|parent| is_held(parent, user))
}

/// Returns true if nobody but root and the user decides to what an absolute path leads: each
/// directory and each symbolic link on the way is theirs, and others can replace none of them.
fn is_held(path: &Path, user: Uid) -> bool {
    let Some(InRootFolder { root, path }) = path.to_str().map(in_root_folder) else { return false };
    let is_told_apart = unmapped_user() != Some(user);
    let is_ours = |uid: u32| uid == 0 || (uid == user.as_raw() && is_told_apart);
    let mut at = PathBuf::from(root);
    let mut rest = parts(path.as_bytes());
    let mut links = 0;
    while let Some(part) = rest.pop() {
        if part == ".." {
            // Above the root folder is nothing.
            if at != Path::new(root) {
                at.pop();
            }
            continue;
        }
        at.push(part);
        let Ok(found) = lstat(&at) else { return false };
        match FileType::from_raw_mode(found.st_mode) {
            _ if !is_ours(found.st_uid) => return false,
            FileType::Directory if !can_others_replace_in(&found) => {}
            FileType::Symlink if links < LINKS_MAX => {
                let Ok(to) = readlink(&at, Vec::new()) else { return false };
                links += 1;
                at.pop();
                if to.as_bytes().starts_with(b"/") {
                    at = PathBuf::from(root);
                }
                rest.extend(parts(to.as_bytes()));
            }
            _ => return false,
        }
    }
    true
}

/// Returns true if others than its owner can rename or remove what its owner or root has in a
/// directory.
fn can_others_replace_in(directory: &rustix::fs::Stat) -> bool {
    const STICKY: u32 = 0o1000;
    let by_group = directory.st_mode & 0o020 != 0 && directory.st_gid != 0;
    directory.st_mode & STICKY == 0 && (by_group || directory.st_mode & 0o002 != 0)
}

/// Returns the parts of a path, the last one first.
fn parts(path: &[u8]) -> Vec<OsString> {
    let parts = path.split(|byte| *byte == b'/').rev();
    let parts = parts.filter(|part| !part.is_empty() && *part != b".");
    parts.map(|part| OsStr::from_bytes(part).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};

    fn listener(uid: u32) -> Credentials {
        Credentials { pid: 1, uid, gid: uid }
    }

    #[test]
    fn the_systems_place_is_one_by_its_whole_name() {
        assert!(is_systems("/run/sojourn/server"));
        assert!(is_systems("/proc/4711/root/run/sojourn/server"));
        for other in [
            "/tmp/run/sojourn/server",
            "/run/sojourn/server2",
            "/proc/self/../root/run/sojourn/server",
            "/proc//root/run/sojourn/server",
            "/proc/4711/cwd/run/sojourn/server",
            "/proc/4711/root/tmp/run/sojourn/server",
            "@/run/sojourn/server",
        ] {
            assert!(!is_systems(other), "{other}");
        }
    }

    #[test]
    fn root_oneself_and_the_systems_server_are_trusted_wherever_they_listen() {
        let user = Uid::from_raw(4711);
        for address in ["@name", "/tmp/server", "server", "/nowhere/server"] {
            assert!(is_trusted(address, listener(0), user), "{address}");
            assert!(is_trusted(address, listener(4711), user), "{address}");
        }
        assert!(is_trusted(SYSTEM, listener(4712), user));
        // `/tmp` is everybody's.
        for address in ["@name", "/tmp/server", "/nowhere/server"] {
            assert!(!is_trusted(address, listener(4712), user), "{address}");
            assert!(!is_trusted(address, listener(4712), Uid::ROOT), "{address}");
        }
    }

    #[test]
    fn another_user_is_trusted_in_a_directory_that_root_gave_it_only() {
        let name = format!("sojourn-trust-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
        let address = directory.join("server");
        let is_trusted = |owner: Option<u32>, group: u32, mode: u32| {
            chown(&directory, owner, Some(group)).ok()?;
            std::fs::set_permissions(&directory, PermissionsExt::from_mode(mode)).ok()?;
            Some(super::is_trusted(address.to_str()?, listener(4712), Uid::from_raw(4711)))
        };
        let cases = [
            (0, 0, 0o1777, false),
            (0, 4712, 0o1777, false),
            (0, 4713, 0o775, false),
            (0, 4712, 0o775, true),
            (0, 4712, 0o1775, true),
            (0, 4713, 0o755, true),
            // Its user can make a directory in a place that another server has left.
            (4712, 4712, 0o700, false),
            (4711, 4712, 0o777, false),
        ];
        for (owner, group, mode, wanted) in cases {
            match is_trusted(Some(owner), group, mode) {
                Some(trusted) => assert_eq!(trusted, wanted, "{owner} {group} {mode:o}"),
                None => eprintln!("skipped: not root"),
            }
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// Whoever owns a directory above that of the socket leads the path first to a socket of its
    /// own, and to a directory of root's when that is looked at.
    #[test]
    fn a_path_that_others_can_lead_elsewhere_is_none_that_root_has_given() {
        const OTHER: u32 = 4712;
        let name = format!("sojourn-trust-path-{}", std::process::id());
        let top = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o755).create(&top).unwrap();
        let make = |path: &Path, owner: u32, mode: u32| {
            std::fs::create_dir(path).ok()?;
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).ok()?;
            chown(path, Some(owner), Some(owner)).ok()
        };
        let link = |path: &Path, owner: u32| {
            std::os::unix::fs::symlink(top.join("good"), path).ok()?;
            std::os::unix::fs::lchown(path, Some(owner), Some(owner)).ok()
        };
        let made = || {
            for (name, owner, mode) in
                [("good", 0, 0o755), ("own", 4711, 0o755), ("foreign", OTHER, 0o755)]
            {
                make(&top.join(name), owner, mode)?;
                make(&top.join(name).join("run"), 0, 0o755)?;
            }
            make(&top.join("open"), 0, 0o777)?;
            make(&top.join("open/run"), 0, 0o755)?;
            make(&top.join("sticky"), 0, 0o1777)?;
            make(&top.join("sticky/run"), 0, 0o755)?;
            link(&top.join("link"), 0)?;
            link(&top.join("sticky/link"), OTHER)
        };
        if made().is_none() {
            eprintln!("skipped: not root");
        } else {
            let is_trusted = |path: &str, user: u32| {
                let address = top.join(path);
                super::is_trusted(address.to_str().unwrap(), listener(OTHER), Uid::from_raw(user))
            };
            for path in ["good/run/server", "own/run/server", "sticky/run/server"] {
                assert!(is_trusted(path, 4711), "{path}");
            }
            assert!(is_trusted("link/run/server", 0) && is_trusted("own/../good/run/server", 4711));
            for path in ["foreign/run/server", "open/run/server", "sticky/link/run/server"] {
                assert!(!is_trusted(path, 4711), "{path}");
            }
            assert!(!is_trusted("own/run/server", 0), "another user's");
        }
        std::fs::remove_dir_all(&top).unwrap();
    }
}
