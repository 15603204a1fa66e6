//! All programs and ports of filters that are in the kernel now, of any server, for `sojourn
//! doctor`.

use crate::error::Failed;
use crate::netlink;
use crate::port::{self, PortMarks};
use crate::sys::{self, AttachPoint};
use std::collections::BTreeMap;
use std::error::Error;
use std::io;

/// The kind of an attached object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A program at an interface's entry or exit.
    Hook,
    /// An XDP program on an interface.
    Xdp,
    /// A port: the server's side of it.
    Port,
    /// A program in the kernel's memory, attached or held by a descriptor.
    Program,
}

/// One object of a filter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attached {
    /// The kind.
    pub what: ObjectKind,
    /// The program's name, or the port's.
    pub name: String,
    /// The interface that has the program, or to which a port belongs; empty for a program in
    /// memory.
    pub interface: String,
    /// The kernel's number of the program, as in `/proc/PID/fdinfo` (`prog_id`) of the process that
    /// holds the program or its link; `None` for a port.
    pub number: Option<u32>,
}

/// Returns all objects of filters: hooks and ports of this network name space, and programs of the
/// whole system. Programs on queueing disciplines, as on kernels before 6.6, are listed only as
/// programs.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, which is needed to list the kernel's programs.
pub fn list() -> Result<Vec<Attached>, Failed> {
    let mut found = Vec::new();
    let mut programs = BTreeMap::new();
    for program in aya::programs::loaded_programs() {
        let program = match program {
            // The program ended between the listing of its number and this query.
            Err(error) if is_gone(&error) => continue,
            other => other.map_err(|error| Failed::other("looking through programs", error))?,
        };
        if let Some(name) = program.name_as_str().filter(|name| name.starts_with("sojourn")) {
            programs.insert(program.id(), name.to_owned());
            let (name, interface) = (name.to_owned(), String::new());
            let number = Some(program.id());
            found.push(Attached { what: ObjectKind::Program, name, interface, number });
        }
    }
    let interfaces = netlink::interfaces().map_err(Failed::at("finding interfaces"))?;
    for interface in &interfaces {
        if let Some(PortMarks { real, .. }) = port::recognise(interface) {
            let of = interfaces.iter().find(|other| other.index == real);
            let of = of.map(|of| of.name.clone()).unwrap_or_default();
            let name = interface.name.clone();
            found.push(Attached { what: ObjectKind::Port, name, interface: of, number: None });
        }
        let mut on = |what, number: u32| {
            if let Some(name) = programs.get(&number) {
                let (name, interface) = (name.clone(), interface.name.clone());
                found.push(Attached { what, name, interface, number: Some(number) });
            }
        };
        for place in [AttachPoint::TcxIngress, AttachPoint::TcxEgress] {
            // A kernel without these attach points has no programs there.
            for number in sys::programs_on(interface.index, place).unwrap_or_default() {
                on(ObjectKind::Hook, number);
            }
        }
        if let Some(number) = interface.xdp_program {
            on(ObjectKind::Xdp, number);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns true if the error means that the object does not exist.
fn is_gone(error: &(dyn Error + 'static)) -> bool {
    let is_it = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    error.downcast_ref().is_some_and(is_it) || error.source().is_some_and(is_gone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn what_has_gone_is_told_from_what_may_not_be_seen() {
        let failed = |errno: Errno| aya::sys::SyscallError {
            call: "bpf_prog_get_fd_by_id",
            io_error: errno.into(),
        };
        assert!(is_gone(&aya::programs::ProgramError::from(failed(Errno::NOENT))));
        assert!(!is_gone(&aya::programs::ProgramError::from(failed(Errno::PERM))));
    }
}
