//! The attaching of programs: by link if the kernel has links for interfaces (6.6), otherwise to a
//! queueing discipline.
//!
//! A link ends with its last descriptor, so also with this process in any case. A program on a
//! queueing discipline stays; the next filter of the interface removes it first.

use crate::error::Failed;
use crate::netlink;
use crate::sys::{self, AttachPoint};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;

/// The way in which programs are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// By link if the kernel can.
    #[default]
    Automatic,
    /// To a queueing discipline, as kernels before 6.6 need it.
    Classic,
}

/// The program on the interface, attached while the value lives.
pub(crate) enum Hook {
    /// By link.
    Link(OwnedFd),
    /// To the queueing discipline of this interface.
    Classic(u32),
}

impl Hook {
    pub(crate) fn new(
        program: BorrowedFd<'_>,
        name: &str,
        interface: u32,
        method: Method,
    ) -> Result<Self, Failed> {
        let step = "attaching to the interface";
        if method == Method::Automatic {
            match sys::link(program, interface, AttachPoint::TcxIngress, 0) {
                Err(error) if is_unknown(&error) => {}
                link => return link.map(Self::Link).map_err(Failed::at(step)),
            }
        }
        // An earlier server may have left its program.
        let _ = netlink::detach(interface, false);
        netlink::attach(program, name, interface, false).map_err(Failed::at(step))?;
        Ok(Self::Classic(interface))
    }

    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Link(link) => Some(link.as_fd()),
            Self::Classic(_) => None,
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Self::Classic(interface) = self {
            // The interface may be gone, and the program with it.
            let _ = netlink::detach(*interface, false);
        }
    }
}

/// Attaches a program for as long as the interface exists.
pub(crate) fn attach_for_good(
    program: BorrowedFd<'_>,
    name: &str,
    interface: u32,
    place: AttachPoint,
    method: Method,
) -> Result<(), Failed> {
    let step = "attaching to a port";
    if method == Method::Automatic {
        match sys::attach(program, interface, place) {
            Err(error) if is_unknown(&error) => {}
            result => return result.map_err(Failed::at(step)),
        }
    }
    netlink::attach(program, name, interface, place == AttachPoint::TcxEgress)
        .map_err(Failed::at(step))
}

/// Returns true for the error of a kernel without the attach point.
fn is_unknown(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}
