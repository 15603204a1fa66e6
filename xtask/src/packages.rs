//! Debian packages and toolchain components that a step needs, installed when they are missing.

use crate::steps::{command, run};
use anyhow::{Result, bail};
use std::process::{Command, Stdio};

/// Needed for every build: the C compiler for C stubs and examples.
pub(crate) const BUILD: &[&str] = &["gcc", "libc6-dev", "pkg-config"];
/// Needed for the packet filter. Without the filter a build works, but accelerates no session with
/// another host.
pub(crate) const FILTER: &[&str] = &["clang"];
/// Needed for the tests: `g++` checks that the headers are valid C++, `clang` builds the packet
/// filter, and `tests/system` runs the programs.
pub(crate) const TEST: &[&str] = &[
    "gcc",
    "clang",
    "g++",
    "iproute2",
    "iptables",
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
    "strace",
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
/// Needed for the tests of Go programs, on a machine without any Go.
pub(crate) const GO: &[&str] = &["golang-go"];
/// Path of the `go` command if Go's official release is installed as its instructions say.
const GO_OF_ITS_OWN: &str = "/usr/local/go/bin/go";
/// Needed to build everything for AArch64 on a machine of another kind.
pub(crate) const AARCH64: &[&str] = &["clang", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"];
/// Needed to run tests that were built so.
pub(crate) const EMULATOR: &[&str] = &["qemu-user"];
/// Needed for the benchmarks: the mechanisms for comparison, which are rpcgen with its library and
/// the Cap'n Proto compiler.
pub(crate) const BENCH: &[&str] =
    &["gcc", "libc6-dev", "pkg-config", "rpcsvc-proto", "libtirpc-dev", "capnproto"];
/// Needed for `bench local`: the programs that it runs, and clang for its eBPF program.
pub(crate) const BENCH_LOCAL: &[&str] =
    &["clang", "iperf3", "nginx", "postgresql", "redis-server", "redis-tools", "wrk"];
/// Needed for `bench net`: the programs that it runs, and clang for the packet filter.
pub(crate) const BENCH_NET: &[&str] = &["clang", "iproute2", "redis-server", "redis-tools"];
/// Needed for the table `memory` of the papers, and only if it is asked for: the package is large.
pub(crate) const MEMORY: &[&str] = &["qemu-system-x86", "binutils"];
/// Needed for the demonstration.
pub(crate) const REDIS: &[&str] = &["redis-server", "redis-tools"];

fn is_installed(package: &str) -> bool {
    let status = Command::new("dpkg-query")
        .args(["-W", "-f", "${Status}", package])
        .stderr(Stdio::null())
        .output();
    status.is_ok_and(|output| output.stdout.starts_with(b"install ok installed"))
}

/// Installs those of `packages` that are missing.
///
/// On a system without dpkg nothing is installed: the user provides the programs, and a step that
/// misses one fails with its name.
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

/// Installs Go from Debian unless a `go` command is there.
pub(crate) fn ensure_go() -> Result<()> {
    let has = |go: &str| command(&[go, "version"]).output().is_ok_and(|out| out.status.success());
    if has("go") || has(GO_OF_ITS_OWN) { Ok(()) } else { ensure(GO) }
}

/// Installs a component of the Rust toolchain with rustup, unless the component is there.
pub(crate) fn ensure_component(name: &str, probe: &[&str]) -> Result<()> {
    if crate::steps::cargo(probe).output().is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    run(
        &format!("rustup component add {name}"),
        &mut command(&["rustup", "component", "add", name]),
    )
}

/// Installs the Rust libraries for another machine with rustup, unless they are there.
pub(crate) fn ensure_target(name: &str) -> Result<()> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let asked = [rustc.as_str(), "--print", "target-libdir", "--target", name];
    let folder = crate::steps::output(&mut command(&asked))?;
    if std::path::Path::new(folder.trim()).is_dir() {
        return Ok(());
    }
    run(&format!("rustup target add {name}"), &mut command(&["rustup", "target", "add", name]))
}
