//! Sojourn's programs in the kernel's packet path, and the processes that keep them there.
//!
//! The kernel lists programs and interfaces (`sojourn_filter::list`). The processes that hold a
//! program or its link are found in `/proc/PID/fdinfo` (proc(5)). Not here: the advice for the user
//! (`network`).

use crate::output::{Table, process_number};
use crate::sessions::PROC;
use serde::Serialize;
use sojourn_filter::{Failed, ObjectKind};
use sojourn_session::ProcessId;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// One program, hook or port. The fields are those of `--json`.
#[derive(Debug, Serialize)]
pub(super) struct Attached {
    /// `hook`, `xdp`, `port`, `program`.
    what: &'static str,
    name: String,
    /// The interface's name; empty for a program that is on no interface of this network namespace.
    pub(super) interface: String,
    kept_by: Vec<Keeper>,
    /// No process holds the object, and the kernel does not remove it by itself.
    pub(super) is_left_over: bool,
}

/// A process that holds a program or its link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Keeper {
    #[serde(serialize_with = "process_number")]
    pid: ProcessId,
    program: String,
}

/// Programs whose attachment lasts as long as a process holds it. The kernel removes the others
/// with the port or the packet socket that they are attached to.
const KEPT: [&str; 2] = ["sojourn_ingress", "sojourn_xdp"];

/// The time that the kernel may take to remove an object after its last process has closed it. An
/// object without a process is not reported as left over before that.
const LETTING_GO: Duration = Duration::from_millis(500);

/// Lists all objects.
pub(super) fn list() -> Result<Vec<Attached>, Failed> {
    let deadline = Instant::now() + LETTING_GO;
    settled(look_once, || Instant::now() >= deadline)
}

/// Lists the objects again and again until none is left over, or the time is over.
fn settled(
    mut list: impl FnMut() -> Result<Vec<Attached>, Failed>,
    mut is_over: impl FnMut() -> bool,
) -> Result<Vec<Attached>, Failed> {
    loop {
        let found = list()?;
        if !found.iter().any(|one| one.is_left_over) || is_over() {
            return Ok(found);
        }
        std::thread::sleep(LETTING_GO / 25);
    }
}

fn look_once() -> Result<Vec<Attached>, Failed> {
    let found = sojourn_filter::list()?;
    let keepers = if found.is_empty() { HashMap::new() } else { keepers(Path::new(PROC)) };
    // The list has a program that is attached to an interface twice: the entry of the interface is
    // enough.
    let placed = |number: Option<u32>| {
        let is_it = |one: &&sojourn_filter::Attached| one.number == number;
        found.iter().filter(is_it).any(|one| one.what != ObjectKind::Program)
    };
    let shown = found.iter().filter(|one| one.what != ObjectKind::Program || !placed(one.number));
    let mut shown: Vec<_> = shown.map(|one| described(one, &keepers)).collect();
    if !sees_every_process(Path::new(PROC)) {
        // The kernel lists the programs of the whole machine. Inside of a container the processes
        // that hold them may be invisible, so an object without a visible process is not called
        // left over.
        shown.iter_mut().for_each(|one| one.is_left_over = false);
    }
    Ok(shown)
}

/// Returns true if `/proc` shows the processes of the whole machine, not those of a container.
fn sees_every_process(proc: &Path) -> bool {
    /// The first process name space's number, the same on every machine (`PROC_PID_INIT_INO` of the
    /// kernel).
    const FIRST: &str = "pid:[4026531836]";
    fs::read_link(proc.join("self/ns/pid")).is_ok_and(|name| name == Path::new(FIRST))
}

fn described(one: &sojourn_filter::Attached, keepers: &HashMap<u32, BTreeSet<Keeper>>) -> Attached {
    let what = match one.what {
        ObjectKind::Hook => "hook",
        ObjectKind::Xdp => "xdp",
        ObjectKind::Port => "port",
        ObjectKind::Program => "program",
    };
    let kept_by = one.number.and_then(|number| keepers.get(&number));
    let kept_by: Vec<_> = kept_by.into_iter().flatten().cloned().collect();
    let is_left_over = kept_by.is_empty() && KEPT.contains(&&*one.name);
    let (name, interface) = (one.name.clone(), one.interface.clone());
    Attached { what, name, interface, kept_by, is_left_over }
}

/// Returns the processes that hold each program, by program number.
fn keepers(proc: &Path) -> HashMap<u32, BTreeSet<Keeper>> {
    let mut found: HashMap<u32, BTreeSet<Keeper>> = HashMap::new();
    for process in fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let held = programs_of(&process.path());
        if held.is_empty() {
            continue;
        }
        let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let keeper = Keeper { pid, program: program.trim().into() };
        for number in held {
            found.entry(number).or_default().insert(keeper.clone());
        }
    }
    found
}

/// Returns the numbers of the programs that a process holds.
fn programs_of(process: &Path) -> BTreeSet<u32> {
    let mut held = BTreeSet::new();
    for fd in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
        let target = fs::read_link(fd.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("anon_inode:bpf") {
            let fdinfo = fs::read_to_string(process.join("fdinfo").join(fd.file_name()));
            held.extend(program_in(&fdinfo.unwrap_or_default()));
        }
    }
    held
}

fn program_in(fdinfo: &str) -> Option<u32> {
    fdinfo.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok()
}

/// Formats the list as a table.
pub(super) fn table(attached: &[Attached]) -> String {
    let mut table = Table::new(&["ATTACHED", "NAME", "INTERFACE", "KEPT BY"]);
    for one in attached {
        let or_dash = |text: String| if text.is_empty() { "-".into() } else { text };
        let keepers = one.kept_by.iter().map(|keeper| format!("{}/{}", keeper.pid, keeper.program));
        let keepers = match one.what {
            "port" => "its program".into(),
            _ if one.is_left_over => "nobody: left over".into(),
            _ => keepers.collect::<Vec<_>>().join(", "),
        };
        let cells =
            [one.what.into(), one.name.clone(), or_dash(one.interface.clone()), or_dash(keepers)];
        table.row(cells.into());
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::Scratch;

    #[test]
    fn a_held_program_is_read_from_fdinfo() {
        let link = "pos:\t0\nflags:\t02000002\nlink_type:\ttcx\nlink_id:\t3\nprog_tag:\taa\nprog_id:\t77\n";
        assert_eq!(program_in(link), Some(77));
        assert_eq!(program_in("map_type:\t1\n"), None);
    }

    #[test]
    fn in_a_container_nothing_is_taken_for_left_over() {
        let scratch = Scratch::new("pid-name-space");
        let folder = scratch.path("self/ns");
        fs::create_dir_all(&folder).unwrap();
        let sees_all = |name: &str| {
            let _ = fs::remove_file(folder.join("pid"));
            std::os::unix::fs::symlink(name, folder.join("pid")).unwrap();
            sees_every_process(&scratch.path(""))
        };
        assert!(sees_all("pid:[4026531836]"));
        assert!(!sees_all("pid:[4026532298]"));
    }

    #[test]
    fn what_goes_a_moment_later_is_not_left_over() {
        let one = sojourn_filter::Attached {
            what: ObjectKind::Hook,
            name: "sojourn_ingress".into(),
            interface: "eth0".into(),
            number: Some(7),
        };
        let found = |looks: usize| (0..looks).map(|_| described(&one, &HashMap::new())).collect();
        let mut left = 2;
        let list = || {
            left -= 1;
            Ok(found(left))
        };
        assert!(settled(list, || false).is_ok_and(|found| found.is_empty()));
        assert!(settled(|| Ok(found(1)), || true).is_ok_and(|found| found[0].is_left_over));
    }

    #[test]
    fn what_nobody_keeps_is_left_over_unless_it_goes_by_itself() {
        let one = |name: &str| sojourn_filter::Attached {
            what: ObjectKind::Program,
            name: name.into(),
            interface: String::new(),
            number: Some(7),
        };
        let keeper = Keeper { pid: ProcessId(1), program: "sojournd".into() };
        let kept = HashMap::from([(7, BTreeSet::from([keeper]))]);
        assert!(!described(&one("sojourn_ingress"), &kept).is_left_over);
        assert!(described(&one("sojourn_ingress"), &HashMap::new()).is_left_over);
        assert!(!described(&one("sojourn_owned"), &HashMap::new()).is_left_over);
        let text = table(&[described(&one("sojourn_ingress"), &kept)]);
        assert!(text.contains("1/sojournd"), "{text}");
    }
}
