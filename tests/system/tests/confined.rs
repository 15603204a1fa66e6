//! Tests that programs which confine themselves before their first hot session still move: with
//! another root folder, without further processes, as another user.
//!
//! They need root, because only root may do so; skipped with a message otherwise. The programs are
//! `c/why`, which compares every byte, and vsftpd (also in `programs/vsftpd.sh`). Not here:
//! programs that are confined before they start (`why.rs`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use serde_json::Value;
use sojourn_lab::net::Host;
use sojourn_lab::{Mode, Running, Sandbox};
use sojourn_system::compile::compile;
use sojourn_system::free_port;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// Unused users, one for each test: the kernel counts a user's processes (RLIMIT_NPROC).
const USERS: [u32; 3] = [65_521, 65_522, 65_523];

fn program() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("confined");
        compile(&path, &["why/why.c"], &["-Wall"]).unwrap();
        path
    })
}

/// Checks that both ends move, with arguments for the server.
fn both_move(words: &[&str]) {
    both_are(&["library"], words, &[]);
}

/// Runs both ends, each with its arguments, and checks that the home of their sessions becomes one
/// of these.
fn both_are(wanted: &[&str], words: &[&str], callers: &[&str]) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let mut sandbox = Sandbox::new().unwrap();
    sandbox.set("MOVE_AFTER_CALLS", "4");
    let folder = sandbox.folder().to_owned();
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
    std::fs::create_dir(folder.join("empty")).unwrap();
    let address = format!("127.0.0.1:{}", free_port("127.0.0.1").unwrap());
    let mut running = Vec::new();
    for (role, words) in [("serve", words), ("call", callers)] {
        let mut command = sandbox.command(Mode::Sojourn, program());
        command.args(words).args([role, &address, "2000"]);
        running.push(Running::start(command).unwrap());
    }
    let begun = Instant::now();
    let pids = ["serve.pid", "call.pid"].map(|name| {
        loop {
            if let Ok(text) = std::fs::read_to_string(folder.join(name)) {
                return text.trim().parse::<u64>().unwrap();
            }
            let ended = running.iter_mut().position(|one| !one.is_running());
            if let Some(at) = ended {
                panic!("{:?}", running.swap_remove(at).finish(PATIENCE));
            }
            assert!(begun.elapsed() < PATIENCE, "{name} is not there");
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    // Repeated, because the kernel's list of connections may leave one out while others come and
    // go.
    loop {
        let list = sandbox.sessions().unwrap();
        let homes = pids.map(|pid| home(&list, pid));
        if homes[0] == homes[1] && wanted.contains(&homes[0].as_str()) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{words:?}: {homes:?}: {list:#}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn home(list: &Value, pid: u64) -> String {
    let all = list["sessions"].as_array().unwrap();
    let own = all.iter().find(|row| row["pid"] == pid && row["kind"] == "tcp");
    own.map_or("none", |own| own["home"].as_str().unwrap()).to_owned()
}

#[test]
fn in_an_empty_root_folder() {
    both_move(&["chroot=empty"]);
}

#[test]
fn in_an_empty_root_folder_as_another_user() {
    let user = format!("user={}", USERS[0]);
    both_move(&["chroot=empty", &user]);
}

#[test]
fn with_no_more_processes() {
    let user = format!("user={}", USERS[1]);
    both_move(&["limit=0", &user]);
}

#[test]
fn with_all_of_that() {
    let user = format!("user={}", USERS[2]);
    both_move(&["limit=0", "chroot=empty", &user]);
}

/// Tests a caller without room for the server's memory. Bytes that the server has sent into the
/// ring are given up, without a descriptor of the program (the caller's descriptor is the lowest
/// number, as the library's was in a table of its own).
#[test]
fn with_too_few_addresses_it_stays_and_is_whole() {
    both_are(&["kernel"], &[], &["memory=40000000"]);
}

/// Tests programs that may have little data. They need no more, and must not end because the
/// library does, wherever their session is.
#[test]
fn with_little_data_it_is_whole() {
    for _ in 0..5 {
        both_are(&["kernel", "library"], &["data=1000000"], &["data=1000000"]);
    }
}

/// Tests vsftpd with its default configuration except for its filter of system calls: each process
/// of a session has name spaces, root folder, limits and user of its own.
#[test]
fn vsftpd_with_all_its_walls() {
    if !rustix::process::geteuid().is_root() || !sojourn_lab::net::is_possible() {
        eprintln!("skipped: not root with network namespaces");
        return;
    }
    let Some(program) =
        ["/usr/sbin/vsftpd", "/usr/bin/vsftpd"].into_iter().find(|at| Path::new(at).exists())
    else {
        eprintln!("skipped: no vsftpd");
        return;
    };
    let host = Host::new().unwrap();
    // vsftpd limits its address space to 200 MB. Rings are as large as the kernel's buffers may
    // grow, so the host gets Linux's default.
    host.set("ipv4/tcp_rmem", "4096 131072 6291456").unwrap();
    let sandbox = Sandbox::new().unwrap();
    let folder = sandbox.folder().to_owned();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap()
    };
    mode(&folder, 0o755);
    mode(&sandbox.address(), 0o666);
    for name in ["pub", "pub/up", "empty"] {
        std::fs::create_dir(folder.join(name)).unwrap();
    }
    mode(&folder.join("pub/up"), 0o777);
    let bytes: Vec<u8> =
        (0..32_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.join("pub/large"), &bytes).unwrap();
    std::fs::write(folder.join("conf"), configuration(&folder)).unwrap();
    let start = |words: &[&str]| {
        let mut command = sandbox.command(Mode::Sojourn, words[0]);
        command.args(&words[1..]);
        host.place(&mut command);
        Running::start(command).unwrap()
    };
    let _server = start(&[program, folder.join("conf").to_str().unwrap()]);
    let address = "ftp://127.0.0.1:2121";
    let begun = Instant::now();
    while start(&["curl", "-sS", "-l", address]).finish(PATIENCE).unwrap().status != 0 {
        assert!(begun.elapsed() < PATIENCE, "vsftpd does not begin");
    }
    let joins = || sandbox.stats().unwrap()["joins"].as_u64().unwrap();
    let before = joins();
    let down = start(&["curl", "-sS", "-o", "down", &format!("{address}/large")]);
    down.finish(PATIENCE).unwrap().success("download").unwrap();
    assert!(std::fs::read(folder.join("down")).unwrap() == bytes, "other bytes come down");
    assert!(joins() > before, "the download does not move");
    let before = joins();
    let up = start(&["curl", "-sS", "-T", "pub/large", &format!("{address}/up/large")]);
    up.finish(PATIENCE).unwrap().success("upload").unwrap();
    assert!(std::fs::read(folder.join("pub/up/large")).unwrap() == bytes, "other bytes come up");
    assert!(joins() > before, "the upload does not move");
}

fn configuration(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "listen=YES\nbackground=NO\nlisten_address=127.0.0.1\nlisten_port=2121\nanonymous_enable=YES\nanon_root={folder}/pub\n\
        anon_upload_enable=YES\nwrite_enable=YES\nanon_umask=022\nno_anon_password=YES\nallow_writeable_chroot=YES\n\
        secure_chroot_dir={folder}/empty\nseccomp_sandbox=NO\nuse_sendfile=NO\nxferlog_enable=NO\n"
    )
}
