//! getpid(2) answered by a tracer: a program stops at its entry into each system call and at its
//! way out, and the tracer changes the registers of those that it emulates (ptrace(2)).
#![allow(unsafe_code, reason = "ptrace(2) has no safe wrapper")]

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr;

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

/// Makes a request of ptrace(2) whose data is a number, or a pointer that the caller keeps valid.
fn request(what: libc::c_uint, id: libc::pid_t, data: usize) -> Result<()> {
    // SAFETY: `data` is a number, or points to registers that live through the call.
    let done = unsafe { libc::ptrace(what, id, ptr::null_mut::<libc::c_void>(), data) };
    if done < 0 {
        bail!("ptrace {what}: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

fn trace(id: libc::pid_t, pid: i64) -> Result<()> {
    ensure!(next_stop(id)? == Some(libc::SIGTRAP), "no stop at the beginning");
    let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
    request(libc::PTRACE_SETOPTIONS, id, options as usize)?;
    // SAFETY: plain numbers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let place = (&raw mut registers) as usize;
    let (mut is_inside, mut is_emulated) = (false, false);
    loop {
        request(libc::PTRACE_SYSCALL, id, 0)?;
        match next_stop(id)? {
            None => return Ok(()),
            Some(SYSCALL_STOP) => {}
            Some(signal) => bail!("signal {signal}"),
        }
        is_inside = !is_inside;
        if is_inside {
            request(libc::PTRACE_GETREGS, id, place)?;
            is_emulated = registers.orig_rax == libc::SYS_getpid as u64;
            if is_emulated {
                // The call number -1 makes the kernel skip the call between the two stops.
                registers.orig_rax = u64::MAX;
                request(libc::PTRACE_SETREGS, id, place)?;
            }
        } else if is_emulated {
            registers.rax = pid as u64;
            request(libc::PTRACE_SETREGS, id, place)?;
        }
    }
}
