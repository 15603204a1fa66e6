//! Which sessions are away, as the kernel has it, whoever put them there: for `sojourn capture` and
//! other onlookers.
//!
//! Read out of the maps of the programs that are on this name space's interfaces, so it is true
//! whether the protocol engine is in a server or in a program, and whether a server runs or not.
//! Not here: what is attached (`list`), one's own sessions (`filter`).

use crate::error::Failed;
use crate::loader::{CONFIG, CONFIG_LEN, Config, FLOWS, INGRESS};
use crate::netlink::{self, Interface};
use crate::rule::{KEY_LEN, Key, RULE_LEN, Rule};
use crate::sys::{self, AttachPoint};
use aya::maps::{Array, HashMap, Map, MapData, MapError, MapInfo};
use aya::programs::ProgramInfo;

/// A session that is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Away {
    /// Index of the interface that its packets come by.
    pub index: u32,
    /// The interface's name.
    pub interface: String,
    /// The session.
    pub key: Key,
    /// Who gets its packets.
    pub rule: Rule,
}

/// The sessions of this network name space that are away. Two system calls for each, and two for
/// each program in the kernel.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, which looking into the kernel's programs and maps needs.
pub fn away() -> Result<Vec<Away>, Failed> {
    let interfaces = netlink::interfaces().map_err(Failed::at("finding interfaces"))?;
    let mut found = Vec::new();
    for program in aya::programs::loaded_programs() {
        let program = program.map_err(|error| Failed::other("looking through programs", error))?;
        if program.name_as_str() != Some(INGRESS) {
            continue;
        }
        // What ends just now has no sessions any more.
        let Ok(maps) = Maps::of(&program) else { continue };
        let Some(interface) = maps.interface(&program, &interfaces) else { continue };
        found.extend(maps.rules().map(|(key, rule)| Away {
            index: interface.index,
            interface: interface.name.clone(),
            key,
            rule,
        }));
    }
    Ok(found)
}

/// What a filter's program knows.
struct Maps {
    config: Config,
    flows: HashMap<MapData, [u8; KEY_LEN], [u8; RULE_LEN]>,
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

    /// The interface that the program is on, if that is one of this name space: others have
    /// interfaces of the same indices.
    fn interface<'i>(
        &self,
        program: &ProgramInfo,
        interfaces: &'i [Interface],
    ) -> Option<&'i Interface> {
        let interface = interfaces.iter().find(|one| one.index == self.config.interface)?;
        match sys::programs_on(interface.index, AttachPoint::TcxIngress) {
            Ok(numbers) => numbers.contains(&program.id()).then_some(interface),
            // A kernel without such places: what hangs on queueing disciplines cannot be asked for
            // by number.
            Err(error) => (error.raw_os_error() == Some(libc::EINVAL)).then_some(interface),
        }
    }

    fn rules(&self) -> impl Iterator<Item = (Key, Rule)> + '_ {
        let entries = self.flows.iter().filter_map(Result::ok);
        entries.filter_map(|(key, rule)| Some((Key::decode(&key)?, Rule::decode(&rule)?)))
    }
}
