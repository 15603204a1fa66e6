//! Probes of the kernel's features for the filter, by trial instead of by version, for `sojourn
//! doctor`.
//!
//! The probes leave nothing behind. They touch no interface, except for a packet socket on the
//! loopback for a moment, whose filter accepts nothing. Not here: the attached programs (`list`).

use crate::error::{AttachError, Failed};
use crate::group::{Group, xdp_socket};
use crate::loader;
use crate::sys::{self, AttachPoint};
use crate::unfiltered::Unfiltered;
use rustix::fd::AsFd;
use std::io;

/// The index of the loopback interface in every network name space.
const LOOPBACK: u32 = 1;

/// Returns true if Sojourn was built with the filter's programs.
pub fn is_built() -> bool {
    loader::object().is_some()
}

/// Loads a program that does nothing.
///
/// # Errors
/// `EPERM` without `CAP_BPF`, `ENOSYS` without bpf(2).
pub fn programs() -> io::Result<()> {
    sys::load_nothing().map(drop)
}

/// Probes if programs can be attached to interfaces by link (tcx, Linux 6.6).
///
/// # Errors
/// `EINVAL` on older kernels, on which programs are attached to queueing disciplines instead;
/// `EPERM` without `CAP_NET_ADMIN`.
pub fn links() -> io::Result<()> {
    sys::programs_on(LOOPBACK, AttachPoint::TcxIngress).map(drop)
}

/// Makes a fanout group whose members an eBPF program chooses.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW` and `CAP_BPF`, otherwise the error of the missing feature.
pub fn fanout() -> Result<(), Failed> {
    let program = sys::load_nothing().map_err(Failed::at("loading a program"))?;
    Group::new(LOOPBACK, program.as_fd(), program.as_fd()).map(drop)
}

/// Loads the programs for segments that come past the filter: a ring buffer, and the socket lookup
/// (Linux 5.9).
///
/// # Errors
/// `EPERM` without `CAP_BPF`, otherwise the error of the missing feature.
pub fn unfiltered() -> io::Result<()> {
    match Unfiltered::load() {
        Ok(_) => Ok(()),
        Err(AttachError::Failed(failed)) => Err(failed.source),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Makes an AF_XDP socket, without rings.
///
/// # Errors
/// `EPERM` without `CAP_NET_RAW`, `EAFNOSUPPORT` on kernels built without.
pub fn xdp_sockets() -> io::Result<()> {
    xdp_socket().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the rights to try them, or told that they are missing: nothing else on a kernel that
    /// runs the other tests.
    #[test]
    fn whatever_is_tried_is_there_or_not_permitted() {
        let group = fanout().map_err(|failed| failed.source);
        for tried in [programs(), group, xdp_sockets()] {
            let is_permitted = tried.as_ref().err().map(io::Error::kind);
            assert!(
                matches!(is_permitted, None | Some(io::ErrorKind::PermissionDenied)),
                "{tried:?}"
            );
        }
        if let Err(error) = links() {
            let kind = error.kind();
            assert!(matches!(kind, io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied));
        }
    }
}
