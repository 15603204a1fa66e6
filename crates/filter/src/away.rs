//! The sessions that are away according to the kernel, for `sojourn capture` and other observers.
//!
//! The sessions are read from the maps of the programs on this name space's interfaces, so the
//! result includes protocol engines in servers and in programs, and does not need a running server.
//! Not here: the attached programs (`list`), a filter's own sessions (`filter`).

use crate::error::Failed;
use crate::loader::{CONFIG, CONFIG_LEN, Config, FLOWS, FlowEntry, FlowMap, INGRESS, entries_of};
use crate::netlink::{self, Interface};
use crate::rule::{Key, Rule};
use crate::sys::{self, AttachPoint};
use aya::maps::{Array, HashMap, Map, MapData, MapError, MapInfo};
use aya::programs::ProgramInfo;

/// A session that is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaySession {
    /// Index of the interface by which the session's packets come.
    pub index: u32,
    /// The interface's name.
    pub interface: String,
    /// The session.
    pub key: Key,
    /// The rule, which names the receiver of the packets.
    pub rule: Rule,
}

/// Returns the sessions of this network name space that are away. Makes two system calls for each
/// session, and two for each program in the kernel.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, which is needed to read the kernel's programs and maps.
pub fn away() -> Result<Vec<AwaySession>, Failed> {
    let interfaces = netlink::interfaces().map_err(Failed::at("finding interfaces"))?;
    let mut found = Vec::new();
    for program in aya::programs::loaded_programs() {
        let program = program.map_err(|error| Failed::other("looking through programs", error))?;
        if program.name_as_str() != Some(INGRESS) {
            continue;
        }
        // A program that ends at this moment has no sessions any more.
        let Ok(maps) = Maps::of(&program) else { continue };
        let Some(interface) = maps.interface(&program, &interfaces) else { continue };
        found.extend(entries_of(&maps.flows).map(|FlowEntry { key, rule }| AwaySession {
            index: interface.index,
            interface: interface.name.clone(),
            key,
            rule,
        }));
    }
    Ok(found)
}

/// The maps of a filter's program.
struct Maps {
    config: Config,
    flows: FlowMap,
}

impl Maps {
    fn of(program: &ProgramInfo) -> Result<Self, MapError> {
        let numbers = program.map_ids().ok().flatten().unwrap_or_default();
        let (mut config, mut flows) = (None, None);
        for number in numbers {
            match MapInfo::from_id(number)?.name_as_str() {
                Some(FLOWS) => flows = Some(MapData::from_id(number)?),
                Some(CONFIG) => config = Some(MapData::from_id(number)?),
                _ => {}
            }
        }
        let missing = |name: &str| MapError::InvalidName { name: name.into() };
        let config = Map::Array(config.ok_or_else(|| missing(CONFIG))?);
        let config: Array<_, [u8; CONFIG_LEN]> = Array::try_from(config)?;
        let flows = HashMap::try_from(Map::HashMap(flows.ok_or_else(|| missing(FLOWS))?))?;
        Ok(Self { config: Config::decode(&config.get(&0, 0)?), flows })
    }

    /// Returns the program's interface, if it is in this name space; other name spaces have
    /// interfaces with the same indices.
    fn interface<'i>(
        &self,
        program: &ProgramInfo,
        interfaces: &'i [Interface],
    ) -> Option<&'i Interface> {
        let interface = interfaces.iter().find(|one| one.index == self.config.interface)?;
        match sys::programs_on(interface.index, AttachPoint::TcxIngress) {
            Ok(numbers) => numbers.contains(&program.id()).then_some(interface),
            // The kernel has no such attach points; programs on queueing disciplines cannot be
            // queried by number.
            Err(error) => (error.raw_os_error() == Some(libc::EINVAL)).then_some(interface),
        }
    }
}
