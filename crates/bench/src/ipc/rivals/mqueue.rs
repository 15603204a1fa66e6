//! A pair of POSIX message queues (mq_overview(7)). The kernel's default limit is 8 KiB per
//! message, so larger sizes are left out.
#![allow(unsafe_code, reason = "POSIX message queues have no safe wrapper in the standard library")]

use std::ffi::CString;
use std::io;

use anyhow::{Result, ensure};

use crate::ipc::row::{Client, Kind, Mode, Row, Server, Sides, Sink, Source};

/// Largest message within the kernel's default limits (`/proc/sys/fs/mqueue/msgsize_max`).
const MESSAGE_MAX: usize = 8192;

/// The row.
pub(super) struct MessageQueue;

impl Row for MessageQueue {
    fn name(&self) -> &str {
        "POSIX message queue"
    }

    fn kind(&self) -> Kind {
        Kind::Rival
    }

    fn supports(&self, _: Mode, size: usize) -> bool {
        size <= MESSAGE_MAX
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (request, reply) = (Queue::open(mode, "a")?, Queue::open(mode, "b")?);
        let side = move || {
            let (source, sink) = (Source::new(), Sink::default());
            Ok(Side { request, reply, source, sink, buffer: vec![0; MESSAGE_MAX] })
        };
        Ok(Sides::new(side, side))
    }
}

/// A queue whose name is removed at once; the process's end closes it.
#[derive(Clone, Copy)]
struct Queue(libc::mqd_t);

impl Queue {
    fn open(mode: Mode, suffix: &str) -> Result<Self> {
        let name = CString::new(format!("/sojourn-bench-{}-{suffix}", std::process::id()))?;
        let mut flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        if mode.spins() {
            flags |= libc::O_NONBLOCK;
        }
        // SAFETY: `name` and `attributes` are valid; the name is removed at once.
        let queue = unsafe {
            let mut attributes: libc::mq_attr = std::mem::zeroed();
            attributes.mq_maxmsg = 4;
            attributes.mq_msgsize = MESSAGE_MAX as i64;
            let queue = libc::mq_open(name.as_ptr(), flags, 0o600, &attributes);
            libc::mq_unlink(name.as_ptr());
            queue
        };
        ensure!(queue >= 0, "mq_open: {}", io::Error::last_os_error());
        Ok(Self(queue))
    }

    fn send(self, bytes: &[u8]) -> Result<()> {
        loop {
            // SAFETY: `bytes` is valid for its length.
            let result = unsafe { libc::mq_send(self.0, bytes.as_ptr().cast(), bytes.len(), 0) };
            if result == 0 {
                return Ok(());
            }
            transient()?;
        }
    }

    fn receive(self, bytes: &mut [u8]) -> Result<usize> {
        loop {
            let to = bytes.as_mut_ptr().cast();
            // SAFETY: `to` is valid for writes of `bytes.len()` bytes.
            let read = unsafe { libc::mq_receive(self.0, to, bytes.len(), std::ptr::null_mut()) };
            if read >= 0 {
                return Ok(read as usize);
            }
            transient()?;
        }
    }
}

/// Returns `Ok` after the errors that mean "try again", otherwise the error.
fn transient() -> Result<()> {
    let error = io::Error::last_os_error();
    let again = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
    ensure!(again, "message queue: {error}");
    Ok(())
}

struct Side {
    request: Queue,
    reply: Queue,
    source: Source,
    sink: Sink,
    buffer: Vec<u8>,
}

impl Server for Side {
    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            let read = self.request.receive(&mut self.buffer)?;
            self.sink.take(&self.buffer[..read], size)?;
            self.reply.send(&[])?;
        }
        Ok(())
    }
}

impl Client for Side {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            self.request.send(self.source.next(size))?;
            self.reply.receive(&mut self.buffer)?;
        }
        Ok(())
    }
}
