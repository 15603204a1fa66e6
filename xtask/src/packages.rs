//! Debian packages and tool chain components that a step needs, installed when they are missing.

use crate::steps::{command, run};
use anyhow::{Result, bail};
use std::process::{Command, Stdio};

/// For every build: C stubs and examples.
pub(crate) const BUILD: &[&str] = &["gcc", "libc6-dev", "pkg-config"];
/// For the packet filter, without which what is built carries no sessions with other hosts.
pub(crate) const FILTER: &[&str] = &["clang"];
/// For the tests: the headers are also checked as C++; clang for the packet filter; the programs
/// that `tests/system` runs.
pub(crate) const TEST: &[&str] = &[
    "gcc",
    "clang",
    "g++",
    "iproute2",
    "nftables",
    "libc6-dev",
    "make",
    "musl-tools",
    "pkg-config",
    "redis-server",
    "redis-tools",
    "nginx",
    "wrk",
    "postgresql",
    "memcached",
    "openssh-server",
    "openssh-client",
    "rsync",
    "iperf3",
    "socat",
    "curl",
    "python3",
    "nodejs",
    "openjdk-17-jdk-headless",
    "bind9-dnsutils",
    "inetutils-telnet",
    "inetutils-telnetd",
    "tcpdump",
    "tnftp",
    "vsftpd",
    "x11-apps",
    "x11-utils",
    "xvfb",
];
/// For the tests of Go programs, where there is no Go yet.
pub(crate) const GO: &[&str] = &["golang-go"];
/// Where Go's own releases are unpacked.
const GO_OF_ITS_OWN: &str = "/usr/local/go/bin/go";
/// For the benchmarks: rpcgen and its library, and the Cap'n Proto compiler, to be measured beside.
pub(crate) const BENCH: &[&str] =
    &["gcc", "libc6-dev", "pkg-config", "rpcsvc-proto", "libtirpc-dev", "capnproto"];
/// The programs that `bench local` runs, and clang for its eBPF program.
pub(crate) const BENCH_LOCAL: &[&str] =
    &["clang", "iperf3", "nginx", "postgresql", "redis-server", "redis-tools", "wrk"];
/// What `bench net` runs.
pub(crate) const BENCH_NET: &[&str] = &["clang", "iproute2", "redis-server", "redis-tools"];
/// For the demonstration.
pub(crate) const REDIS: &[&str] = &["redis-server", "redis-tools"];

fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query")
        .args(["-W", "-f", "${Status}", package])
        .stderr(Stdio::null())
        .output();
    status.is_ok_and(|output| output.stdout.starts_with(b"install ok installed"))
}

/// Installs those of `packages` that are missing. On a system without dpkg it is for the user to
/// have them; what then fails says what it needed.
pub(crate) fn ensure(packages: &[&str]) -> Result<()> {
    if Command::new("dpkg-query").arg("--version").output().is_err() {
        return Ok(());
    }
    let missing: Vec<&str> = packages.iter().copied().filter(|name| !is_installed(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    let is_root = crate::steps::output(&mut command(&["id", "-u"]))?.trim() == "0";
    let sudo: &[&str] = if is_root { &[] } else { &["sudo", "-n"] };
    let apt = |words: &[&str]| {
        let mut all = sudo.to_vec();
        all.extend(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
        all.extend(words);
        command(&all)
    };
    let installed = run("apt-get update", apt(&["update"]).stdout(Stdio::null())).and_then(|()| {
        let mut words = vec!["install", "-y", "--no-install-recommends"];
        words.extend(&missing);
        run(&format!("apt-get install {list}"), apt(&words).stdout(Stdio::null()))
    });
    match installed {
        Ok(()) => Ok(()),
        Err(error) => {
            bail!("{error}\nNeeded: {list}. Install them as root: apt-get install {list}")
        }
    }
}

/// Installs Go unless there is one.
pub(crate) fn ensure_go() -> Result<()> {
    let has = |go: &str| command(&[go, "version"]).output().is_ok_and(|out| out.status.success());
    if has("go") || has(GO_OF_ITS_OWN) { Ok(()) } else { ensure(GO) }
}

/// Installs a component of the Rust tool chain if it is missing and rustup is there.
pub(crate) fn ensure_component(name: &str, probe: &[&str]) -> Result<()> {
    if crate::steps::cargo(probe).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    run(
        &format!("rustup component add {name}"),
        &mut command(&["rustup", "component", "add", name]),
    )
}
