//! Features of the kernel. Each is tried: a version number does not show a feature that is
//! backported, compiled out or filtered.

use super::item::Item;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::thread::{ClockId, futex};

/// A release of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
}

/// The first release with all features that Sojourn uses.
const WHOLE: Version = Version { major: 5, minor: 16 };
/// The first release with `pidfd_open`, without which nothing works.
const LEAST: Version = Version { major: 5, minor: 6 };

pub(super) fn release() -> Item {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    let version = version_of(&release);
    match version {
        Some(version) if version < LEAST => {
            Item::missing("kernel", release, "use Linux 5.16 or later")
        }
        Some(version) if version < WHOLE => {
            Item::limited("kernel", release, "Linux 5.16 or later wakes servers faster")
        }
        _ => Item::ok("kernel", release),
    }
}

fn version_of(release: &str) -> Option<Version> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some(Version { major: numbers.next()?.ok()?, minor: numbers.next()?.ok()? })
}

/// Checks futex_waitv(2). A kernel that has the call refuses an empty list.
pub(super) fn futex_waitv() -> Item {
    const NAME: &str = "futex_waitv";
    match futex::waitv(&[], futex::WaitvFlags::empty(), None, ClockId::Monotonic) {
        Err(Errno::INVAL) => Item::ok(NAME, "there"),
        Ok(_) => Item::ok(NAME, "there"),
        Err(error) if is_filtered(error, WHOLE) => Item::limited(
            NAME,
            format!("{error}, in a kernel that has it"),
            "a system call filter forbids it (a container's seccomp profile): allow futex_waitv; until then the session server answers slower",
        ),
        Err(Errno::NOSYS) => Item::limited(
            NAME,
            "not in this kernel",
            "the session server answers slower; Linux 5.16 has it",
        ),
        Err(error) => Item::limited(NAME, error.to_string(), "the session server answers slower"),
    }
}

/// Returns true if a seccomp filter refuses a call that kernels have since `since`. Filters of
/// containers return EPERM, or ENOSYS as a kernel without the call does.
fn is_filtered(error: Errno, since: Version) -> bool {
    let name = rustix::system::uname();
    let version = version_of(&name.release().to_string_lossy());
    match error {
        Errno::PERM => true,
        Errno::NOSYS => version.is_some_and(|version| version >= since),
        _ => false,
    }
}

/// Checks event descriptors, epoll and process descriptors.
pub(super) fn events() -> Item {
    const NAME: &str = "events";
    let tried = eventfd(0, EventfdFlags::CLOEXEC)
        .and_then(|_| epoll::create(epoll::CreateFlags::CLOEXEC))
        .and_then(|_| {
            let own = rustix::process::getpid();
            rustix::process::pidfd_open(own, rustix::process::PidfdFlags::empty())
        });
    match tried {
        Ok(_) => Item::ok(NAME, "eventfd, epoll, pidfd"),
        Err(error) if is_filtered(error, LEAST) => Item::missing(
            NAME,
            format!("eventfd, epoll or pidfd_open: {error}, in a kernel that has them"),
            "a system call filter forbids them (a container's seccomp profile): allow them",
        ),
        Err(error) => Item::missing(
            NAME,
            format!("eventfd, epoll or pidfd_open: {error}"),
            "use Linux 5.6 or later",
        ),
    }
}

/// Checks a descriptor table of one thread's own (unshare(2)), without which the library moves
/// nothing.
pub(super) fn tables() -> Item {
    const NAME: &str = "descriptor-tables";
    // The check runs on a thread of its own: the new table ends with the thread.
    let tried = std::thread::spawn(|| {
        // SAFETY: no descriptor is closed, and the table is this thread's that ends.
        unsafe {
            let most = libc::c_uint::MAX;
            let flags = libc::CLOSE_RANGE_UNSHARE;
            if libc::syscall(libc::SYS_close_range, most, most, flags) == 0
                || libc::unshare(libc::CLONE_FILES) == 0
            {
                return Ok(());
            }
        }
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::PERM))
    });
    match tried.join() {
        Ok(Ok(())) => Item::ok(NAME, "a thread can have one of its own"),
        Ok(Err(error)) => Item::missing(
            NAME,
            format!("close_range and unshare: {error}"),
            "a system call filter forbids them (a container's seccomp profile): allow close_range with CLOSE_RANGE_UNSHARE, or unshare with CLONE_FILES; until then programs stay in the kernel (prohibited)",
        ),
        Err(_) => Item::missing(
            NAME,
            "no thread can be started",
            "raise the limit of processes (ulimit -u)",
        ),
    }
}

/// Checks file seals: memory that can be shared with a process that is not trusted.
pub(super) fn seals() -> Item {
    const NAME: &str = "sealed-memory";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let tried = rustix::fs::memfd_create(c"sojourn-doctor", flags).and_then(|memory| {
        rustix::fs::ftruncate(&memory, 4096)?;
        rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
    });
    match tried {
        Ok(()) => Item::ok(NAME, "memfd with seals"),
        Err(error) => Item::missing(
            NAME,
            format!("memfd_create or its seals: {error}"),
            "allow memfd_create and F_ADD_SEALS where a filter forbids them",
        ),
    }
}

/// Checks `sock_diag` for Unix sockets, without which their ends cannot be paired.
pub(super) fn unix_diag() -> Item {
    const NAME: &str = "unix_diag";
    match crate::sessions::unix_diag_works() {
        Ok(()) => Item::ok(NAME, "the kernel names the peers of Unix sockets"),
        Err(error) => Item::limited(
            NAME,
            format!("sock_diag for Unix sockets: {error}"),
            "Unix sockets stay in the kernel; load the module unix_diag, or build it in (CONFIG_UNIX_DIAG)",
        ),
    }
}

/// Checks access to other processes in `/proc`.
pub(super) fn processes() -> Item {
    const NAME: &str = "proc";
    let own = std::fs::read_dir("/proc/self/fd").and_then(|_| std::fs::read("/proc/self/net/tcp"));
    if let Err(error) = own {
        let advice = "mount /proc here: holders of sessions are looked up in it";
        return Item::missing(NAME, format!("/proc: {error}"), advice);
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let hides = hidepid(&mounts);
    if rustix::process::geteuid().is_root() {
        return Item::ok(NAME, "every process can be looked into");
    }
    match hides {
        None => Item::ok(NAME, "processes of this user can be looked into"),
        Some(hidden) => Item::limited(
            NAME,
            format!("mounted with {hidden}"),
            "sessions of other users are not paired, nor those that another user's process may have open; a server run as root can (systemctl start sojournd)",
        ),
    }
}

/// Returns the mount option by which `/proc` hides processes, if there is one.
fn hidepid(mounts: &str) -> Option<String> {
    let proc = mounts.lines().rev().find(|line| line.split(' ').nth(4) == Some("/proc"))?;
    let option = proc.split([' ', ',']).find(|option| option.starts_with("hidepid="))?;
    (!matches!(option, "hidepid=0" | "hidepid=off")).then(|| option.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_as_numbers() {
        assert_eq!(version_of("6.18.44-fc"), Some(Version { major: 6, minor: 18 }));
        assert_eq!(version_of("5.6-rc1"), Some(LEAST));
        assert_eq!(version_of("what"), None);
    }

    #[test]
    fn hidden_processes_are_noticed() {
        let mounts = |options: &str| {
            format!(
                "1 2 0:3 / /sys rw - sysfs s rw,hidepid=2\n4 5 0:6 / /proc rw - proc proc rw{options}\n"
            )
        };
        assert_eq!(hidepid(&mounts("")), None);
        assert_eq!(hidepid(&mounts(",hidepid=off")), None);
        assert_eq!(hidepid(&mounts(",hidepid=invisible")), Some("hidepid=invisible".into()));
    }
}
