//! Segments that come past the packet filter, by an interface that has none, for TCP sessions that
//! are away (`bpf/unfiltered.bpf.c`).
//!
//! A session's socket is established while the session is away, so such segments reach it. They are
//! reported, and the session can go home. On the way home the socket is disconnected for a moment;
//! segments are dropped then, in place of being answered with a reset.
//!
//! Not here: the disconnection, and the decision to go home (`sojourn_carrier`). Read
//! `Documentation/bpf/prog_sk_lookup.rst` and `ringbuf.rst` of the kernel first. Linux 5.9 and
//! later have both.

use crate::error::{AttachError, Failed};
use crate::loader::PACKAGE;
use crate::rule::{KEY_LEN, Key};
use crate::sys;
use aya::Ebpf;
use aya::maps::{HashMap, Map, MapData, MapError, RingBuf, SockMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, SkLookup, SocketFilter};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use sojourn_wire::SocketCookie;
use sojourn_wire::tcp::SeqNum;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

#[cfg(have_programs)]
fn object() -> Option<&'static [u8]> {
    Some(aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/unfiltered.bpf.o")))
}

#[cfg(not(have_programs))]
fn object() -> Option<&'static [u8]> {
    None
}

/// The names in the object.
const REPORT: &str = "sojourn_unfiltered";
const ARRIVALS: &str = "sojourn_arrivals";
const LOOKUP: &str = "sojourn_lookup";
const ABSENT: &str = "sojourn_absent";
const SILENT: &str = "sojourn_silent";
/// The addresses of the listening sockets, by their index in the map.
const LOOPBACK: [(IpAddr, u16); 2] =
    [(IpAddr::V4(Ipv4Addr::LOCALHOST), 0), (IpAddr::V6(Ipv6Addr::LOCALHOST), 0)];
/// The network name space of the calling thread.
const NETNS: &str = "/proc/thread-self/ns/net";

/// A segment that has come past the packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The socket's cookie (`SO_COOKIE`).
    pub cookie: SocketCookie,
    /// The segment's sequence number.
    pub sequence: SeqNum,
}

impl Arrival {
    /// Reads the form of the C program.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (cookie, rest) = bytes.split_first_chunk()?;
        let (sequence, _) = rest.split_first_chunk()?;
        Some(Self {
            cookie: SocketCookie(u64::from_ne_bytes(*cookie)),
            sequence: SeqNum(u32::from_be_bytes(*sequence)),
        })
    }
}

/// The programs. Dropping this detaches the lookup; sockets keep their filter.
pub struct Unfiltered {
    report: Arc<OwnedFd>,
    nothing: Arc<OwnedFd>,
    arrivals: RingBuf<MapData>,
    absent: HashMap<MapData, [u8; KEY_LEN], u8>,
    programs: Ebpf,
    lookup: Option<Lookup>,
}

/// The lookup, attached to a network name space. Each segment that meets no connection passes it,
/// so it is attached when it is first needed.
struct Lookup {
    /// The map alone does not keep these sockets.
    _silent: Vec<OwnedFd>,
    _link: FdLink,
}

impl Unfiltered {
    /// Loads the programs.
    ///
    /// # Errors
    /// [`AttachError`]; `EPERM` without `CAP_BPF`.
    pub fn load() -> Result<Self, AttachError> {
        let object = object().ok_or(AttachError::Unavailable { package: PACKAGE })?;
        let mut programs =
            Ebpf::load(object).map_err(|error| Failed::other("loading the programs", error))?;
        let wrong = |name| move |error: MapError| Failed::other(name, error);
        let program = programs.program_mut(REPORT).ok_or_else(|| Failed::missing(REPORT))?;
        let report = load(program).map_err(|error| Failed::other(REPORT, error))?;
        let arrivals =
            RingBuf::try_from(take_map(&mut programs, ARRIVALS)?).map_err(wrong(ARRIVALS))?;
        let nothing = sys::load_nothing().map_err(Failed::at("loading a socket filter"))?;
        // The lookup refers to its maps by these descriptors' numbers until it is loaded.
        let program = programs.program_mut(LOOKUP).ok_or_else(|| Failed::missing(LOOKUP))?;
        let lookup: Result<&mut SkLookup, ProgramError> = program.try_into();
        lookup.and_then(SkLookup::load).map_err(|error| Failed::other(LOOKUP, error))?;
        let absent = HashMap::try_from(take_map(&mut programs, ABSENT)?).map_err(wrong(ABSENT))?;
        let [report, nothing] = [report, nothing].map(Arc::new);
        Ok(Self { report, nothing, arrivals, absent, programs, lookup: None })
    }

    /// Returns the socket filter that reports segments which reach the socket of a session that is
    /// away, and lets them pass.
    #[must_use]
    pub fn reporter(&self) -> &Arc<OwnedFd> {
        &self.report
    }

    /// Returns the socket filter that drops everything.
    #[must_use]
    pub fn silencer(&self) -> &Arc<OwnedFd> {
        &self.nothing
    }

    /// Returns a descriptor that is readable when there is an arrival.
    pub fn arrivals_fd(&self) -> BorrowedFd<'_> {
        self.arrivals.as_fd()
    }

    /// Takes an arrival.
    pub fn take_arrival(&mut self) -> Option<Arrival> {
        self.arrivals.next().and_then(|bytes| Arrival::decode(&bytes))
    }

    /// Drops the segments of a session that meet no connection, from now on.
    ///
    /// # Errors
    /// [`Failed`]: the kernel refuses the lookup, or there are too many such sessions.
    pub fn begin_absence(&mut self, key: &Key) -> Result<(), Failed> {
        if self.lookup.is_none() {
            self.lookup = Some(Lookup::attach(&mut self.programs, &self.nothing)?);
        }
        let inserted = self.absent.insert(key.encode(), 0, 0);
        inserted.map_err(|error| Failed::other("dropping a session's segments", error))
    }

    /// Ends that. A session that is not known is as good as one that was removed.
    pub fn end_absence(&mut self, key: &Key) {
        // Without the lookup no session was ever added.
        if self.lookup.is_some() {
            let _ = self.absent.remove(&key.encode());
        }
    }
}

impl Lookup {
    fn attach(programs: &mut Ebpf, nothing: &OwnedFd) -> Result<Self, Failed> {
        let map = programs.map_mut(SILENT).ok_or_else(|| Failed::missing(SILENT))?;
        let mut sockets = SockMap::try_from(map).map_err(|error| Failed::other(SILENT, error))?;
        let mut silent = Vec::new();
        for (index, address) in LOOPBACK.into_iter().enumerate() {
            // A host without IPv6 has no session by it.
            let Ok(socket) = listener(address.into(), nothing) else { continue };
            let set = sockets.set(index as u32, &socket, 0);
            set.map_err(|error| Failed::other(SILENT, error))?;
            silent.push(socket);
        }
        let step = |error: ProgramError| Failed::other(LOOKUP, error);
        let program = programs.program_mut(LOOKUP).ok_or_else(|| Failed::missing(LOOKUP))?;
        let program: &mut SkLookup = program.try_into().map_err(step)?;
        let netns = File::open(NETNS).map_err(Failed::at(NETNS))?;
        let link = program.attach(netns).and_then(|id| program.take_link(id)).map_err(step)?;
        Ok(Self { _silent: silent, _link: link.into() })
    }
}

fn take_map(programs: &mut Ebpf, name: &'static str) -> Result<Map, Failed> {
    programs.take_map(name).ok_or_else(|| Failed::missing(name))
}

fn load(program: &mut aya::programs::Program) -> Result<OwnedFd, ProgramError> {
    let program: &mut SocketFilter = program.try_into()?;
    program.load()?;
    Ok(program.fd()?.as_fd().try_clone_to_owned()?)
}

/// Gives a socket a filter, in place of the one that it has.
///
/// # Errors
/// The kernel's: `EPERM` if the program has locked the socket's filter (`SO_LOCK_FILTER`).
pub fn attach_program(socket: impl AsFd, program: BorrowedFd<'_>) -> Result<(), Failed> {
    attach(socket, &program).map_err(Failed::at("a socket's filter"))
}

/// Takes a socket's filter away.
pub fn detach_program(socket: impl AsFd) {
    // A socket without a filter refuses this.
    let _ = sys::set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &0_i32);
}

fn attach(socket: impl AsFd, program: &impl AsFd) -> io::Result<()> {
    sys::set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_BPF, &program.as_fd().as_raw_fd())
}

/// Makes a listening socket that drops everything. Nobody can connect to its port, which is the
/// loopback's.
fn listener(address: SocketAddr, nothing: &OwnedFd) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    attach(&socket, nothing)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 1)?;
    Ok(socket)
}
