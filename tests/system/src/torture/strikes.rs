//! The effects of each kind of disturbance.
//!
//! A disturbance takes effect at once. A temporary one is undone later (`field`). Not here: the
//! times of disturbances (`episode`).

use super::field::{Field, Hostile, Undo, limit};
use super::isolated;
use super::kind::Kind;
use super::pair::{is_there, signal};
use anyhow::{Context, Result};
use rustix::process::{Resource, Signal};
use sojourn_lab::{Mode, Running};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest times to the end of a program whose peer was killed, and of one with hostile peers.
const END_WITHIN: Duration = Duration::from_secs(45);
const HOSTILE_WITHIN: Duration = Duration::from_secs(90);
/// Time after a server's death in which sessions that it held may end: the time of a peer's
/// retransmissions.
const LOSSY: Duration = Duration::from_secs(10);
/// Time in which a server that has lost a process may cut clients off, on a busy machine.
const CUTS: Duration = Duration::from_secs(30);
/// Time in which a server starts another keeper.
const KEEPER_BACK: Duration = Duration::from_secs(3);
/// Bytes of each write that fills the disk.
const CHUNK: usize = 1 << 20;
/// Bytes that the queues of a program's remote sessions take at most, with a copy.
const QUEUES: u64 = 64 << 20;
/// Bytes of the longest packet to a server.
const PACKET: usize = 300;

/// Disturbs; returns `false` if the kind is not possible here and now.
pub(super) fn strike(field: &mut Field, kind: Kind) -> Result<bool> {
    match kind {
        Kind::Recall => field.testbed.recall().map(|()| true).context("all sessions sent home"),
        Kind::RecallStorm => storm(field),
        Kind::KillProgram => kill_program(field),
        Kind::StopProgram => stop_program(field),
        Kind::KillServer => kill_server(field),
        Kind::EndServer => end_server(field),
        Kind::StopServer => stop_server(field),
        Kind::KillServersProcess | Kind::StopServersProcess => servers_process(field, kind),
        Kind::KillKeeper => kill_keeper(field),
        Kind::ProgramDescriptors | Kind::ProgramMemory => limit_program(field, kind),
        Kind::ServerDescriptors | Kind::ServerMemory => limit_server(field, kind),
        Kind::FullDisk => full_disk(field),
        Kind::HostilePeers => hostile_peers(field),
        Kind::HostileClient => hostile_client(field),
        Kind::Weather => field.change_weather(),
        Kind::Carrier => carrier(field),
    }
}

fn storm(field: &mut Field) -> Result<bool> {
    for _ in 0..field.random.within(3..=12) {
        field.testbed.recall().context("all sessions sent home, again and again")?;
        std::thread::sleep(field.random.ms(0..=15));
    }
    Ok(true)
}

/// One side of a session, by the indices of both.
struct Side {
    pair: usize,
    side: usize,
}

/// A server that runs.
struct Target {
    /// Its index.
    which: usize,
    /// One of its processes.
    pid: u32,
}

/// Chooses a session none of whose programs was killed, and one of its sides.
fn any_side(field: &mut Field) -> Option<Side> {
    let whole: Vec<usize> =
        (0..field.pairs.len()).filter(|at| field.pairs[*at].is_whole()).collect();
    Some(Side { pair: field.random.pick(&whole)?, side: field.random.below(2) })
}

fn any_program(field: &mut Field) -> Option<u32> {
    let Side { pair, side } = any_side(field)?;
    field.pairs[pair].pid(side)
}

fn kill_program(field: &mut Field) -> Result<bool> {
    let Some(Side { pair, side }) = any_side(field) else { return Ok(false) };
    field.pairs[pair].kill(side, END_WITHIN);
    let name = field.pairs[pair].name.clone();
    field.note(&format!("side {side} of {name}"));
    Ok(true)
}

fn stop_program(field: &mut Field) -> Result<bool> {
    let Some(pid) = any_program(field) else { return Ok(false) };
    signal(pid, Signal::STOP);
    let after = field.random.ms(1..=400);
    field.later(after, Undo::Continue(pid));
    Ok(true)
}

/// Chooses a server that runs and is short of nothing.
fn any_server(field: &mut Field) -> Option<Target> {
    let which = field.random.pick(&field.testbed.served())?;
    if field.is_hampered(which) || !field.testbed.world(which).has_server() {
        return None;
    }
    Some(Target { which, pid: field.testbed.world(which).server_pid()? })
}

/// Of such a server the process that programs speak with.
fn any_front(field: &mut Field) -> Option<Target> {
    let Target { which, pid } = any_server(field)?;
    Some(Target { which, pid: field.testbed.world(which).server_part("front").unwrap_or(pid) })
}

fn kill_server(field: &mut Field) -> Result<bool> {
    if field.kept_again.is_some_and(|at| Instant::now() < at) {
        return Ok(false);
    }
    let Some(Target { which, .. }) = any_server(field) else { return Ok(false) };
    field.testbed.end(which, Signal::KILL)?;
    field.note(&format!("server {which} killed"));
    field.lossy_until = Some(Instant::now() + LOSSY);
    let after = field.random.ms(0..=300);
    field.later(after, Undo::Start(which));
    Ok(true)
}

/// Ends a server in order. No program may be stopped then, because the server waits for the
/// programs whose sessions it recalls.
fn end_server(field: &mut Field) -> Result<bool> {
    field.undo(true)?;
    let Some(Target { which, .. }) = any_server(field) else { return Ok(false) };
    field.testbed.end(which, Signal::TERM).context("the server told to end")?;
    let after = field.random.ms(0..=100);
    field.later(after, Undo::Start(which));
    Ok(true)
}

fn stop_server(field: &mut Field) -> Result<bool> {
    let Some(Target { which, pid }) = any_front(field) else { return Ok(false) };
    signal(pid, Signal::STOP);
    field.testbed.servers[which].is_hampered = true;
    // In some cases longer than libraries wait for the server.
    let after = if field.random.percent(15) {
        field.random.ms(2500..=4000)
    } else {
        field.random.ms(1..=500)
    };
    field.later(after, Undo::ContinueServer(which, pid));
    Ok(true)
}

fn servers_process(field: &mut Field, kind: Kind) -> Result<bool> {
    let Some(Target { which, .. }) = any_server(field) else { return Ok(false) };
    let keeper =
        crate::leftovers::keeper(&crate::leftovers::keeper_path(field.testbed.world(which)));
    field.note(&format!("of server {which}"));
    let mut processes = field.testbed.servers_processes(which);
    processes.retain(|pid| is_there(*pid) && keeper != Some(*pid));
    let Some(pid) = field.random.pick(&processes) else { return Ok(false) };
    let world = field.testbed.world(which);
    let parts = ["front", "prober", "carrier"].map(|part| world.server_part(part));
    if kind == Kind::KillServersProcess {
        // Without one of its parts a server begins anew, as if all of it were killed.
        if parts.contains(&Some(pid)) {
            if field.kept_again.is_some_and(|at| Instant::now() < at) {
                return Ok(false);
            }
            field.lossy_until = Some(Instant::now() + LOSSY);
        }
        field.testbed.servers[which].cuts_until = Some(Instant::now() + CUTS);
        signal(pid, Signal::KILL);
    } else {
        signal(pid, Signal::STOP);
        // The server waits for its stopped process, so it need not answer meanwhile.
        field.testbed.servers[which].is_hampered = true;
        let after = field.random.ms(1..=400);
        field.later(after, Undo::ContinueServer(which, pid));
    }
    Ok(true)
}

fn kill_keeper(field: &mut Field) -> Result<bool> {
    let Some(Target { which, .. }) = any_server(field) else { return Ok(false) };
    let path = crate::leftovers::keeper_path(field.testbed.world(which));
    let Some(keeper) = crate::leftovers::keeper(&path) else { return Ok(false) };
    signal(keeper, Signal::KILL);
    field.kept_again = Some(Instant::now() + KEEPER_BACK);
    Ok(true)
}

fn limit_program(field: &mut Field, kind: Kind) -> Result<bool> {
    let Some(pid) = any_program(field) else { return Ok(false) };
    // A remote session that goes home needs memory for another copy of its queues
    // (docs/use/linux-differences.md).
    let most = if field.testbed.is_between_hosts() { QUEUES } else { 0 };
    let (resource, value) = match kind {
        Kind::ProgramMemory => {
            (Resource::As, mapped(pid)? + field.random.within(most..=most + (1 << 20)))
        }
        // poll(2) fails with EINVAL for more entries than this limit, open or not.
        _ => (Resource::Nofile, field.random.within(3..=16)),
    };
    let Some(old) = limit(pid, resource, value) else { return Ok(false) };
    let after = field.random.ms(20..=600);
    field.later(after, Undo::Limit(pid, resource, old));
    Ok(true)
}

fn limit_server(field: &mut Field, kind: Kind) -> Result<bool> {
    let Some(Target { which, pid }) = any_front(field) else { return Ok(false) };
    let (resource, value) = match kind {
        Kind::ServerMemory => (Resource::As, mapped(pid)? + field.random.within(0..=1 << 20)),
        _ => (Resource::Nofile, field.random.within(0..=64)),
    };
    let Some(old) = limit(pid, resource, value) else { return Ok(false) };
    field.note(&format!("server {which}: at most {value}"));
    let server = &mut field.testbed.servers[which];
    server.is_hampered = true;
    server.may_starve |= kind == Kind::ServerMemory;
    let after = field.random.ms(20..=600);
    field.later(after, Undo::ServerLimit(which, pid, resource, old));
    Ok(true)
}

/// Returns the bytes of a process's mapped address space.
fn mapped(pid: u32) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap_or(0);
    Ok(pages * rustix::param::page_size() as u64)
}

/// Fills the disk until neither a byte nor a file fits.
fn fill(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir(folder)?;
    let mut file = std::fs::File::create(folder.join("bytes"))?;
    let chunk = vec![0; CHUNK];
    while file.write_all(&chunk).is_ok() {}
    let mut number = 0;
    while std::fs::File::create(folder.join(number.to_string())).is_ok() {
        number += 1;
    }
    Ok(())
}

fn full_disk(field: &mut Field) -> Result<bool> {
    let Some(disk) = isolated::disk() else { return Ok(false) };
    if field.is_disk_full() {
        return Ok(false);
    }
    let folder = disk.join("full");
    fill(&folder).context("the disk filled")?;
    let after = field.random.ms(50..=400);
    field.later(after, Undo::Disk(folder));
    if field.random.percent(50) {
        if kill_server(field)? && field.random.percent(50) {
            // A server that starts on a full disk may report that it cannot serve, and end.
            for which in field.testbed.served() {
                let started = field.testbed.start(which).is_ok();
                field.note(&format!("server {which} on a full disk: {started}"));
            }
        }
    } else {
        field.testbed.recall()?;
    }
    Ok(true)
}

fn hostile_peers(field: &mut Field) -> Result<bool> {
    let Some(program) = field.hostile_program.clone().filter(|_| field.hostile.is_empty()) else {
        return Ok(false);
    };
    let words = [
        field.random.pick(&["unix", "tcp"]),
        field.random.pick(&["writes", "lies", "stops"]),
        field.random.pick(&["close", "fork", "exec", "exit"]),
    ];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    let Some(which) = field.random.pick(&field.testbed.served()) else { return Ok(false) };
    let mut command = field.testbed.world(which).command(Mode::Sojourn, program);
    command.args(&words);
    let running = Running::start(command)?;
    let deadline = Instant::now() + HOSTILE_WITHIN;
    field.hostile.push(Hostile { running, name: words.join(" "), deadline });
    Ok(true)
}

/// Sends the server random packets.
fn hostile_client(field: &mut Field) -> Result<bool> {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketType};
    let Some(Target { which, .. }) = any_server(field) else { return Ok(false) };
    let address = SocketAddrUnix::new(field.testbed.world(which).address())?;
    for _ in 0..field.random.within(1..=8) {
        let kind = SocketType::SEQPACKET;
        let socket = rustix::net::socket(AddressFamily::UNIX, kind, None)?;
        if rustix::net::connect(&socket, &address).is_err() {
            continue;
        }
        for _ in 0..field.random.within(0..=20) {
            let len = field.random.below(PACKET);
            let bytes: Vec<u8> = (0..len).map(|_| field.random.next() as u8).collect();
            // Fails when the server has closed the connection.
            let _ = rustix::net::send(&socket, &bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
        }
    }
    Ok(true)
}

fn carrier(field: &mut Field) -> Result<bool> {
    if !field.testbed.set_carrier(false)? {
        return Ok(false);
    }
    let after = field.random.ms(10..=400);
    field.later(after, Undo::Carrier);
    Ok(true)
}
