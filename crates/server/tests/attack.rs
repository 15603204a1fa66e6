//! Programs that are somebody else by the time that the server decides: what counts is who
//! connected, and that only as far as it still holds.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod common;

use common::{Folder, Program, Server, be_fake};
use rustix::fd::OwnedFd;
use sojourn_session::ReasonT;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Users other than root.
const USERS: [u32; 2] = [65_533, 65_534];

#[test]
fn fake() {
    be_fake();
}

/// Root, with the right to become others and to look into their processes.
fn is_root() -> bool {
    let held = rustix::thread::capabilities(None).unwrap().effective;
    let looks = held.contains(rustix::thread::CapabilitySet::SYS_PTRACE);
    let is_root = rustix::process::geteuid().is_root() && looks;
    if !is_root {
        eprintln!("skipped: needs root, and a look into others' processes (CAP_SYS_PTRACE)");
    }
    is_root
}

/// A name that every user can connect to.
fn address(name: &str) -> String {
    format!("@sojournd-attack-{name}-{}", std::process::id())
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap()
}

/// Copies a program of root's into the folder and has everybody run it as root. `None` where that
/// has no effect.
fn set_user_id(folder: &Folder, program: &Path) -> Option<PathBuf> {
    std::fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
    let copy = folder.0.join(program.file_name().unwrap());
    std::fs::copy(program, &copy).unwrap();
    std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o4755)).unwrap();
    let without = rustix::fs::StatVfsMountFlags::NOSUID;
    let has_effect = !rustix::fs::statvfs(&copy).unwrap().f_flag.contains(without);
    if !has_effect {
        eprintln!("skipped: set-user-id bits have no effect in {}", folder.0.display());
    }
    has_effect.then_some(copy)
}

/// The first user that the kernel shows of a process is the real one, the second the effective one.
fn effective_user(pid: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    users.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Root's own server serves nobody who was root once.
#[test]
fn who_gives_up_root_after_hello_moves_nothing_at_roots_own_server() {
    if !is_root() {
        return;
    }
    let address = address("fallen");
    let _server = Server::start(&address, &[]);
    for calls in [["offer 1 true", "adopt 1 7 0"], ["adopt 1 7 0", "offer 2 true"]] {
        let program = Program::start(&address);
        assert!(program.hello());
        let (_reader, writer) = pipe();
        program.tell("keep 1", Some(writer.as_fd()));
        assert_eq!(program.tell(&format!("become {}", USERS[0]), None), ["ok"]);
        for call in calls {
            let answer = program.tell(call, Some(writer.as_fd()));
            assert_eq!(answer, ["false"], "{call}, of {calls:?}");
        }
    }
}

/// A service's process with `CAP_SETUID` becomes a user whose request it serves, without exec. What
/// it shares with the service's other processes is not that user's.
#[test]
fn who_becomes_another_user_after_hello_moves_nothing_any_more() {
    if !is_root() {
        return;
    }
    let address = address("turned");
    let _server = Server::start(&address, &["--system"]);
    let user = USERS[0].to_string();
    let who = ["setpriv", "--clear-groups", "--reuid", &user, "--regid", &user];
    let with = ["--inh-caps", "+setuid,+setgid", "--ambient-caps", "+setuid,+setgid"];
    let words = [&who[..], &with[..]].concat();
    let mut tried = std::process::Command::new(words[0]);
    if !tried.args(&words[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no setpriv that gives capabilities");
    }
    let program = Program::start_by(&words, &address);
    assert!(program.hello());
    let (_reader, writer) = pipe();
    program.tell("keep 1", Some(writer.as_fd()));
    assert_eq!(program.tell("offer 1 true", Some(writer.as_fd())), ["true"]);
    assert_eq!(program.tell(&format!("become {}", USERS[1]), None), ["ok"]);
    assert_eq!(effective_user(program.pid()), USERS[1]);
    let (_reader, writer) = pipe();
    program.tell("keep 3", Some(writer.as_fd()));
    for call in ["offer 2 true", "adopt 3 7 0"] {
        assert_eq!(program.tell(call, Some(writer.as_fd())), ["false"], "{call}");
    }
}

/// A user who runs su keeps the connection that it made as itself.
#[test]
fn who_connects_and_becomes_root_by_a_set_user_id_bit_is_not_roots() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let own = std::env::current_exe().unwrap();
    let Some(copy) = set_user_id(&folder, &own) else { return };
    let address = address("risen");
    let _server = Server::start(&address, &[]);
    let program = Program::start_as(Some(USERS[0]), &address);
    assert_eq!(program.tell(&format!("exec {}", copy.display()), None), ["ok"]);
    assert_eq!(effective_user(program.pid()), 0, "it is root's now");
    assert!(!program.hello(), "it connected as another user");
}

/// The process that connected becomes root's, or ends; a child has its connection and its ends.
/// What is asked about the process is no answer about the child.
#[test]
fn a_child_with_the_connection_of_another_process_is_joined_with_no_other_user() {
    if !is_root() {
        return;
    }
    let folder = Folder::new();
    let Some(sleep) = set_user_id(&folder, Path::new("/bin/sleep")) else { return };
    let address = address("child");
    let server = Server::start(&address, &["--system"]);
    for parent in [format!("leave {}", sleep.display()), "leave".into()] {
        let hostile = Program::start_as(Some(USERS[0]), &address);
        let honest = Program::start_as(Some(USERS[1]), &address);
        assert!(hostile.hello() && honest.hello());
        let (reader, writer) = pipe();
        hostile.tell("keep 1", Some(writer.as_fd()));
        drop(writer);
        assert_eq!(hostile.tell(&parent, None), ["ok"]);
        assert!(honest.offer(1, reader, true));
        hostile.tell("again 1 2", None);
        let (what, _, reason) = hostile.told();
        assert_eq!(what, "refused", "{parent}");
        assert!([ReasonT::Closed, ReasonT::SeveralHolders].contains(&reason), "{reason:?}");
        let rows = server.sessions();
        assert!(rows.iter().all(|row| row.uid != 0), "nothing is root's");
    }
}

/// A connection that was handed on is still its maker's, whoever has it.
#[test]
fn a_connection_that_is_handed_to_root_has_the_rights_of_who_made_it() {
    if !is_root() {
        return;
    }
    let address = address("handed");
    let server = Server::start(&address, &["--system"]);
    let owner = Program::start_as(Some(USERS[0]), &address);
    let number = owner.tell("connect", None)[0].parse().unwrap();
    let pid = rustix::process::Pid::from_child(&owner.child);
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    let flags = rustix::process::PidfdGetfdFlags::empty();
    let Ok(socket) = rustix::process::pidfd_getfd(&process, number, flags) else {
        return eprintln!("skipped: descriptors of others cannot be had here");
    };
    let other = Program::start_as(Some(USERS[1]), &address);
    assert!(other.hello());
    let (_reader, writer) = pipe();
    assert!(other.offer(1, writer, true));
    let connection = sojourn_ipc::Connection::connect(
        sojourn_ipc::Address::Descriptor(socket),
        &sojourn_session::admin_connect_options(),
    );
    let mut admin = sojourn_session::AdminClient::bind(connection.unwrap()).unwrap();
    assert_eq!(admin.list(0).unwrap().count, 0, "the session is another user's");
    assert_eq!(server.sessions().len(), 1);
    let _ = admin.stop(true);
    assert!(server.admin().stats().is_ok(), "it goes on");
}
