//! getpid(2) answered by a tracer: a program stops at its entry into each system call and at its
//! way out, and the tracer changes the registers of those that it emulates (ptrace(2)).
#![allow(unsafe_code, reason = "ptrace(2) has no safe wrapper")]

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The stop signal of a system call, as `PTRACE_O_TRACESYSGOOD` marks it.
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;

/// Runs the program to its end with `pid` as the result of getpid(2). Returns the program's output.
pub(super) fn run(program: &Path, words: &[String], pid: i64) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).stdout(Stdio::piped()).stdin(Stdio::null());
    let traced = || {
        // SAFETY: takes no pointers; the parent traces from here on.
        match unsafe { libc::ptrace(libc::PTRACE_TRACEME) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: a system call, and nothing else.
    unsafe { command.pre_exec(traced) };
    let mut child = command.spawn().context("a traced program")?;
    let id = child.id().cast_signed();
    let outcome = trace(id, pid);
    if outcome.is_err() {
        let _ = child.kill();
    }
    outcome?;
    let mut text = String::new();
    child.stdout.take().context("its output")?.read_to_string(&mut text)?;
    Ok(text)
}

/// Waits for the next stop; `None` when the program has ended.
fn next_stop(id: libc::pid_t) -> Result<Option<i32>> {
    let mut status = 0;
    // SAFETY: `status` is valid for writes.
    let found = unsafe { libc::waitpid(id, &raw mut status, 0) };
    ensure!(found == id, "waitpid: {}", std::io::Error::last_os_error());
    if libc::WIFSTOPPED(status) {
        return Ok(Some(libc::WSTOPSIG(status)));
    }
    ensure!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "it failed ({status})");
    Ok(None)
}

/// Makes a request of ptrace(2) whose address and data are numbers, or pointers that the caller
/// keeps valid.
fn request(what: libc::c_uint, id: libc::pid_t, address: usize, data: usize) -> Result<()> {
    // SAFETY: numbers, or pointers to registers that live through the call.
    let done = unsafe { libc::ptrace(what, id, address as *mut libc::c_void, data) };
    if done < 0 {
        bail!("ptrace {what}: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

/// The registers of a program that stands at a system call.
struct Registers(libc::user_regs_struct);

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// Reads them at the entry; the call's number.
    fn enter(&mut self, id: libc::pid_t) -> Result<libc::c_long> {
        request(libc::PTRACE_GETREGS, id, 0, (&raw mut self.0) as usize)?;
        Ok(self.0.orig_rax.cast_signed())
    }

    /// Makes it no call: the kernel does nothing between the two stops.
    fn skip(&mut self, id: libc::pid_t) -> Result<()> {
        self.0.orig_rax = u64::MAX;
        request(libc::PTRACE_SETREGS, id, 0, (&raw mut self.0) as usize)
    }

    /// Writes the answer at the way out.
    fn answer(&mut self, id: libc::pid_t, answer: i64) -> Result<()> {
        self.0.rax = answer.cast_unsigned();
        request(libc::PTRACE_SETREGS, id, 0, (&raw mut self.0) as usize)
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// Reads them at the entry; the call's number.
    fn enter(&mut self, id: libc::pid_t) -> Result<libc::c_long> {
        self.general(libc::PTRACE_GETREGSET, id)?;
        Ok(self.0.regs[8].cast_signed())
    }

    /// Makes it no call: the kernel does nothing between the two stops.
    fn skip(&mut self, id: libc::pid_t) -> Result<()> {
        /// `NT_ARM_SYSTEM_CALL`: the number of the call as a set of registers.
        const NUMBER: usize = 0x404;
        let mut none = -1i32;
        let mut place =
            libc::iovec { iov_base: (&raw mut none).cast(), iov_len: size_of_val(&none) };
        request(libc::PTRACE_SETREGSET, id, NUMBER, (&raw mut place) as usize)
    }

    /// Writes the answer at the way out.
    fn answer(&mut self, id: libc::pid_t, answer: i64) -> Result<()> {
        self.0.regs[0] = answer.cast_unsigned();
        self.general(libc::PTRACE_SETREGSET, id)
    }

    fn general(&mut self, what: libc::c_uint, id: libc::pid_t) -> Result<()> {
        let iov_base = (&raw mut self.0).cast();
        let mut place = libc::iovec { iov_base, iov_len: size_of_val(&self.0) };
        request(what, id, libc::NT_PRSTATUS as usize, (&raw mut place) as usize)
    }
}

fn trace(id: libc::pid_t, pid: i64) -> Result<()> {
    ensure!(next_stop(id)? == Some(libc::SIGTRAP), "no stop at the beginning");
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, id, 0, options as usize)?;
    // SAFETY: plain numbers.
    let mut registers = Registers(unsafe { std::mem::zeroed() });
    let (mut is_inside, mut is_emulated) = (false, false);
    loop {
        request(libc::PTRACE_SYSCALL, id, 0, 0)?;
        match next_stop(id)? {
            None => return Ok(()),
            Some(SYSCALL_STOP) => {}
            Some(signal) => bail!("signal {signal}"),
        }
        is_inside = !is_inside;
        if is_inside {
            is_emulated = registers.enter(id)? == libc::SYS_getpid;
            if is_emulated {
                registers.skip(id)?;
            }
        } else if is_emulated {
            registers.answer(id, pid)?;
        }
    }
}
