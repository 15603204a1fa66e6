//! The driver (`sojourn-driver`) of a session server: a process that holds programs' packet
//! sockets, and is started with the first of them.
//!
//! A driver that has died is replaced with the next packet socket; its clients see their
//! connections end, and send their sessions home. Not here: the process itself (the package
//! `sojourn-driver`). Read `docs/understand/driver.md`.

use crate::log::{self, Level};
use crate::network::DriverWay;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use sojourn_driver::{PROGRAM, control, hand};
use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A driver that runs.
#[derive(Debug)]
struct Running {
    child: Child,
    control: OwnedFd,
}

/// The driver of this server, once there is one.
#[derive(Debug)]
pub(crate) struct Drivers {
    way: DriverWay,
    running: Mutex<Option<Running>>,
}

impl Drivers {
    /// Makes a place for a driver, which is not started yet.
    pub(crate) fn new(way: DriverWay) -> Self {
        Self { way, running: Mutex::default() }
    }

    /// Hands a packet socket to the driver. Returns the program's end of a connection with it.
    ///
    /// # Errors
    /// The driver cannot be started, or takes no more.
    pub(crate) fn hand(&self, packets: &OwnedFd) -> io::Result<OwnedFd> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = &mut *running {
            match hand(&one.control, packets) {
                Err(Errno::PIPE | Errno::CONNRESET) => {
                    let ended = one.child.wait();
                    log::say(Level::Warn, format_args!("{PROGRAM} has died: {ended:?}"));
                }
                handed => return Ok(handed?),
            }
        }
        let one = running.insert(start(self.way)?);
        Ok(hand(&one.control, packets)?)
    }
}

fn start(way: DriverWay) -> io::Result<Running> {
    let program = std::fs::read_link("/proc/self/exe")?.with_file_name(PROGRAM);
    let [control, theirs] = control()?;
    let mut command = Command::new(program);
    command.arg("--handed").args((way == DriverWay::Memory).then_some("--by-memory"));
    command.env_clear().stdin(Stdio::from(theirs)).stdout(Stdio::null());
    let child = command.spawn()?;
    log::say(Level::Info, format_args!("{PROGRAM} {} holds packet sockets", child.id()));
    Ok(Running { child, control })
}
