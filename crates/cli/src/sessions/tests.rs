//! Tests of the merged list of the server's sessions and those from `/proc`.
//!
//! `/proc` is that of real processes. A process that has a file with the library's name mapped
//! counts as a program under Sojourn. The tests look only at such processes of their own.

use super::row::Datagrams;
use super::*;
use crate::inspect::tests::Scratch;
use rustix::process::Uid;
use sojourn_session::{HomeT, Inode, KindT, ProcessId};
use std::ffi::CString;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A TCP end that is away from the kernel.
pub(crate) fn joined() -> Row {
    Row {
        stream: Some(StreamNumber(5)),
        kind: "tcp",
        home: "library",
        reason: "none",
        pid: ProcessId(6),
        uid: Uid::from_raw(1000),
        program: "redis-cli".into(),
        from: "127.0.0.1:40000".into(),
        to: "127.0.0.1:6379".into(),
        peer_pid: Some(ProcessId(7)),
        peer_program: Some("redis-server".into()),
        sent: Some(100),
        received: Some(2000),
        age_ms: Some(1500),
        connection: None,
        datagrams: None,
        rates: None,
        rule: None,
        inode: None,
    }
}

/// The TCP state of a connection with another host.
pub(crate) fn connection() -> Connection {
    Connection::of(&sojourn_session::ConnectionInfoT {
        stream: 5,
        pid: 6,
        state: 1,
        mss: 1448,
        snd_wnd: 65_536,
        rcv_wnd: 131_072,
        cwnd: 10,
        ssthresh: 0x7fff_ffff,
        srtt_us: 3100,
        rttvar_us: 50,
        unacked: 2,
        retransmissions: 4,
        loss_events: 1,
    })
}

/// A Unix end without a peer under Sojourn.
pub(crate) fn waiting() -> Row {
    Row {
        stream: None,
        kind: "unix",
        home: "kernel",
        reason: "no-peer",
        from: "socket:[17]".into(),
        to: "/run/other".into(),
        peer_pid: None,
        peer_program: None,
        sent: None,
        received: None,
        age_ms: None,
        inode: Some(Inode(17)),
        ..joined()
    }
}

fn info(row: &Row, kind: KindT, home: HomeT, reason: ReasonT) -> SessionInfoT {
    let text = |text: &str| Some(CString::new(text).unwrap());
    SessionInfoT {
        stream: row.stream.unwrap_or_default().0,
        kind,
        home,
        reason,
        pid: row.pid.0,
        uid: row.uid.as_raw(),
        program: text(&format!("/usr/bin/{}", row.program)),
        from: text(&row.from),
        to: text(&row.to),
        peer_pid: row.peer_pid.unwrap_or_default().0,
        has_counts: row.sent.is_some(),
        sent: row.sent.unwrap_or(0),
        received: row.received.unwrap_or(0),
        datagrams_sent: 3,
        datagrams_received: 4,
        datagrams_dropped: 5,
        age_ms: row.age_ms.unwrap_or(0),
    }
}

#[test]
fn what_the_server_knows_is_not_listed_twice() {
    let away = info(&joined(), KindT::Tcp, HomeT::Library, ReasonT::None);
    let mut seen = joined();
    seen.stream = None;
    seen.reason = "not-hot";
    let rows = merge(vec![away], vec![seen.clone(), waiting()], false);
    let expected = Row { peer_program: None, ..joined() };
    assert_eq!(rows, [expected, waiting()]);
    // Two connections have equal names, and the server knows one of them.
    let mut twin = waiting();
    twin.age_ms = Some(3);
    let known = info(&twin, KindT::Unix, HomeT::Kernel, ReasonT::NoPeer);
    let rows = merge(vec![known], vec![waiting(), waiting()], false);
    assert_eq!(rows, [twin, waiting()]);
}

#[test]
fn of_datagrams_there_are_counts() {
    let counted = |kind, home| of_server(info(&joined(), kind, home, ReasonT::None)).datagrams;
    let expected = Datagrams { sent: 3, received: 4, dropped: 5 };
    assert_eq!(counted(KindT::Udp, HomeT::Library), Some(expected));
    assert_eq!(counted(KindT::Udp, HomeT::Kernel), None);
    assert_eq!(counted(KindT::Tcp, HomeT::Library), None);
    assert_eq!(expected.to_string(), "datagrams 3 out, 4 in, 5 dropped");
}

/// A process that Drop kills, and its output.
struct Peer(Child, Option<BufReader<ChildStdout>>);

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that maps the library named, opens sessions as its argument says, says `ready` and
/// sleeps.
fn program(scratch: &Scratch) -> PathBuf {
    let source = scratch.path("holder.c");
    std::fs::write(&source, include_str!("../../tests/holder.c")).unwrap();
    let done = Command::new("cc").arg("-o").args([scratch.path("holder"), source]).status();
    assert!(done.unwrap().success());
    scratch.path("holder")
}

/// Starts the program. Returns its output after `ready`.
fn start(program: &Path, words: &[&str]) -> (Peer, String) {
    start_with(program, words, &[])
}

fn start_with(program: &Path, words: &[&str], variables: &[(&str, &str)]) -> (Peer, String) {
    let mut command = Command::new(program);
    command.envs(variables.iter().copied());
    let child = command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut peer = Peer(child.unwrap(), None);
    let mut output = BufReader::new(peer.0.stdout.take().unwrap());
    let mut line = String::new();
    // The read is bounded, because the program has an alarm.
    output.read_line(&mut line).unwrap();
    peer.1 = Some(output);
    let rest = line.strip_prefix("ready").unwrap_or_else(|| panic!("said `{line}`"));
    (peer, rest.trim().to_owned())
}

fn rows_of(peer: &Peer, all: bool) -> Vec<Row> {
    let mut rows = found::find(Path::new(PROC), all, &Observer::blind(Path::new(PROC)));
    rows.retain(|row| row.pid.0 == peer.0.id());
    rows
}

#[test]
fn sessions_of_real_processes_are_found_with_their_reasons() {
    let scratch = Scratch::new("found");
    let program = program(&scratch);
    let library = scratch.path(crate::beside::LIBRARY);
    std::fs::write(&library, [0; 4096]).unwrap();
    let library = library.to_str().unwrap();
    let (server, port) = start(&program, &[library, "listen"]);
    let (client, _) = start(&program, &[library, "connect", &port]);
    let (plain, _) = start(&program, &["-", "connect", &port]);

    assert_eq!(rows_of(&plain, true), [], "a program without the library is nobody's business");
    let rows = rows_of(&client, false);
    let tcp: Vec<_> = rows.iter().filter(|row| row.kind == "tcp").collect();
    assert_eq!(tcp.len(), 1, "{rows:#?}");
    let to = format!("127.0.0.1:{port}");
    assert_eq!((tcp[0].to.as_str(), tcp[0].reason), (to.as_str(), "not-hot"));
    assert_eq!(tcp[0].peer_pid, Some(ProcessId(server.0.id())));
    assert_eq!(tcp[0].peer_program.as_deref(), Some("holder"));

    // A refusal of the server's.
    let mut rows = rows_of(&client, false);
    let found = rows.iter().find(|row| row.kind == "tcp").unwrap();
    let refused = RefusedInfoT {
        pid: found.pid.0,
        reason: ReasonT::Option,
        inode: found.inode.unwrap().0,
        age_ms: 1,
        in_kernel: 0,
        away: 0,
    };
    explain(&mut rows, &[RefusedInfoT { pid: 1, ..refused }], false);
    assert!(rows.iter().any(|row| row.kind == "tcp" && row.reason == "not-hot"), "another's");
    explain(&mut rows, &[refused], false);
    assert!(rows.iter().any(|row| row.kind == "tcp" && row.reason == "option"), "{rows:#?}");
    assert!(rows.iter().all(|row| row.rates.is_none()));
    // A refusal with measured rates.
    let mut rows = rows_of(&client, false);
    let reason = ReasonT::Slower;
    explain(
        &mut rows,
        &[RefusedInfoT { reason, in_kernel: 2_000_000, away: 1_500_000, ..refused }],
        false,
    );
    let rates = rows.iter().find(|row| row.reason == "slower").and_then(|row| row.rates);
    let text = rates.map(|rates| rates.to_string());
    assert_eq!(text.as_deref(), Some("2.00 MB/s in the kernel, 1.50 MB/s away"));

    let rows = rows_of(&server, false);
    let with =
        |pid| rows.iter().find(|row| row.kind == "tcp" && row.peer_pid == Some(ProcessId(pid)));
    assert_eq!(with(client.0.id()).map(|row| row.reason), Some("not-hot"));
    assert_eq!(with(plain.0.id()).map(|row| row.reason), Some("no-peer"));
    let all = rows_of(&server, true);
    let listening: Vec<_> = all.iter().filter(|row| row.reason == "state").collect();
    assert_eq!(listening.len(), 1, "{all:#?}");
    assert_eq!(listening[0].from, to);
}

#[test]
fn what_the_configuration_leaves_to_the_kernel() {
    let scratch = Scratch::new("policy");
    let program = program(&scratch);
    let library = scratch.path(crate::beside::LIBRARY);
    std::fs::write(&library, [0; 4096]).unwrap();
    let library = library.to_str().unwrap();
    let (_server, port) = start(&program, &[library, "listen"]);
    let (this_port, not_this) = (format!("1-9,{port}"), format!("!{port}"));
    let settings = [
        ("SOJOURN_TCP", "off", "policy"),
        ("SOJOURN_PORTS", not_this.as_str(), "policy"),
        ("SOJOURN_PORTS", this_port.as_str(), "not-hot"),
        ("SOJOURN_ADDRESSES", "10.0.0.0/8", "policy"),
        ("SOJOURN_PROGRAMS", "!holder", "policy"),
        ("SOJOURN_PROGRAMS", "holder", "not-hot"),
    ];
    for (name, value, reason) in settings {
        let (peer, _) = start_with(&program, &[library, "connect", &port], &[(name, value)]);
        // The kernel walks hash chains: a socket may be missing from one listing while another
        // test's socket leaves the chain.
        let look = || rows_of(&peer, false).into_iter().find(|row| row.kind == "tcp");
        let tcp = (0..5).find_map(|_| look()).unwrap();
        assert_eq!(tcp.reason, reason, "{name}={value}: {tcp:#?}");
    }
}

#[test]
fn pipes_and_unix_sockets_are_found_too() {
    let scratch = Scratch::new("local");
    let program = program(&scratch);
    let library = scratch.path(crate::beside::LIBRARY);
    std::fs::write(&library, [0; 4096]).unwrap();
    let (both, _) = start(&program, &[library.to_str().unwrap(), "pairs"]);
    let rows = rows_of(&both, false);
    let of = |kind: &str| rows.iter().filter(|row| row.kind == kind).cloned().collect::<Vec<_>>();
    // The program has a socket pair of its own, and a pair whose other end is held by a child
    // without the library.
    let mut reasons: Vec<_> = of("unix").iter().map(|row| row.reason).collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["same-process", "same-process"], "{rows:#?}");
    let own: Vec<_> = of("pipe").into_iter().filter(|row| row.reason == "same-process").collect();
    assert_eq!(own.len(), 2, "{rows:#?}");
    // Its standard output, which this test reads.
    let output = of("pipe").into_iter().find(|row| row.peer_pid == Some(ProcessId::own()));
    assert_eq!(output.map(|row| row.reason), Some("no-peer"), "{rows:#?}");
}

/// Makes the folder of a process with the library in a `/proc` of one network name space; without
/// `unix`, a table of sockets, the process has just ended.
fn process_in(proc: &Path, pid: ProcessId, unix: Option<&str>) {
    use std::os::unix::fs::symlink;
    let folder = proc.join(pid.to_string());
    for name in ["fd", "ns", "net"] {
        std::fs::create_dir_all(folder.join(name)).unwrap();
    }
    let maps = format!("1000-2000 r-xp 00000000 00:01 5 /{}\n", crate::beside::LIBRARY);
    std::fs::write(folder.join("maps"), maps).unwrap();
    std::fs::write(folder.join("comm"), "holder\n").unwrap();
    std::fs::write(folder.join("status"), "PPid:\t1\nGid:\t0\t0\t0\t0\nNSpid:\t9\n").unwrap();
    symlink("net:[1]", folder.join("ns/net")).unwrap();
    if let Some(table) = unix {
        symlink("socket:[22]", folder.join("fd/3")).unwrap();
        std::fs::write(folder.join("net/unix"), table).unwrap();
    }
}

#[test]
fn a_process_that_ends_meanwhile_does_not_hide_the_sockets_of_others() {
    let scratch = Scratch::new("ended");
    let proc = scratch.path("proc");
    let table = "Num RefCount Protocol Flags Type St Inode Path\n\
        0000000000000000: 00000003 00000000 00000000 0001 03    22 @name\n";
    for pid in 2..40 {
        process_in(&proc, ProcessId(pid), (pid == 20).then_some(table));
    }
    let rows = found::find(&proc, false, &Observer::blind(&proc));
    let found: Vec<_> = rows.iter().map(|row| (row.pid.0, row.kind, row.from.as_str())).collect();
    assert_eq!(found, [(20, "unix", "@name")]);
}

#[test]
fn udp_sockets_are_found_and_the_server_knows_why() {
    let scratch = Scratch::new("datagrams");
    let program = program(&scratch);
    let library = scratch.path(crate::beside::LIBRARY);
    std::fs::write(&library, [0; 4096]).unwrap();
    let (peer, port) = start(&program, &[library.to_str().unwrap(), "datagrams"]);
    // The kernel walks hash chains: a socket may be missing from one listing while another test's
    // socket leaves the chain.
    let udp = || {
        let look = || {
            let mut rows = rows_of(&peer, true);
            rows.retain(|row| row.kind == "udp");
            rows
        };
        (0..5).map(|_| look()).max_by_key(Vec::len).unwrap()
    };
    let mut rows = udp();
    let own: Vec<_> = rows.iter().filter(|row| row.reason == "no-peer").collect();
    assert_eq!(own.len(), 1, "this host's own are the kernel's: {rows:#?}");
    let from = format!("0.0.0.0:{port}");
    let any: Vec<_> = rows.iter().filter(|row| row.reason == "not-hot").cloned().collect();
    let found = [any[0].from.as_str(), any[0].to.as_str()];
    assert_eq!((any.len(), found), (1, [from.as_str(), "*"]), "{rows:#?}");
    assert_eq!(rows.len(), 2, "one that is not bound is in no table: {rows:#?}");
    let refused = RefusedInfoT {
        pid: any[0].pid.0,
        reason: ReasonT::SharedPort,
        inode: any[0].inode.unwrap().0,
        age_ms: 1,
        in_kernel: 0,
        away: 0,
    };
    explain(&mut rows, &[refused], false);
    assert!(rows.iter().any(|row| row.from == from && row.reason == "shared-port"), "{rows:#?}");
    // A session in both lists is one line.
    let mut away = any[0].clone();
    away.stream = Some(StreamNumber(9));
    let known = info(&away, KindT::Udp, HomeT::Library, ReasonT::None);
    let merged = merge(vec![known], udp(), false);
    let same: Vec<_> = merged.iter().filter(|row| row.from == from).collect();
    assert_eq!(
        (same.len(), same[0].stream, same[0].inode),
        (1, Some(StreamNumber(9)), any[0].inode)
    );
}
