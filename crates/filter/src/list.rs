//! Everything of the filter's that is in the kernel now, whoever put it there: for `sojourn doctor`.

use crate::error::Failed;
use crate::netlink;
use crate::port;
use crate::sys;
use std::collections::BTreeMap;

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// A program on an interface, by link.
    Link,
    /// An XDP program on an interface, by link.
    XdpLink,
    /// A port's interface.
    Port,
    /// A program in the kernel's memory, attached somewhere or held by somebody.
    Program,
}

/// One thing of the filter's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attached {
    /// What it is.
    pub what: What,
    /// The program's or the interface's name.
    pub name: String,
    /// The interface that it is on, or of; the empty string for a program, and for an interface that is in another name space or gone.
    pub interface: String,
}

/// Everything of the filter's: programs and links of the whole system, ports of this network name space.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, which looking through the kernel's programs needs.
pub fn list() -> Result<Vec<Attached>, Failed> {
    let interfaces = netlink::interfaces().map_err(Failed::at("finding interfaces"))?;
    let named = |index: u32| {
        let found = interfaces.iter().find(|interface| interface.index == index);
        found.map(|found| found.name.clone()).unwrap_or_default()
    };
    let mut found = Vec::new();
    for interface in &interfaces {
        if let Some((_, real)) = port::recognise(interface) {
            let (name, interface) = (interface.name.clone(), named(real));
            found.push(Attached { what: What::Port, name, interface });
        }
    }
    let mut programs = BTreeMap::new();
    for program in aya::programs::loaded_programs() {
        let program = program.map_err(|error| Failed::other("looking through programs", error))?;
        if let Some(name) = program.name_as_str().filter(|name| name.starts_with("sojourn")) {
            programs.insert(program.id(), name.to_owned());
            let (name, interface) = (name.to_owned(), String::new());
            found.push(Attached { what: What::Program, name, interface });
        }
    }
    for link in sys::links().map_err(Failed::at("looking through links"))? {
        if let Some(name) = programs.get(&link.program) {
            let what = if link.is_xdp { What::XdpLink } else { What::Link };
            let interface = named(link.interface);
            found.push(Attached { what, name: name.clone(), interface });
        }
    }
    found.sort();
    Ok(found)
}
