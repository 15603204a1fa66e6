//! A host: a network namespace (network_namespaces(7)), with programs and sockets in it. Not here:
//! the links between hosts (`link`).

#![allow(unsafe_code, reason = "a hook between fork and exec")]

use super::namespaces::{self, ip};
use crate::{Finished, Running};
use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// A host, with a loopback interface that is up. Clones are the same host. The last drop removes
/// the host and kills the programs in it.
#[derive(Clone, Debug)]
pub struct Host {
    namespace: Arc<Namespace>,
}

#[derive(Debug)]
struct Namespace {
    name: String,
    file: File,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        namespaces::remove(&self.name);
    }
}

impl Host {
    /// Makes a host without links.
    ///
    /// # Errors
    /// Without the rights, or without `ip`.
    pub fn new() -> Result<Self> {
        let name = namespaces::make()?;
        let path = namespaces::path(&name);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) => {
                namespaces::remove(&name);
                return Err(error).with_context(|| format!("cannot open {}", path.display()));
            }
        };
        let host = Self { namespace: Arc::new(Namespace { name, file }) };
        host.ip(&["link", "set", "dev", "lo", "up"])?;
        Ok(host)
    }

    /// Makes a host that forwards packets between its links.
    ///
    /// # Errors
    /// As [`Host::new`].
    pub fn router() -> Result<Self> {
        let host = Self::new()?;
        host.set("ipv4/ip_forward", "1")?;
        host.set("ipv6/conf/all/forwarding", "1")?;
        Ok(host)
    }

    /// Returns the name of the namespace, as `ip netns` knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.namespace.name
    }

    /// Runs `work` in a thread that is on this host. Sockets and files of `/proc/sys/net` that
    /// `work` opens belong to the host, and stay so. Threads and processes that `work` starts are
    /// on the host too. `/proc/net` is that of the process's first thread: read
    /// `/proc/thread-self/net` instead.
    ///
    /// # Errors
    /// If the thread cannot enter the namespace.
    ///
    /// # Panics
    /// If `work` does.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let here = &self.namespace.file;
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                move_into_link_name_space(here.as_fd(), Some(LinkNameSpaceType::Network))?;
                Ok(work())
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Makes `command` run on this host; everything else about the command stays. The host lives at
    /// least as long as the command can be started.
    pub fn place(&self, command: &mut Command) {
        let namespace = Arc::clone(&self.namespace);
        let enter = move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.file.as_fd(), network).map_err(Into::into)
        };
        // SAFETY: setns(2) is one system call with an open descriptor; it allocates nothing and
        // takes no lock.
        unsafe { command.pre_exec(enter) };
    }

    /// Runs a program on this host to its end.
    ///
    /// # Errors
    /// If the program cannot be started or does not end within `limit`.
    pub fn run(&self, program: &str, words: &[&str], limit: Duration) -> Result<Finished> {
        let mut command = Command::new(program);
        command.args(words);
        self.place(&mut command);
        Running::start(command)?.finish(limit)
    }

    /// Runs `ip` on this host's interfaces, routes and neighbours; returns its output.
    ///
    /// # Errors
    /// If the command does not succeed.
    pub fn ip(&self, words: &[&str]) -> Result<String> {
        let mut all = vec!["-n", self.name()];
        all.extend(words);
        ip(&all)
    }

    /// Sets `/proc/sys/net/NAME`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{name}");
        self.enter(|| std::fs::write(&path, value))?.with_context(|| format!("{path} = {value}"))
    }

    /// Adds a default route through `router`.
    ///
    /// # Errors
    /// If the router is not on one of this host's links.
    pub fn default_route(&self, router: IpAddr) -> Result<()> {
        let family = if router.is_ipv4() { "-4" } else { "-6" };
        self.ip(&[family, "route", "replace", "default", "via", &router.to_string()]).map(drop)
    }
}
