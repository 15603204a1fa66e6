//! Looks at /proc's view of this process's descriptors.
//!
//! A look opens files, and must not take a descriptor number from the program. So
//! [`OpenDescriptors`] is a trait: the protocol thread, which has a table of its own, serves it for
//! the others. Not here: that service (`protocol::outside`), and the users (`offer`, `wanted`,
//! `unmanaged_sets`).

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
        Self::in_folder(&format!("/proc/self/task/{}/fd", self.tid.as_raw_pid()))
    }

    fn sets(&mut self) -> Vec<i32> {
        let tid = self.tid.as_raw_pid();
        let is_set = |fd: &i32| {
            let target = std::fs::read_link(format!("/proc/self/task/{tid}/fd/{fd}"));
            target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")
        };
        self.numbers().into_iter().filter(is_set).collect()
    }

    fn info(&mut self, fd: i32) -> String {
        let name = format!("/proc/self/task/{}/fdinfo/{fd}", self.tid.as_raw_pid());
        std::fs::read_to_string(name).unwrap_or_default()
    }
}
