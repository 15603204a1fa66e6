//! A running program, with a deadline; it is killed when its owner drops it.

#![allow(unsafe_code, reason = "a hook between fork and exec")]

use anyhow::{Context, Result, bail};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The output of a program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The exit status, or minus the signal that ended the program.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Finished {
    /// Returns the standard output of a program that must have succeeded.
    ///
    /// # Errors
    /// The program's output, if its status is not 0.
    pub fn success(self, what: &str) -> Result<String> {
        if self.status != 0 {
            bail!("{what}: status {}\n{}\n{}", self.status, self.out, self.err);
        }
        Ok(self.out)
    }
}

/// A running program; drop kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    name: String,
    out: Option<Receiver<String>>,
    err: Option<Receiver<String>>,
}

impl Running {
    /// Starts `command` with its output collected, in a session of its own (setsid(2)). The
    /// relatives of a test may include processes that the server may not inspect, and the server
    /// does not trust descriptors that such processes in the same session may have inherited.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(mut command: Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: setsid(2) is async-signal-safe and touches no memory of this process.
        unsafe { command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into)) };
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let out = child.stdout.take().map(collect);
        let err = child.stderr.take().map(collect);
        Ok(Self { child, name, out, err })
    }

    /// Returns the process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the program's end, at most for `limit`; then kills it.
    ///
    /// # Errors
    /// If the limit was reached: where each thread waited, and the program's output.
    pub fn finish(mut self, limit: Duration) -> Result<Finished> {
        let deadline = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if Instant::now() > deadline {
                let where_ = self.whereabouts();
                let _ = self.child.kill();
                let _ = self.child.wait();
                let output = self.output();
                bail!("{} did not end within {limit:?}\n{where_}\n{output}", self.name);
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        use std::os::unix::process::ExitStatusExt;
        let status = status.code().unwrap_or_else(|| -status.signal().unwrap_or(0));
        Ok(Finished { status, out: take(&mut self.out), err: take(&mut self.err) })
    }

    /// Sends a signal to the program.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // Fails if the program has ended meanwhile.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Returns true if the program still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Describes the system call and wait channel of each thread, for the error about a program
    /// that hangs.
    fn whereabouts(&self) -> String {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let mut text = String::new();
        for task in tasks.into_iter().flatten().flatten() {
            for file in ["comm", "wchan", "syscall"] {
                let found = std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
                text += &format!("{} ", found.trim_end());
            }
            text.push('\n');
        }
        text
    }

    /// Returns the output of a program that has ended, for an error's text.
    pub fn output(&mut self) -> String {
        format!("{}\n{}", take(&mut self.out), take(&mut self.err))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

/// Returns the collected output. A grandchild may hold the pipe open, so the wait for the end of
/// the output is limited.
fn take(from: &mut Option<Receiver<String>>) -> String {
    from.take().and_then(|from| from.recv_timeout(Duration::from_secs(2)).ok()).unwrap_or_default()
}
