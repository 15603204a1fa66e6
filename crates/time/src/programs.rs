//! The eBPF programs, loaded and attached, and the ring that their events come by.
//!
//! A border that the running kernel does not have, or does not let programs look at, is left out
//! and named: its rows are measured together. Not here: the use of events (`ledger`). Read
//! `bpf/time.bpf.c` first.

use crate::error::LoadError;
use crate::event::{Event, Inode, Kind};
use crate::probes::{AttachPoint, PROBES, Probe, TRIAL};
use aya::maps::{Array, HashMap, MapData, PerCpuArray, RingBuf};
use aya::programs::{BtfTracePoint, FEntry, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd as _;
use std::time::Duration;

#[cfg(have_programs)]
fn object() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/time.bpf.o")))
}

#[cfg(not(have_programs))]
fn object() -> Option<&'static [u8]> {
    None
}

/// Runs of the trial; the median counts.
const TRIALS: usize = 1000;
/// The program whose trace point kernels before 6.3 lack.
const READY: &str = "reader_told";
/// `struct settings`.
const SETTINGS_LEN: usize = 16;

/// The programs, attached to the kernel for as long as this lives.
pub struct Programs {
    ebpf: Ebpf,
    ring: RingBuf<MapData>,
    processes: HashMap<MapData, u32, u32>,
    settings: Array<MapData, [u8; SETTINGS_LEN]>,
    lost: PerCpuArray<MapData, u64>,
    cost: Cost,
    missing: Vec<&'static str>,
    refusal: Option<String>,
    inode: Inode,
}

/// The cost of one stamp, as tried out on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// From one stamp to the next at the same place (ns): all that a stamp with an event costs.
    pub whole_ns: u32,
    /// The part that programs do not see themselves (ns): the way in and out, the clock.
    pub fixed_ns: u32,
}

impl Programs {
    /// Loads and attaches all programs. No process is watched yet.
    ///
    /// # Errors
    /// The cause, with the next step.
    pub fn load() -> Result<Self, LoadError> {
        let object = object().ok_or(LoadError::NotBuilt)?;
        let btf = Btf::from_sys_fs().map_err(|error| LoadError::NoTypes(error.to_string()))?;
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .load(object)
            .map_err(|error| LoadError::of("loading the programs", &error))?;
        let mut this = Self {
            ring: take(&mut ebpf, "time_events")?,
            processes: take(&mut ebpf, "time_programs")?,
            settings: take(&mut ebpf, "time_settings")?,
            lost: take(&mut ebpf, "time_lost")?,
            cost: Cost::default(),
            missing: Vec::new(),
            refusal: None,
            inode: Inode::default(),
            ebpf,
        };
        this.cost = this.trial(&btf)?;
        this.set(0)?;
        this.attach_all(&btf)?;
        Ok(this)
    }

    /// Watches a process; its children are watched from their beginning.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn watch(&mut self, process: u32) -> Result<(), LoadError> {
        let added = self.processes.insert(process, 1, 0);
        added.map_err(|error| LoadError::of("watching a process", &error))
    }

    /// Ends watching a process; its children go on being watched.
    pub fn forget(&mut self, process: u32) {
        // A process that has ended was taken out by the programs.
        let _ = self.processes.remove(&process);
    }

    /// Watches only the socket or pipe with this inode.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn only(&mut self, inode: Inode) -> Result<(), LoadError> {
        self.inode = inode;
        self.set(0)
    }

    /// Takes the events that have come.
    pub fn read(&mut self, mut each: impl FnMut(Event)) {
        while let Some(bytes) = self.ring.next() {
            if let Some(event) = Event::decode(&bytes) {
                each(event);
            }
        }
    }

    /// Waits until events have come, at most so long.
    pub fn wait(&self, at_most: Duration) {
        let fd = self.ring.as_fd();
        let timeout = Timespec::try_from(at_most).ok();
        // A signal or an error ends the wait early; the caller looks again in any case.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref());
    }

    /// Events that found no room, so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost.get(&0, 0).map_or(0, |counts| counts.iter().sum())
    }

    /// The cost of a stamp.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Functions that this kernel does not have, or does not let programs look at.
    #[must_use]
    pub fn missing(&self) -> &[&'static str] {
        &self.missing
    }

    /// Why programs cannot look at functions, if they cannot.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    fn set(&mut self, trial: u32) -> Result<(), LoadError> {
        let mut bytes = [0; SETTINGS_LEN];
        bytes[..8].copy_from_slice(&self.inode.0.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.cost.fixed_ns.to_ne_bytes());
        bytes[12..].copy_from_slice(&trial.to_ne_bytes());
        let set = self.settings.set(0, bytes, 0);
        set.map_err(|error| LoadError::of("the programs' settings", &error))
    }

    fn attach_all(&mut self, btf: &Btf) -> Result<(), LoadError> {
        let mut absent = Vec::new();
        for probe in PROBES {
            let is_needed = match probe.at {
                AttachPoint::Point => true,
                AttachPoint::Border => self.refusal.is_none(),
                AttachPoint::Instead(other) => absent.contains(&other),
            };
            if !is_needed {
                if probe.at == AttachPoint::Border {
                    self.missing.push(probe.targets[0]);
                }
                continue;
            }
            match self.attach(probe, btf) {
                Ok(true) => {}
                Ok(false) if probe.program == READY => absent.push(probe.program),
                Ok(false) if probe.at == AttachPoint::Border => self.missing.push(probe.targets[0]),
                Ok(false) => return Err(LoadError::NoPoint(probe.targets[0])),
                // Trace points may be looked at all the same: rows are measured together.
                Err(error) if probe.at == AttachPoint::Border => {
                    self.refusal = Some(error.answer());
                    self.missing.push(probe.targets[0]);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Attaches one program; false: this kernel has no such place.
    fn attach(&mut self, probe: &Probe, btf: &Btf) -> Result<bool, LoadError> {
        let program = self.ebpf.program_mut(probe.program).ok_or_else(|| absent(probe.program))?;
        for target in probe.targets {
            let done = match probe.at {
                AttachPoint::Point => {
                    <&mut BtfTracePoint>::try_from(&mut *program).and_then(|program| {
                        program.load(target, btf)?;
                        program.attach().map(drop)
                    })
                }
                AttachPoint::Border | AttachPoint::Instead(_) => {
                    <&mut FEntry>::try_from(&mut *program).and_then(|program| {
                        program.load(target, btf)?;
                        program.attach().map(drop)
                    })
                }
            };
            match done {
                Ok(()) => return Ok(true),
                // No such place here: perhaps by another name.
                Err(ProgramError::Btf(_)) => {}
                Err(error) => return Err(LoadError::of(target, &error)),
            }
        }
        Ok(false)
    }

    /// Runs two equal programs one behind the other and takes the time between their stamps.
    fn trial(&mut self, btf: &Btf) -> Result<Cost, LoadError> {
        for probe in &TRIAL {
            if !self.attach(probe, btf)? {
                return Err(LoadError::NoPoint(probe.targets[0]));
            }
        }
        self.set(std::process::id())?;
        let mut events = Vec::new();
        for _ in 0..TRIALS / 100 {
            for _ in 0..100 {
                // The call itself is nothing: it is entered, that is all.
                let _ = rustix::process::getppid();
            }
            self.read(|event| events.push(event));
        }
        self.set(0)?;
        for probe in &TRIAL {
            let program = self.ebpf.program_mut(probe.program).map(<&mut BtfTracePoint>::try_from);
            if let Some(Ok(program)) = program {
                // A failure leaves programs that do nothing, until this process ends.
                let _ = program.unload();
            }
        }
        Ok(cost_of(&events))
    }
}

/// The medians of pairs of events of the trial.
fn cost_of(events: &[Event]) -> Cost {
    let probed: Vec<&Event> = events.iter().filter(|event| event.kind == Kind::Probed).collect();
    let mut pairs: Vec<(u64, u64)> = Vec::new();
    for pair in probed.chunks_exact(2) {
        let (first, second) = (pair[0], pair[1]);
        let whole = second.stamps[0].at.saturating_sub(first.stamps[0].at);
        pairs.push((whole, whole.saturating_sub(u64::from(first.usual))));
    }
    let middle = |of: fn(&(u64, u64)) -> u64| {
        let mut values: Vec<u64> = pairs.iter().map(of).collect();
        values.sort_unstable();
        let middle = values.get(values.len() / 2).copied().unwrap_or(0);
        u32::try_from(middle).unwrap_or(u32::MAX)
    };
    Cost { whole_ns: middle(|pair| pair.0), fixed_ns: middle(|pair| pair.1) }
}

fn absent(name: &str) -> LoadError {
    LoadError::Other { step: name.to_owned(), text: "not in the object".to_owned() }
}

fn take<M>(ebpf: &mut Ebpf, name: &str) -> Result<M, LoadError>
where
    M: TryFrom<aya::maps::Map, Error = aya::maps::MapError>,
{
    let map = ebpf.take_map(name).ok_or_else(|| absent(name))?;
    M::try_from(map).map_err(|error| LoadError::of(name, &error))
}
