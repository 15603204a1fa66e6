//! The eBPF programs and maps of one filter, loaded, or taken over as descriptors. Not here:
//! attaching them (`hook`, `port`).

use crate::error::{AttachError, Failed};
use crate::reason::{Counts, Reason};
use crate::rule::{KEY_LEN, Key, OwnerId, RULE_LEN, Rule};
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, XskMap};
use aya::programs::{SchedClassifier, SocketFilter, Xdp};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use sojourn_wire::MacAddress;
use std::collections::BTreeMap;
use std::io;

/// The package that has the compiler for `bpf/filter.bpf.c`.
pub const PACKAGE: &str = "clang";

#[cfg(have_programs)]
pub(crate) fn object() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/filter.bpf.o")))
}

#[cfg(not(have_programs))]
pub(crate) fn object() -> Option<&'static [u8]> {
    None
}

/// Names of programs and maps, in the object and in the kernel.
pub(crate) const INGRESS: &str = "sojourn_ingress";
pub(crate) const PORT_OUT: &str = "sojourn_portout";
pub(crate) const CLOSED: &str = "sojourn_closed";
pub(crate) const SELECT: &str = "sojourn_select";
pub(crate) const SINK: &str = "sojourn_sink";
pub(crate) const XDP: &str = "sojourn_xdp";
pub(crate) const OWNED: &str = "sojourn_owned";
const CLASSIFIERS: [&str; 3] = [INGRESS, PORT_OUT, CLOSED];
const SOCKET_FILTERS: [&str; 2] = [SELECT, SINK];
pub(crate) const FLOWS: &str = "sojourn_flows";
const OWNERS: &str = "sojourn_owners";
pub(crate) const CONFIG: &str = "sojourn_config";
const COUNTS: &str = "sojourn_counts";
const XSKS: &str = "sojourn_xsks";
const MAPS: [&str; 5] = [FLOWS, OWNERS, CONFIG, COUNTS, XSKS];

/// Places in the table of AF_XDP sockets; as in the C.
pub(crate) const XSK_PLACES: u32 = 1024;

/// The programs' configuration for the interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) interface: u32,
    pub(crate) mtu: u32,
    pub(crate) members: u32,
    pub(crate) is_raw: bool,
    pub(crate) mac: MacAddress,
}

pub(crate) const CONFIG_LEN: usize = 20;

impl Config {
    fn encode(&self) -> [u8; CONFIG_LEN] {
        let mut bytes = [0; CONFIG_LEN];
        bytes[..4].copy_from_slice(&self.interface.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.mtu.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.members.to_ne_bytes());
        bytes[12] = u8::from(self.is_raw);
        bytes[14..].copy_from_slice(&self.mac.0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; CONFIG_LEN]) -> Self {
        let word = |at: usize| {
            u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let mut mac = MacAddress::default();
        mac.0.copy_from_slice(&bytes[14..]);
        let is_raw = bytes[12] != 0;
        Self { interface: word(0), mtu: word(4), members: word(8), is_raw, mac }
    }
}

/// The places of an owner's sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SocketSlots {
    /// The index in the fanout group.
    pub(crate) index: u32,
    /// The owner's first place in the table of AF_XDP sockets.
    pub(crate) xsk: u32,
    /// The number of the owner's places there.
    pub(crate) queues: u32,
}

/// The map of the sessions that are away, as the kernel has it.
pub(crate) type FlowMap = HashMap<MapData, [u8; KEY_LEN], [u8; RULE_LEN]>;

/// An entry of that map.
pub(crate) struct FlowEntry {
    pub(crate) key: Key,
    pub(crate) rule: Rule,
}

/// Loaded programs and maps.
pub(crate) struct Loaded {
    fds: BTreeMap<&'static str, OwnedFd>,
    pub(crate) flows: FlowMap,
    owners: HashMap<MapData, u32, [u32; 4]>,
    config: Array<MapData, [u8; CONFIG_LEN]>,
    counts: PerCpuArray<MapData, u64>,
    pub(crate) xsks: XskMap<MapData>,
}

/// A program or map in the kernel.
pub(crate) struct LoadedFd<'a> {
    pub(crate) name: &'static str,
    pub(crate) fd: BorrowedFd<'a>,
}

impl Loaded {
    /// Loads all programs and maps. `sessions_max` limits the sessions that can be away at one
    /// time.
    pub(crate) fn new(sessions_max: u32) -> Result<Self, AttachError> {
        let object = object().ok_or(AttachError::Unavailable { package: PACKAGE })?;
        let mut loader = aya::EbpfLoader::new();
        let mut programs = loader
            .map_max_entries(FLOWS, sessions_max)
            .load(object)
            .map_err(|error| Failed::other("loading the programs", error))?;
        let mut fds = BTreeMap::new();
        for name in CLASSIFIERS.into_iter().chain(SOCKET_FILTERS).chain([XDP]) {
            let program = programs.program_mut(name).ok_or_else(|| Failed::missing(name))?;
            let fd = load_program(name, program).map_err(|error| Failed::other(name, error))?;
            fds.insert(name, fd);
        }
        // The maps are taken only after loading, because until then the programs refer to them by
        // these descriptors' numbers.
        for name in MAPS {
            let map = programs.take_map(name).ok_or_else(|| Failed::missing(name))?;
            fds.insert(name, map_fd(&map).map_err(Failed::at(name))?);
        }
        Ok(Self::from_fds(fds)?)
    }

    /// Restores the programs and maps from descriptors by name, as [`Loaded::fds`] returns them.
    pub(crate) fn from_fds(fds: BTreeMap<&'static str, OwnedFd>) -> Result<Self, Failed> {
        for name in CLASSIFIERS.into_iter().chain(SOCKET_FILTERS).chain([XDP]) {
            fds.get(name).ok_or_else(|| Failed::missing(name))?;
        }
        let data = |name: &'static str| -> Result<MapData, Failed> {
            let fd = fds.get(name).ok_or_else(|| Failed::missing(name))?;
            let fd = fd.try_clone().map_err(Failed::at(name))?;
            MapData::from_fd(fd).map_err(|error| Failed::other(name, error))
        };
        let wrong = |name| move |error: MapError| Failed::other(name, error);
        Ok(Self {
            flows: HashMap::try_from(Map::HashMap(data(FLOWS)?)).map_err(wrong(FLOWS))?,
            owners: HashMap::try_from(Map::HashMap(data(OWNERS)?)).map_err(wrong(OWNERS))?,
            config: Array::try_from(Map::Array(data(CONFIG)?)).map_err(wrong(CONFIG))?,
            counts: PerCpuArray::try_from(Map::PerCpuArray(data(COUNTS)?))
                .map_err(wrong(COUNTS))?,
            xsks: XskMap::try_from(Map::XskMap(data(XSKS)?)).map_err(wrong(XSKS))?,
            fds,
        })
    }

    /// Returns every program and map, for a keeper.
    pub(crate) fn fds(&self) -> impl Iterator<Item = LoadedFd<'_>> {
        self.fds.iter().map(|(name, fd)| LoadedFd { name, fd: fd.as_fd() })
    }

    /// Returns the maps.
    pub(crate) fn map_fds(&self) -> impl Iterator<Item = LoadedFd<'_>> {
        self.fds().filter(|loaded| MAPS.contains(&loaded.name))
    }

    /// Returns the static name, if it is one of [`Loaded::fds`].
    pub(crate) fn known(name: &str) -> Option<&'static str> {
        let programs = CLASSIFIERS.into_iter().chain(SOCKET_FILTERS).chain([XDP]);
        programs.chain(MAPS).find(|known| *known == name)
    }

    /// Returns a program. All programs exist, since loading would have failed otherwise.
    pub(crate) fn program(&self, name: &'static str) -> Result<BorrowedFd<'_>, Failed> {
        self.fds.get(name).map(AsFd::as_fd).ok_or_else(|| Failed::missing(name))
    }

    pub(crate) fn set_config(&mut self, config: &Config) -> Result<(), Failed> {
        self.config
            .set(0, config.encode(), 0)
            .map_err(|error| Failed::other("telling the programs of the interface", error))
    }

    pub(crate) fn config(&self) -> Result<Config, Failed> {
        let bytes = self.config.get(&0, 0).map_err(|error| Failed::other(CONFIG, error))?;
        Ok(Config::decode(&bytes))
    }

    pub(crate) fn set_place(&mut self, owner: OwnerId, place: SocketSlots) -> Result<(), Failed> {
        let words = [place.index, place.xsk, place.queues, 0];
        self.owners
            .insert(owner.0, words, 0)
            .map_err(|error| Failed::other("recording an owner", error))
    }

    pub(crate) fn place(&self, owner: OwnerId) -> Option<SocketSlots> {
        let [index, xsk, queues, _] = self.owners.get(&owner.0, 0).ok()?;
        Some(SocketSlots { index, xsk, queues })
    }

    pub(crate) fn remove_place(&mut self, owner: OwnerId) {
        // The owner may never have had a place.
        let _ = self.owners.remove(&owner.0);
    }

    /// Returns the sessions that are away.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowEntry> + '_ {
        entries_of(&self.flows)
    }

    pub(crate) fn counts(&self) -> Result<Counts, Failed> {
        let mut counts = Counts::default();
        for reason in Reason::ALL {
            counts.set(reason, self.count(reason)?);
        }
        Ok(counts)
    }

    /// Returns one counter, summed over all processors.
    pub(crate) fn count(&self, reason: Reason) -> Result<u64, Failed> {
        let values = self.counts.get(&(reason as u32), 0);
        let values = values.map_err(|error| Failed::other("reading the counters", error))?;
        Ok(values.iter().sum())
    }
}

/// Returns the entries of a map of sessions; those that cannot be decoded are skipped.
pub(crate) fn entries_of(flows: &FlowMap) -> impl Iterator<Item = FlowEntry> + '_ {
    let entries = flows.iter().filter_map(Result::ok);
    entries.filter_map(|(key, rule)| {
        Some(FlowEntry { key: Key::decode(&key)?, rule: Rule::decode(&rule)? })
    })
}

fn map_fd(map: &Map) -> io::Result<OwnedFd> {
    let data = match map {
        Map::HashMap(data) | Map::Array(data) | Map::PerCpuArray(data) | Map::XskMap(data) => data,
        _ => return Err(io::ErrorKind::InvalidData.into()),
    };
    data.fd().as_fd().try_clone_to_owned()
}

fn load_program(
    name: &str,
    program: &mut aya::programs::Program,
) -> Result<OwnedFd, aya::programs::ProgramError> {
    let fd = if CLASSIFIERS.contains(&name) {
        let program: &mut SchedClassifier = program.try_into()?;
        program.load()?;
        program.fd()?.as_fd().try_clone_to_owned()
    } else if name == XDP {
        let program: &mut Xdp = program.try_into()?;
        program.load()?;
        program.fd()?.as_fd().try_clone_to_owned()
    } else {
        let program: &mut SocketFilter = program.try_into()?;
        program.load()?;
        program.fd()?.as_fd().try_clone_to_owned()
    };
    Ok(fd?)
}
