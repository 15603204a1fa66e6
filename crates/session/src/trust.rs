//! Who may listen at the address of a server: the one rule for all who connect to it.
//!
//! Whoever listens is handed descriptors. A server may have ended, and any user may then listen at
//! its abstract name, or in a directory in which everybody may make files. So each new connection
//! is judged by the listener's credentials (`SO_PEERCRED`, unix(7)), which the kernel took when it
//! began to listen. Not here: the choice of an address (`place`).

use crate::place::{SYSTEM, stat_directory};
use rustix::process::Uid;
use sojourn_ipc::Credentials;
use std::path::Path;

/// Returns true if this is the address of the system's server, as seen from here or in the root
/// folder of another process (`/proc/PID/root`). Only root can put anything there, so root has
/// chosen as whom that server runs.
#[must_use]
pub fn is_systems(address: &str) -> bool {
    let inside = |rest: &str| {
        let (pid, path) = rest.split_once('/')?;
        let is_number = pid.bytes().all(|byte| byte.is_ascii_digit()) && !pid.is_empty();
        path.strip_prefix("root").filter(|_| is_number).map(|path| path == SYSTEM)
    };
    address == SYSTEM || address.strip_prefix("/proc/").and_then(inside) == Some(true)
}

/// Returns true if `user` can trust the process that listens at an address: root's, the user's own,
/// the system's server, or one whose user root has let listen there (`is_let_by_root`).
#[must_use]
pub fn is_trusted(address: &str, listener: Credentials, user: Uid) -> bool {
    let owner = listener.user();
    owner.is_root() || owner == user || is_systems(address) || is_let_by_root(address, listener)
}

/// Returns true if the socket is in a directory of root's that others cannot write to, except the
/// listener's group: root has given the directory to it. An access control list other than that
/// shows as rights of the directory's group (acl(5)), which then is not the listener's.
fn is_let_by_root(address: &str, listener: Credentials) -> bool {
    const OTHERS_WRITE: u32 = 0o002;
    const GROUP_WRITES: u32 = 0o020;
    // An abstract name has no directory.
    let path = Some(Path::new(address)).filter(|_| !address.starts_with('@'));
    let Some(directory) = path.and_then(Path::parent) else { return false };
    // A path without a directory is one in the working directory.
    let here = Path::new(".");
    let directory = if directory == Path::new("") { here } else { directory };
    stat_directory(directory).is_ok_and(|found| {
        found.st_uid == 0
            && found.st_mode & OTHERS_WRITE == 0
            && (found.st_mode & GROUP_WRITES == 0 || found.st_gid == listener.gid)
    })
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
}
