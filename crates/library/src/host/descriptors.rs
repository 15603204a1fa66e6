//! Looks at /proc's view of this process's descriptors.
//!
//! A look opens files, and must not take a descriptor number from the program. So
//! [`OpenDescriptors`] is a trait: the protocol thread, which has a table of its own, serves it for
//! the others. Not here: that service (`protocol::outside`), and the users (`offer`, `wanted`,
//! `unmanaged_sets`).
//!
//! # Which files
//! All threads of a program have one table (a program that calls unshare(2) has its sessions in the
//! kernel), so the first thread's files tell about it. Those of another thread are looked at only
//! where the first thread has ended, and has no descriptors any more. The kernel keeps what was
//! looked up until that thread ends, and drops it in the thread's own time
//! (`proc_invalidate_siblings_dcache`); meanwhile waitpid(2) of the process's parent, which drops
//! the files of the process, spins: for 11 ms as a median, and up to a second, on a busy machine.
//! Of the first thread the parent itself drops all.

use crate::host::{Host, OwnCalls};
use rustix::process::Pid;

/// Looks at the descriptors of the program's table.
pub(crate) trait OpenDescriptors {
    /// Lists the numbers that are open.
    fn numbers(&mut self) -> Vec<i32>;
    /// Lists those of them that are epoll sets.
    fn sets(&mut self) -> Vec<i32>;
    /// Reads the `fdinfo` of a number (proc(5)); empty if there is none.
    fn info(&mut self, fd: i32) -> String;
    /// Asks the shell for [`Host::own_calls`].
    fn own_calls(&mut self, host: &dyn Host, numbers: &[i32]) -> OwnCalls {
        host.own_calls(numbers)
    }
}

/// Looks from the calling thread, at the table of the thread `tid` of this process.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) tid: Pid,
}

impl Direct {
    /// Looks at the calling thread's own table.
    #[cfg(test)]
    pub(crate) fn here() -> Self {
        Self { tid: rustix::thread::gettid() }
    }

    /// Lists the numbers that are names in a folder.
    pub(crate) fn in_folder(folder: &str) -> Vec<i32> {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names.filter_map(|found| found.file_name().to_str()?.parse().ok()).collect()
    }
}

impl OpenDescriptors for Direct {
    fn numbers(&mut self) -> Vec<i32> {
        let of_first = Self::in_folder("/proc/self/fd");
        if !of_first.is_empty() {
            return of_first;
        }
        Self::in_folder(&format!("/proc/self/task/{}/fd", self.tid.as_raw_pid()))
    }

    fn sets(&mut self) -> Vec<i32> {
        let tid = self.tid;
        let is_set = |fd: &i32| {
            let target = in_table(tid, &format!("fd/{fd}"), |path| std::fs::read_link(path));
            target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")
        };
        self.numbers().into_iter().filter(is_set).collect()
    }

    fn info(&mut self, fd: i32) -> String {
        let look = |path: &str| std::fs::read_to_string(path);
        in_table(self.tid, &format!("fdinfo/{fd}"), look).unwrap_or_default()
    }
}

/// Looks at a file of the first thread's folder in /proc, or, if that fails, of the folder of the
/// thread `tid`.
pub(crate) fn in_table<R, E>(
    tid: Pid,
    name: &str,
    look: impl Fn(&str) -> Result<R, E>,
) -> Result<R, E> {
    look(&format!("/proc/self/{name}"))
        .or_else(|_| look(&format!("/proc/self/task/{}/{name}", tid.as_raw_pid())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_threads_files_are_looked_at_only_if_the_first_has_none() {
        let tid = Pid::from_raw(4711).unwrap();
        let looked = |answers: bool| {
            let seen = std::cell::RefCell::new(Vec::new());
            let look = |path: &str| {
                seen.borrow_mut().push(path.to_owned());
                if answers { Ok(()) } else { Err(()) }
            };
            assert_eq!(in_table(tid, "fd/3", look).is_ok(), answers);
            seen.into_inner()
        };
        assert_eq!(looked(true), ["/proc/self/fd/3"]);
        assert_eq!(looked(false), ["/proc/self/fd/3", "/proc/self/task/4711/fd/3"]);
    }
}
