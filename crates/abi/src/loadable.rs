//! The programs of [`Class::Loaded`](crate::class::Class) that are not loaded nevertheless, because
//! they would not run as the kernel runs them.
//!
//! A caller asks before it starts the loader in a program's place, while the kernel can still
//! refuse the program itself, or give it rights. Nothing allocates, because a child of vfork(2)
//! shares its parent's memory. Not here: the class (`class`); what the loader finds in the program
//! (its own refusals).

use core::ffi::CStr;

/// Makes a system call. Returns the kernel's result.
pub trait Kernel: Fn(i64, [usize; 6]) -> isize {}

impl<F: Fn(i64, [usize; 6]) -> isize> Kernel for F {}

/// A program's file.
#[derive(Clone, Copy, Debug)]
pub struct File<'f> {
    /// The path by which it is to be started.
    pub path: &'f CStr,
    /// Its descriptor.
    pub fd: usize,
    /// Its mode, as fstat(2) tells it.
    pub mode: u32,
}

/// Returns true if the loader may be started for a program.
pub fn is_loadable(file: File<'_>, kernel: impl Kernel) -> bool {
    is_lasting(file.path.to_bytes())
        && is_executable(file.path, &kernel)
        && !gains_rights(file, &kernel)
        && has_room(&kernel)
        && !is_traced(&kernel)
}

/// Returns false for names of descriptors, which may lead nowhere once the loader is there: most
/// are closed by then.
fn is_lasting(path: &[u8]) -> bool {
    !path.starts_with(b"/proc/") && !path.starts_with(b"/dev/")
}

/// Returns true if this process may execute the file, which the kernel would ask only about the
/// loader's.
fn is_executable(path: &CStr, kernel: &impl Kernel) -> bool {
    let (here, path) = (libc::AT_FDCWD as usize, path.as_ptr() as usize);
    let how = [here, path, libc::X_OK as usize, libc::AT_EACCESS as usize, 0, 0];
    match kernel(libc::SYS_faccessat2, how) {
        0 => true,
        // An old kernel, or a filter of system calls that does not know the call.
        error if [libc::ENOSYS, libc::EPERM].contains(&(-error as i32)) => {
            kernel(libc::SYS_faccessat, how) == 0
        }
        _ => false,
    }
}

/// Returns true if the kernel gives the program rights of its own, which it cannot give to another
/// file.
fn gains_rights(file: File<'_>, kernel: &impl Kernel) -> bool {
    const CAPABILITIES: &CStr = c"security.capability";
    file.mode & (libc::S_ISUID | libc::S_ISGID) != 0
        || kernel(libc::SYS_fgetxattr, [file.fd, CAPABILITIES.as_ptr() as usize, 0, 0, 0, 0]) > 0
}

/// Returns true if the limits leave room for a second C library and its files.
fn has_room(kernel: &impl Kernel) -> bool {
    const LEAST: [(u32, u64); 3] =
        [(libc::RLIMIT_AS, 256 << 20), (libc::RLIMIT_DATA, 64 << 20), (libc::RLIMIT_NOFILE, 32)];
    LEAST
        .iter()
        .all(|(resource, least)| soft_limit(kernel, *resource).is_none_or(|limit| limit >= *least))
}

/// Returns the soft limit of this process on a resource (getrlimit(2)); `None` if the kernel does
/// not say.
#[inline]
pub fn soft_limit(kernel: &impl Kernel, resource: u32) -> Option<u64> {
    // `struct rlimit`: the soft limit and the hard one.
    let mut limit = [u64::MAX; 2];
    let at = limit.as_mut_ptr() as usize;
    let result = kernel(libc::SYS_prlimit64, [0, resource as usize, 0, at, 0, 0]);
    (result == 0).then_some(limit[0])
}

/// Returns true if a debugger or another tracer sees this process's program begin: it expects that
/// program's file, at that program's addresses.
fn is_traced(kernel: &impl Kernel) -> bool {
    const STATUS: &CStr = c"/proc/thread-self/status";
    const FIELD: &[u8] = b"\nTracerPid:\t";
    let mut text = [0u8; 512];
    let (here, path) = (libc::AT_FDCWD as usize, STATUS.as_ptr() as usize);
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
    let Ok(fd) = usize::try_from(kernel(libc::SYS_openat, [here, path, flags, 0, 0, 0])) else {
        return false;
    };
    let got = kernel(libc::SYS_read, [fd, text.as_mut_ptr() as usize, text.len(), 0, 0, 0]);
    kernel(libc::SYS_close, [fd, 0, 0, 0, 0, 0]);
    let text = text.get(..usize::try_from(got).unwrap_or(0)).unwrap_or_default();
    let at = text.windows(FIELD.len()).position(|part| part == FIELD);
    at.is_some_and(|at| text.get(at + FIELD.len()).is_some_and(|first| *first != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks about a program; the kernel answers one call in another way than for an ordinary one.
    fn is(path: &CStr, mode: u32, number: i64, answer: isize) -> bool {
        let kernel = move |asked, _: [usize; 6]| match asked {
            libc::SYS_faccessat2 if number == libc::SYS_faccessat => -(libc::ENOSYS as isize),
            _ if asked == number => answer,
            libc::SYS_fgetxattr => -(libc::ENODATA as isize),
            libc::SYS_openat => -(libc::ENOENT as isize),
            _ => 0,
        };
        is_loadable(File { path, fd: 3, mode }, kernel)
    }

    #[test]
    fn what_the_kernel_would_refuse_or_endow_is_not_loaded() {
        let none = -(libc::EACCES as isize);
        assert!(is(c"/bin/true", 0o755, -1, 0));
        assert!(is(c"/bin/true", 0o755, libc::SYS_faccessat, 0));
        assert!(!is(c"/bin/true", 0o755, libc::SYS_faccessat, none));
        assert!(!is(c"/bin/true", 0o755, libc::SYS_faccessat2, none));
        assert!(!is(c"/bin/true", 0o755, libc::SYS_fgetxattr, 20));
        assert!(!is(c"/bin/true", 0o4755, -1, 0));
        assert!(!is(c"/proc/self/fd/3", 0o755, -1, 0));
    }
}
