//! The calls that the kernel serves alone before the host is in the process (`host`): they mean the
//! same with and without the library, whatever their arguments. Not here: those whose arguments
//! decide (`early`), the table of all calls (`kinds`).

/// Returns true for calls that the kernel serves alone, whatever their arguments.
pub(crate) const fn passes(number: i64) -> bool {
    is_of_files(number) || is_of_process(number)
}

const fn is_of_files(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_pread64
            | libc::SYS_pwrite64
            | libc::SYS_close
            | libc::SYS_lseek
            | libc::SYS_fstat
            | libc::SYS_stat
            | libc::SYS_lstat
            | libc::SYS_newfstatat
            | libc::SYS_statx
            | libc::SYS_statfs
            | libc::SYS_fstatfs
            | libc::SYS_access
            | libc::SYS_faccessat
            | libc::SYS_faccessat2
            | libc::SYS_ftruncate
            | libc::SYS_fsync
            | libc::SYS_fadvise64
            | libc::SYS_getdents64
            | libc::SYS_getcwd
            | libc::SYS_chdir
            | libc::SYS_fchdir
            | libc::SYS_mkdir
            | libc::SYS_rmdir
            | libc::SYS_unlink
            | libc::SYS_unlinkat
            | libc::SYS_rename
            | libc::SYS_symlink
            | libc::SYS_link
            | libc::SYS_chmod
            | libc::SYS_utimensat
            | libc::SYS_umask
    )
}

const fn is_of_process(number: i64) -> bool {
    matches!(
        number,
        libc::SYS_mprotect
            | libc::SYS_munmap
            | libc::SYS_mremap
            | libc::SYS_madvise
            | libc::SYS_getrlimit
            | libc::SYS_getrusage
            | libc::SYS_sysinfo
            | libc::SYS_uname
            | libc::SYS_times
            | libc::SYS_time
            | libc::SYS_gettimeofday
            | libc::SYS_clock_gettime
            | libc::SYS_clock_getres
            | libc::SYS_nanosleep
            | libc::SYS_clock_nanosleep
            | libc::SYS_getrandom
            | libc::SYS_sched_yield
            | libc::SYS_sched_getaffinity
            | libc::SYS_getpid
            | libc::SYS_gettid
            | libc::SYS_getppid
            | libc::SYS_getpgrp
            | libc::SYS_getpgid
            | libc::SYS_getsid
            | libc::SYS_getuid
            | libc::SYS_geteuid
            | libc::SYS_getgid
            | libc::SYS_getegid
            | libc::SYS_getgroups
            | libc::SYS_kill
            | libc::SYS_tgkill
            | libc::SYS_exit_group
    )
}
