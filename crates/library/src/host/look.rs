//! Looks at what /proc says of this process's descriptors, from where opening a file takes no
//! number of the program's.
//!
//! Not here: who looks (`protocol::outside`), and what for (`offer`, `wanted`, `unmanaged_sets`).

/// Who can look.
pub(crate) trait Look {
    /// Numbers that are open.
    fn numbers(&mut self) -> Vec<i32>;
    /// Those of them that are epoll sets.
    fn sets(&mut self) -> Vec<i32>;
    /// What the kernel says of a number (`fdinfo`, proc(5)); empty if it says nothing.
    fn info(&mut self, fd: i32) -> String;
}

/// By this thread, of the table that the thread `tid` of this process has.
#[derive(Debug)]
pub(crate) struct Direct {
    pub(crate) tid: i32,
}

impl Direct {
    /// Of the calling thread's.
    pub(crate) fn here() -> Self {
        Self { tid: rustix::thread::gettid().as_raw_nonzero().get() }
    }

    /// The numbers that are names in a folder.
    pub(crate) fn in_folder(folder: &str) -> Vec<i32> {
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten();
        names.filter_map(|found| found.file_name().to_str()?.parse().ok()).collect()
    }
}

impl Look for Direct {
    fn numbers(&mut self) -> Vec<i32> {
        Self::in_folder(&format!("/proc/self/task/{}/fd", self.tid))
    }

    fn sets(&mut self) -> Vec<i32> {
        let tid = self.tid;
        let is_set = |fd: &i32| {
            let target = std::fs::read_link(format!("/proc/self/task/{tid}/fd/{fd}"));
            target.is_ok_and(|target| target.as_os_str() == "anon_inode:[eventpoll]")
        };
        self.numbers().into_iter().filter(is_set).collect()
    }

    fn info(&mut self, fd: i32) -> String {
        let name = format!("/proc/self/task/{}/fdinfo/{fd}", self.tid);
        std::fs::read_to_string(name).unwrap_or_default()
    }
}
