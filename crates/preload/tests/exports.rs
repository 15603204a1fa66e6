//! The symbols that the library exports to the programs that load it: functions of the C library,
//! under their names, and of its own the table by which rings are lent.

#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::HashSet;
use std::process::Command;

/// Returns the dynamic symbols of a file: those that it defines (`--defined-only`), or those that
/// it refers to (`--undefined-only`). `None` if there is no `nm`.
fn symbols(file: &str, which: &str) -> Option<Vec<String>> {
    let output = Command::new("nm").args(["-D", which, file]).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let name = |line: &str| Some(line.split_whitespace().last()?.split('@').next()?.to_owned());
    Some(text.lines().filter_map(name).collect())
}

fn libc() -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line =
        maps.lines().find(|line| line.contains("/libc.so") || line.contains("/libc-")).unwrap();
    line.split_whitespace().last().unwrap().to_owned()
}

#[test]
fn only_functions_of_the_c_library_are_exported() {
    let Some(ours) = symbols(common::library().to_str().unwrap(), "--defined-only") else {
        eprintln!("skipped: no nm");
        return;
    };
    assert!(ours.iter().any(|name| name == "read"), "{ours:?}");
    // Functions of later C libraries are not in the C library of this machine, but have the names
    // of C functions.
    let theirs: HashSet<String> = symbols(&libc(), "--defined-only").unwrap().into_iter().collect();
    let foreign: Vec<_> = ours.iter().filter(|name| !theirs.contains(*name)).collect();
    // A sanitizer asks for its options by calling `__asan_default_options`.
    let is_later = |name: &str| {
        name.starts_with("__isoc23_")
            || ["epoll_pwait2", "pidfd_spawn", "pidfd_spawnp", "__asan_default_options"]
                .contains(&name)
    };
    let own: Vec<_> = foreign.into_iter().filter(|name| !is_later(name)).collect();
    // `sojourn-buffers` looks for this name.
    assert_eq!(own, ["sojourn_buffers_v1"], "exported, but not of the C library");
}

/// The names, without prefixes and suffixes, of the C library's functions that use descriptors
/// which may have a session.
const STEMS: &str = "read write readv writev pread pwrite preadv pwritev preadv2 pwritev2 recv send recvfrom sendto recvmsg sendmsg \
    recvmmsg sendmmsg sendfile splice tee vmsplice copy_file_range close close_range closefrom dup dup2 dup3 pipe pipe2 fcntl ioctl \
    socket socketpair accept accept4 connect bind listen shutdown setsockopt getsockopt getsockname getpeername sockatmark isfdtype \
    select pselect poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 open openat creat \
    open_by_handle_at lseek ftruncate fallocate posix_fallocate lockf fsync fdatasync sync_file_range readahead mmap fdopen fopen \
    freopen fclose popen pclose fork vfork clone execl execle execlp execv execve execvp execvpe fexecve execveat posix_spawn \
    posix_spawnp pidfd_spawn pidfd_spawnp system wordexp daemon forkpty login_tty aio_read aio_write aio_fsync lio_listio dprintf vdprintf backtrace_symbols_fd syscall \
    pidfd_getfd eventfd_read eventfd_write fdelt prctl unshare setns exit _exit";

/// The functions that the library does not replace, with the reason.
const EXPLAINED: [(&str, &str); 7] = [
    (
        "pread pwrite preadv pwritev lseek copy_file_range",
        "refused by the kernel for sockets and pipes (ESPIPE, EINVAL)",
    ),
    (
        "fallocate posix_fallocate lockf fsync fdatasync sync_file_range readahead aio_fsync",
        "likewise, or nothing to do",
    ),
    ("open_by_handle_at", "of files only"),
    (
        "bind listen getsockname getpeername isfdtype sockatmark",
        "the descriptor is the kernel's, and knows",
    ),
    ("eventfd_read eventfd_write", "of no socket and no pipe"),
    ("exit", "the library's destructor runs in it"),
    (
        "fdelt pidfd_getfd",
        "a check of a number; a way around the library, in docs/use/linux-differences.md",
    ),
];

/// Returns a function's name without the prefixes and suffixes of its variants.
fn stem(name: &str) -> &str {
    let name = ["__libc_", "__"].iter().find_map(|start| name.strip_prefix(start)).unwrap_or(name);
    let name =
        ["_chk", "_nocancel", "_2"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
    name.strip_suffix("64").unwrap_or(name)
}

#[test]
fn every_function_that_uses_descriptors_is_served_or_explained() {
    let Some(ours) = symbols(common::library().to_str().unwrap(), "--defined-only") else {
        eprintln!("skipped: no nm");
        return;
    };
    let ours: HashSet<String> = ours.into_iter().collect();
    let stems: HashSet<&str> = STEMS.split_whitespace().collect();
    let explained: HashSet<&str> =
        EXPLAINED.iter().flat_map(|(names, _)| names.split_whitespace()).collect();
    let theirs = public_symbols(&libc());
    let concerned: Vec<&String> = theirs.iter().filter(|name| stems.contains(stem(name))).collect();
    assert!(concerned.len() > 120, "only {}", concerned.len());
    let is_open = |name: &&&String| !ours.contains(**name) && !explained.contains(stem(name));
    let open: Vec<_> = concerned.iter().filter(is_open).collect();
    assert!(open.is_empty(), "neither served nor explained: {open:?}");
    let idle: Vec<_> = explained.iter().filter(|name| ours.contains(**name)).collect();
    assert!(idle.is_empty(), "explained and served: {idle:?}");
}

/// Returns the symbols that programs can be linked with, without those that the parts of the C
/// library have for each other.
fn public_symbols(file: &str) -> Vec<String> {
    let output = Command::new("nm").args(["-D", "--defined-only", file]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter_map(|line| line.split_whitespace().last());
    let names = names.filter(|name| !name.ends_with("GLIBC_PRIVATE"));
    names.filter_map(|name| Some(name.split('@').next()?.to_owned())).collect()
}
