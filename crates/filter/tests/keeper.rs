//! Tests of a keeper, which holds a filter from one server to the next as long as there are
//! programs.
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{attached, filter, receive_with, two_hosts, wait_for};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, pidfd_open, prlimit};
use sojourn_filter::keeper::{
    FoundKeeper, Keeper, Kept, KeptDescriptors, NewKeeper, Patience, keep, listen,
};
use sojourn_filter::{Filter, Holding, Key, NewOwner, Options, OwnerId};
use sojourn_wire::Protocol;
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Variable with the keeper's patience and the path of its socket, set in the keeper's process.
const ROLE: &str = "SOJOURN_FILTER_KEEPER";

/// Runs in the keeper's process, whose standard input is its control socket.
#[test]
fn is_keeper() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (patience, path) = role.split_once(' ').unwrap();
    let control = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let listener = listen(Path::new(path)).unwrap();
    let with_programs = Duration::from_millis(patience.parse().unwrap());
    let after_programs = Duration::from_millis(300).min(with_programs);
    keep(control, &listener, Patience { with_programs, after_programs }).unwrap();
}

/// A process that is killed at the end of the test, also of a test that fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn program() -> Self {
        Self(Command::new("sleep").arg("100").spawn().unwrap())
    }

    fn keeper(path: &Path, patience_ms: u32) -> (Keeper, Self) {
        let NewKeeper { keeper, control } = Keeper::create().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "is_keeper"]);
        command.env(ROLE, format!("{patience_ms} {}", path.display()));
        let child = command.stdin(Stdio::from(control)).stdout(Stdio::null()).spawn().unwrap();
        (keeper, Self(child))
    }

    fn pidfd(&self) -> OwnedFd {
        let pid = Pid::from_raw(self.0.id() as i32).unwrap();
        pidfd_open(pid, PidfdFlags::empty()).unwrap()
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }
}

/// A path for a socket, which is removed at the end of the test.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let file = format!("sojourn-filter-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(file))
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn hold(keeper: &Keeper, filter: &Filter) {
    for Holding { name, fd } in filter.holdings() {
        keeper.hold(&name, &[fd]).unwrap();
    }
}

const TARGET: ([u8; 4], u16) = ([10, 0, 0, 1], 5000);

/// Returns the contents of a keeper for `Filter::adopt`, with one descriptor for each name.
fn holdings(kept: Kept) -> Vec<Holding<OwnedFd>> {
    let named =
        |mut held: KeptDescriptors| Holding { name: held.name, fd: held.fds.pop().unwrap() };
    kept.held.into_iter().map(named).collect()
}

fn session(filter: &mut Filter) -> (OwnerId, OwnedFd) {
    let NewOwner { owner, socket } = filter.add_owner(|_| Ok(())).unwrap();
    let key = Key::new(Protocol::Udp, SocketAddr::from(TARGET), None).unwrap();
    filter.add_flow(key, owner).unwrap();
    (owner, socket)
}

const HOOK: &str = "Hook sojourn_ingress eth0";

#[test]
fn sessions_go_on_from_one_server_to_the_next() {
    let Some((one, two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let place = TestFolder::new("next");
        let (keeper, mut process) = Process::keeper(&place.0, 60_000);
        let program = Process::program();
        let (owner, socket) = session(&mut filter);
        hold(&keeper, &filter);
        keeper.watch("program1", program.pidfd().as_fd()).unwrap();
        let far = two.run(|| UdpSocket::bind("10.0.0.2:0").unwrap());
        let send = |text: &[u8]| far.send_to(text, SocketAddr::from(TARGET)).unwrap();
        wait_for("listening keeper", || place.0.exists().then_some(()));
        drop((filter, keeper));
        send(b"between two servers");
        receive_with(&socket, b"between two servers");
        assert!(attached().contains(&HOOK.to_owned()));

        let FoundKeeper { keeper, kept } = wait_for("keeper", || Keeper::find(&place.0).ok());
        assert_eq!(kept.programs.len(), 1);
        let filter = Filter::adopt(holdings(kept), Options::default()).unwrap();
        assert!(filter.flows().any(|flow| flow.owner == owner));
        send(b"with the next server");
        receive_with(&socket, b"with the next server");
        // The next server dies too, and then the program.
        drop((filter, keeper));
        send(b"after the next server");
        receive_with(&socket, b"after the next server");
        drop(program);
        wait_for("end of the keeper", || process.has_ended().then_some(()));
        assert_eq!(attached(), [""; 0]);
    });
}

#[test]
fn a_keeper_does_not_wait_forever() {
    let Some((one, _two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let place = TestFolder::new("forever");
        let (keeper, mut process) = Process::keeper(&place.0, 50);
        let program = Process::program();
        let _session = session(&mut filter);
        hold(&keeper, &filter);
        keeper.watch("program1", program.pidfd().as_fd()).unwrap();
        drop((filter, keeper));
        wait_for("end of the keeper", || process.has_ended().then_some(()));
        assert_eq!(attached(), [""; 0]);
    });
}

#[test]
fn a_keeper_ends_with_a_server_that_has_no_programs() {
    let Some((one, _two)) = two_hosts() else { return };
    one.run(move || {
        let Some(mut filter) = filter(Options::default()) else { return };
        let place = TestFolder::new("none");
        let (keeper, mut process) = Process::keeper(&place.0, 60_000);
        let _session = session(&mut filter);
        hold(&keeper, &filter);
        let hook = filter.holdings().into_iter().find(|held| held.name.starts_with("sojourn_link"));
        keeper.release(&hook.unwrap().name).unwrap();
        drop(filter);
        wait_for("release", || (!attached().contains(&HOOK.to_owned())).then_some(()));
        assert!(!process.has_ended(), "its server lives");
        drop(keeper);
        wait_for("end of the keeper", || process.has_ended().then_some(()));
    });
}

/// The numbers of a process's descriptors, and whether a pidfd is among them.
fn descriptors(pid: u32) -> (Vec<u64>, bool) {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    let is_pidfd = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|name| name.to_string_lossy().contains("pidfd"))
    };
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse().ok();
    (paths.iter().filter_map(number).collect(), paths.iter().any(is_pidfd))
}

/// A server that was killed and does not end has its connection still.
#[test]
fn the_next_server_has_what_one_that_does_not_let_go_has_left() {
    let place = TestFolder::new("held");
    let (held, _process) = Process::keeper(&place.0, 60_000);
    wait_for("listening keeper", || place.0.exists().then_some(()));
    let null = std::fs::File::open("/dev/null").unwrap();
    let names: Vec<String> = (0..50).map(|number| format!("{number:02}")).collect();
    for name in &names {
        held.hold(name, &[null.as_fd(); 2]).unwrap();
    }
    let found = wait_for("the keeper", || Keeper::find(&place.0).ok());
    let kept: Vec<_> = found.kept.held.into_iter().map(|held| held.name).collect();
    assert_eq!(kept, names, "all that was said before is heard before");
    wait_for("the end of the first connection", || held.has_ended().then_some(()));
    found.keeper.release("00").unwrap();
    let third = wait_for("the keeper", || Keeper::find(&place.0).ok());
    assert_eq!(third.kept.held.len(), names.len() - 1);
}

/// A keeper's table has room for one session's descriptors and some of the next one's, and for what
/// the next server needs: that finds the first session with all that is its.
#[test]
fn what_does_not_fit_is_refused_whole() {
    const EACH: usize = 8;
    for room in [EACH + 1, EACH + 4, 2 * EACH] {
        let place = TestFolder::new(&format!("full{room}"));
        let (keeper, process) = Process::keeper(&place.0, 60_000);
        let program = Process::program();
        keeper.watch("program1", program.pidfd().as_fd()).unwrap();
        let pid = process.0.id();
        let used = wait_for("the program's pidfd", || {
            let (numbers, has_pidfd) = descriptors(pid);
            has_pidfd.then_some(numbers)
        });
        // Numbers in between may be free.
        let most = (0..).filter(|number| !used.contains(number)).nth(room);
        let limit = Rlimit { current: most, maximum: most };
        prlimit(Pid::from_raw(pid as i32), Resource::Nofile, limit).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for name in ["first", "second"] {
            keeper.hold(name, &[null.as_fd(); EACH]).unwrap();
        }
        drop(keeper);
        let found = wait_for("the keeper", || Keeper::find(&place.0).ok());
        let held: Vec<_> =
            found.kept.held.iter().map(|held| (held.name.as_str(), held.fds.len())).collect();
        assert_eq!(held, [("first", EACH)], "room for {room}");
        assert_eq!(found.kept.programs.len(), 1);
    }
}
