//! A control group of version 2 for a test, with an eBPF program that decides about packets.
//!
//! The program is two instructions, made here: it lets all packets pass, or none. Not here: control
//! groups that measure (`sojourn-bench`). Read cgroups(7) and bpf(2) first.

#![allow(unsafe_code, reason = "bpf(2), and a step between fork and exec")]

use anyhow::{Context, Result, ensure};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// `BPF_PROG_LOAD`, `BPF_PROG_ATTACH` and `BPF_PROG_DETACH`.
const LOAD: libc::c_int = 5;
const ATTACH: libc::c_int = 8;
const DETACH: libc::c_int = 9;
/// `BPF_PROG_TYPE_CGROUP_SKB`.
const CGROUP_SKB: u32 = 8;

/// The packets that a program decides about, by the values of `enum bpf_attach_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packets {
    /// Those that come in (`BPF_CGROUP_INET_INGRESS`).
    Incoming = 0,
    /// Those that go out (`BPF_CGROUP_INET_EGRESS`).
    Outgoing = 1,
}

/// The group; dropping this removes it, and its program with it.
#[derive(Debug)]
pub struct ControlGroup {
    folder: PathBuf,
    group: File,
}

impl ControlGroup {
    /// Makes a group below the hierarchy's root.
    ///
    /// # Errors
    /// If there is no hierarchy of version 2, or no right to make groups in it.
    pub fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
        let mount = mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            after.starts_with("cgroup2 ").then(|| before.split(' ').nth(4))?
        });
        let mount = mount.context("no control groups of version 2")?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sojourn-lab-{}-{number}", std::process::id());
        let folder = PathBuf::from(mount).join(name);
        std::fs::create_dir(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let group = File::open(&folder)?;
        Ok(Self { folder, group })
    }

    /// Makes `command` start in this group.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn place(&self, command: &mut Command) -> Result<()> {
        let path = self.folder.join("cgroup.procs");
        let processes = Arc::new(File::options().write(true).open(path)?);
        // 0 is the writing process.
        let enter = move || (&*processes).write_all(b"0");
        // SAFETY: one write to an open descriptor; nothing is allocated, no lock is taken.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }

    /// Attaches a program that lets all such packets of the group's sockets pass, or none; it goes
    /// with [`ControlGroup::detach`].
    ///
    /// # Errors
    /// If the kernel has no such programs, or the right is missing.
    pub fn attach(&self, packets: Packets, lets_pass: bool) -> Result<OwnedFd> {
        let program = load(lets_pass)?;
        let group = self.group.as_raw_fd().cast_unsigned();
        bpf(ATTACH, &mut [group, program.as_raw_fd().cast_unsigned(), packets as u32, 0])
            .context("BPF_PROG_ATTACH")?;
        Ok(program)
    }

    /// Detaches a program again.
    ///
    /// # Errors
    /// If it is not attached.
    pub fn detach(&self, packets: Packets, program: &OwnedFd) -> Result<()> {
        let group = self.group.as_raw_fd().cast_unsigned();
        bpf(DETACH, &mut [group, program.as_raw_fd().cast_unsigned(), packets as u32, 0])
            .context("BPF_PROG_DETACH")?;
        Ok(())
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // A group with processes stays; the test has ended its own.
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Loads `r0 = lets_pass; exit`.
fn load(lets_pass: bool) -> Result<OwnedFd> {
    let instructions: [u64; 2] = [0xb7 | u64::from(lets_pass) << 32, 0x95];
    let licence = c"GPL";
    let halves = |address: usize| [address as u64 as u32, (address as u64 >> 32) as u32];
    let [code, code_high] = halves(instructions.as_ptr() as usize);
    let [text, text_high] = halves(licence.as_ptr() as usize);
    let mut attributes = [CGROUP_SKB, 2, code, code_high, text, text_high, 0, 0];
    let made = bpf(LOAD, &mut attributes).context("BPF_PROG_LOAD")?;
    // SAFETY: the kernel has just made it for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Calls bpf(2) with the first words of its attributes.
fn bpf(command: libc::c_int, words: &mut [u32]) -> Result<i32> {
    // SAFETY: the kernel reads the words that it is given, and instructions and text that they
    // point to, which outlive the call.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), size_of_val(words)) };
    ensure!(answer >= 0, std::io::Error::last_os_error());
    Ok(i32::try_from(answer)?)
}
