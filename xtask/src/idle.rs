//! A control group whose processes run only when the processors have nothing else to do.
//!
//! The class `SCHED_IDLE` (sched(7)) is not enough: where the kernel shares the processors between
//! sessions (sched(7), "The autogroup feature"), it counts within one session only. A group with
//! `cpu.idle` counts against all others (since Linux 5.15; cgroups(7), versions 1 and 2). Not here:
//! what runs in it (`test`).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, process};

/// The name of a group, before the number of the process that made it.
const NAME: &str = "sojourn-idle-";

/// The group; it is removed when this is dropped, unless processes are left in it.
#[derive(Debug)]
pub(crate) struct IdleGroup {
    folder: PathBuf,
}

impl IdleGroup {
    /// Makes a group below that of this process. Returns `None` where that is not possible: without
    /// the right, without the controller of processors, on an older kernel.
    pub(crate) fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        parents(&mounts, &own).iter().find_map(|parent| Self::below(parent))
    }

    fn below(parent: &Path) -> Option<Self> {
        remove_left_ones(parent);
        let folder = parent.join(format!("{NAME}{}", process::id()));
        fs::create_dir(&folder).ok()?;
        let group = Self { folder };
        // An ordinary file would be made by this write if the group did not have it.
        let idle = group.folder.join("cpu.idle");
        (idle.exists() && fs::write(idle, "1").is_ok()).then_some(group)
    }

    /// Returns the same command, in this group from its beginning.
    pub(crate) fn enclose(&self, command: &Command) -> Command {
        let mut enclosed = Command::new("sh");
        enclosed.args(["-c", "echo $$ >\"$0\" && exec \"$@\""]);
        enclosed.arg(self.folder.join("cgroup.procs"));
        enclosed.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => enclosed.env(name, value),
                None => enclosed.env_remove(name),
            };
        }
        enclosed
    }
}

impl Drop for IdleGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes groups whose makers were killed. The kernel removes none that has processes.
fn remove_left_ones(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if maker.is_some_and(|maker| !Path::new("/proc").join(maker).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Returns the folders in which the group could be made, from `/proc/self/mountinfo`
/// (proc_pid_mountinfo(5)) and `/proc/self/cgroup` (cgroups(7)).
fn parents(mounts: &str, own: &str) -> Vec<PathBuf> {
    let mut parents = Vec::new();
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        let is_first = kind == Some("cgroup") && options.split(',').any(|name| name == "cpu");
        if !is_first && kind != Some("cgroup2") {
            continue;
        }
        let Some(mount) = before.split(' ').nth(4) else { continue };
        let controllers = if is_first { "cpu" } else { "" };
        let mut paths = own.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let names = parts.next()?;
            names.split(',').any(|name| name == controllers).then(|| parts.next())?
        });
        if let Some(path) = paths.next() {
            parents.push(Path::new(mount).join(path.trim_start_matches('/')));
        }
    }
    parents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_this_process_are_found_in_both_versions() {
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            31 25 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
            32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let own = "4:cpu,cpuacct:/one/two\n3:pids:/three\n0::/four\n";
        let found = parents(mounts, own);
        let expected = ["/sys/fs/cgroup/cpu,cpuacct/one/two", "/sys/fs/cgroup/unified/four"];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn a_command_runs_in_the_group_with_its_words_and_its_environment() {
        let Some(group) = IdleGroup::make() else {
            eprintln!("skipped: no control group can be made");
            return;
        };
        let folder = group.folder.clone();
        let name = folder.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "test \"$GIVEN\" = yes && grep -q \"$1\" /proc/self/cgroup",
            "sh",
            &name,
        ]);
        shell.env("GIVEN", "yes");
        assert!(group.enclose(&shell).status().expect("a shell").success());
        drop(group);
        assert!(!folder.exists());
    }
}
