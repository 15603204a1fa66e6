//! A host: a network namespace, with programs and sockets in it. Not what joins it to others: see
//! `link`.

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

/// A host, with a loopback interface that is up. Clones are the same host; it goes with the last,
/// and what runs in it is killed.
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
    /// A host without links.
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

    /// A host that forwards packets between its links.
    ///
    /// # Errors
    /// As [`Host::new`].
    pub fn router() -> Result<Self> {
        let host = Self::new()?;
        host.set("ipv4/ip_forward", "1")?;
        host.set("ipv6/conf/all/forwarding", "1")?;
        Ok(host)
    }

    /// The namespace's name, as `ip netns` knows it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.namespace.name
    }

    /// Runs `work` in a thread that is on this host: what it opens (sockets, `/proc/sys/net`) is
    /// the host's, and stays so. Threads and processes that it starts are on the host too.
    /// `/proc/net` is the first thread's: read `/proc/thread-self/net`.
    ///
    /// # Errors
    /// If the thread cannot go there.
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

    /// Makes `command` run on this host; everything else about it stays. The host lives as long as
    /// the command may be started.
    pub fn place(&self, command: &mut Command) {
        let namespace = Arc::clone(&self.namespace);
        let enter = move || {
            let network = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.file.as_fd(), network).map_err(Into::into)
        };
        // SAFETY: setns is one system call with a descriptor that is open; nothing is allocated, no
        // lock is taken.
        unsafe { command.pre_exec(enter) };
    }

    /// Runs a program on this host to its end.
    ///
    /// # Errors
    /// If it cannot be started or does not end within `limit`.
    pub fn run(&self, program: &str, words: &[&str], limit: Duration) -> Result<Finished> {
        let mut command = Command::new(program);
        command.args(words);
        self.place(&mut command);
        Running::start(command)?.finish(limit)
    }

    /// Runs `ip` on this host's interfaces, routes and neighbours; its output.
    ///
    /// # Errors
    /// If it does not succeed.
    pub fn ip(&self, words: &[&str]) -> Result<String> {
        let mut all = vec!["-n", self.name()];
        all.extend(words);
        ip(&all)
    }

    /// Sets `/proc/sys/net/NAME`.
    ///
    /// # Errors
    /// If it cannot be set.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/net/{name}");
        self.enter(|| std::fs::write(&path, value))?.with_context(|| format!("{path} = {value}"))
    }

    /// Sends everything that is not on its own links to a router.
    ///
    /// # Errors
    /// If the router is not on one of its links.
    pub fn default_route(&self, router: IpAddr) -> Result<()> {
        let family = if router.is_ipv4() { "-4" } else { "-6" };
        self.ip(&[family, "route", "replace", "default", "via", &router.to_string()]).map(drop)
    }
}
