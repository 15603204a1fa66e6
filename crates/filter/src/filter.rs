//! The filter of one interface: attaching, sessions, and the programs' counters. Not here: owners
//! (`owners`), taking over (`adopt`).
//!
//! Every call acts in the network name space of the calling thread, which must be the interface's.

use crate::error::{AttachError, Failed, FlowError};
use crate::group::Group;
use crate::holding_numbers::HoldingNumbers;
use crate::hook::{Hook, Method};
use crate::loader::{Config, FLOWS, INGRESS, Loaded, XDP};
use crate::netlink::{self, Interface};
use crate::owned::Template;
use crate::owner::Owner;
use crate::port;
use crate::reason::{Counts, Reason};
use crate::rule::{Key, OwnerId, Rule, Target};
use crate::sys;
use rustix::fd::{BorrowedFd, OwnedFd};
use sojourn_wire::frame::LinkType;
use std::collections::{BTreeMap, HashMap};

/// The place at which an XDP program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the kernel's generic hook: works on every interface, and turns no offload off at the
    /// other end of a veth.
    #[default]
    Generic,
    /// In the driver.
    Driver,
}

/// The options of a filter.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The largest number of sessions that can be away at one time.
    pub sessions_max: u32,
    /// The way in which the program is attached to the interface.
    pub method: Method,
    /// The place of the XDP program, once an owner has AF_XDP sockets.
    pub xdp_mode: XdpMode,
    /// True if the programs stay attached after the last session leaves, until the filter is
    /// dropped. This is for a server whose keeper also holds the link, because the server cannot
    /// know when the keeper releases it. (The same program is not attached twice.)
    pub stays_attached: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sessions_max: 65536,
            method: Method::default(),
            xdp_mode: XdpMode::default(),
            stays_attached: false,
        }
    }
}

/// A session that is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The session.
    pub key: Key,
    /// The receiver of its packets.
    pub owner: OwnerId,
}

/// The packet filter of one interface.
///
/// Nothing is attached while no session is away (but see [`Options::stays_attached`]), and no
/// packet socket is open while there is no owner with one. When the filter is dropped, or its
/// process dies, the interface is as before; ports stay guarded, and end with their programs.
pub struct Filter {
    pub(crate) interface: Interface,
    pub(crate) options: Options,
    pub(crate) loaded: Loaded,
    pub(crate) template: Template,
    pub(crate) hook: Option<Hook>,
    pub(crate) xdp: Option<OwnedFd>,
    pub(crate) group: Option<Group>,
    pub(crate) config: Config,
    pub(crate) owners: BTreeMap<OwnerId, Owner>,
    pub(crate) next_owner: u32,
    pub(crate) numbers: HoldingNumbers,
    sessions: HashMap<Key, OwnerId>,
    /// The fragment counter at the last search of the rules for notes.
    fragments: u64,
}

impl Filter {
    /// Loads the programs for an interface. The first session attaches them.
    ///
    /// # Errors
    /// [`AttachError::Unavailable`] if Sojourn was built without the programs; otherwise the
    /// kernel's error: `EPERM` without `CAP_BPF` and `CAP_NET_ADMIN`, `ENODEV` if there is no such
    /// interface.
    pub fn attach(interface: &str, options: Options) -> Result<Self, AttachError> {
        let interface = netlink::by_name(interface).map_err(Failed::at("finding the interface"))?;
        let loaded = Loaded::new(options.sessions_max)?;
        Ok(Self::new(interface, options, loaded, 1)?)
    }

    /// Makes a filter of programs whose fanout group has that many `members`. The number is right
    /// in the map at any time: a server that is killed in the middle of an adoption leaves it to
    /// the next one, and members beyond it are never found.
    pub(crate) fn new(
        interface: Interface,
        options: Options,
        mut loaded: Loaded,
        members: u32,
    ) -> Result<Self, Failed> {
        let config = Config { members, ..config_of(&interface) };
        loaded.set_config(&config)?;
        Ok(Self {
            template: Template::new(&loaded)?,
            interface,
            options,
            loaded,
            hook: None,
            xdp: None,
            group: None,
            config,
            owners: BTreeMap::new(),
            next_owner: 1,
            numbers: HoldingNumbers::default(),
            sessions: HashMap::new(),
            fragments: 0,
        })
    }

    /// Returns the interface as of the attaching or the last refresh.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }

    /// Returns the sessions that are away.
    pub fn flows(&self) -> impl Iterator<Item = Flow> + '_ {
        self.sessions.iter().map(|(key, owner)| Flow { key: *key, owner: *owner })
    }

    /// Directs the session's packets to its owner; the kernel does not see them any more.
    ///
    /// # Errors
    /// [`FlowError`]; nothing has changed in that case.
    pub fn add_flow(&mut self, key: Key, owner: OwnerId) -> Result<(), FlowError> {
        let known = self.owners.get(&owner).filter(|owner| owner.is_usable());
        let target = known.ok_or(FlowError::NoOwner(owner))?.target();
        if self.sessions.contains_key(&key) {
            return Err(FlowError::Taken(key));
        }
        if self.sessions.len() as u64 >= u64::from(self.options.sessions_max) {
            return Err(FlowError::Full);
        }
        self.attach_hook()?;
        let attached = if target == Target::Xsk { self.attach_xdp() } else { Ok(()) };
        if let Err(error) = attached.and_then(|()| self.write_rule(&key, owner, target)) {
            self.detach_if_idle();
            return Err(error.into());
        }
        self.sessions.insert(key, owner);
        Ok(())
    }

    pub(crate) fn write_rule(
        &mut self,
        key: &Key,
        owner: OwnerId,
        target: Target,
    ) -> Result<(), Failed> {
        self.write(key, &Rule { owner, target, fragment_seen: false, is_new: true, is_held: false })
    }

    /// Notes that every frame which the packet sockets had seen before the session's rule was there
    /// has reached the kernel by now: the others are the owner's.
    ///
    /// # Errors
    /// [`FlowError::Absent`], or the kernel's error.
    pub fn settle_flow(&mut self, key: &Key) -> Result<(), FlowError> {
        let rule = self.rule(key)?;
        Ok(self.write(key, &Rule { is_new: false, ..rule })?)
    }

    /// Has no packet of the session pass its port any more, in either direction; or all of them
    /// again. Without a port it has no effect.
    ///
    /// # Errors
    /// [`FlowError::Absent`].
    pub fn hold_flow(&mut self, key: &Key, is_held: bool) -> Result<(), FlowError> {
        let rule = self.rule(key)?;
        Ok(self.write(key, &Rule { is_held, ..rule })?)
    }

    fn write(&mut self, key: &Key, rule: &Rule) -> Result<(), Failed> {
        let written = self.loaded.flows.insert(key.encode(), rule.encode(), 0);
        written.map_err(|error| Failed::other("adding a session", error))
    }

    /// Returns the session's packets to the kernel. After the last session the interface is as it
    /// was before the first.
    ///
    /// # Errors
    /// [`FlowError::Absent`].
    pub fn remove_flow(&mut self, key: &Key) -> Result<(), FlowError> {
        let removed = self.release_flow(key);
        self.detach_if_idle();
        removed
    }

    /// Returns the session's packets to the kernel without delay: the programs stay attached until
    /// [`Filter::detach_if_idle`]. (To detach a program the kernel waits until no processor runs
    /// it, which takes some ten milliseconds.)
    ///
    /// # Errors
    /// [`FlowError::Absent`].
    pub fn release_flow(&mut self, key: &Key) -> Result<(), FlowError> {
        self.sessions.remove(key).ok_or(FlowError::Absent(*key))?;
        let removed = self.loaded.flows.remove(&key.encode());
        removed.map_err(|error| Failed::other("removing a session", error).into())
    }

    /// Returns the map with the rules of sessions, for [`release_rule`].
    #[must_use]
    pub fn rules(&self) -> Option<BorrowedFd<'_>> {
        self.loaded.fds().find(|held| held.name == FLOWS).map(|held| held.fd)
    }

    /// Returns a session's rule, with the note of an arrived fragment.
    ///
    /// # Errors
    /// [`FlowError::Absent`].
    pub fn rule(&self, key: &Key) -> Result<Rule, FlowError> {
        let bytes = self.loaded.flows.get(&key.encode(), 0);
        bytes.ok().and_then(|bytes| Rule::decode(&bytes)).ok_or(FlowError::Absent(*key))
    }

    /// Returns the sessions for which a fragmented segment has come, if one has come since the last
    /// call. These sessions should go home, because only the kernel reassembles fragments; until
    /// then the peer's segments are lost. Call this periodically: it makes one system call if there
    /// was no fragment, and otherwise one for each session. A session that is still away when its
    /// next fragment comes is returned again.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn take_fragmented(&mut self) -> Result<Vec<Key>, Failed> {
        let fragments = self.loaded.count(Reason::Fragmented)?;
        if fragments == self.fragments {
            return Ok(Vec::new());
        }
        // The program writes the note before it counts, so no note is missed.
        self.fragments = fragments;
        let is_noted = |key: &Key| self.rule(key).is_ok_and(|rule| rule.fragment_seen);
        Ok(self.sessions.keys().copied().filter(is_noted).collect())
    }

    pub(crate) fn keys_of(&self, owner: OwnerId) -> Vec<Key> {
        self.flows().filter(|flow| flow.owner == owner).map(|flow| flow.key).collect()
    }

    pub(crate) fn take_over_sessions(&mut self) {
        let flows = self.loaded.flows();
        self.sessions = flows.map(|flow| (flow.key, flow.rule.owner)).collect();
    }

    /// Detaches the programs if there are no sessions, unless [`Options::stays_attached`].
    pub fn detach_if_idle(&mut self) {
        if self.sessions.is_empty() && !self.options.stays_attached {
            self.hook = None;
            self.xdp = None;
        }
    }

    /// Attaches the programs if they are not attached, so that the first session need not wait for
    /// that.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn attach_hook(&mut self) -> Result<(), FlowError> {
        if self.hook.is_none() {
            let program = self.loaded.program(INGRESS)?;
            let (index, method) = (self.interface.index, self.options.method);
            self.hook = Some(Hook::new(program, INGRESS, index, method)?);
            self.numbers.hook = self.numbers.fresh();
        }
        Ok(())
    }

    /// Attaches the XDP program if it is not attached.
    pub(crate) fn attach_xdp(&mut self) -> Result<(), Failed> {
        if self.xdp.is_none() {
            let flags = match self.options.xdp_mode {
                XdpMode::Generic => 1 << 1,
                XdpMode::Driver => 1 << 2,
            };
            let program = self.loaded.program(XDP)?;
            let link = sys::link(program, self.interface.index, sys::AttachPoint::Xdp, flags);
            self.xdp = Some(link.map_err(Failed::at("attaching the XDP program"))?);
            self.numbers.xdp = self.numbers.fresh();
        }
        Ok(())
    }

    /// Returns the number of packets by reason since the filter was loaded.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn counts(&self) -> Result<Counts, Failed> {
        self.loaded.counts()
    }

    /// Queries the interface again for its address and MTU, reorders the members if it was down,
    /// and forgets removed owners whose sockets have been closed meanwhile. Call this when netlink
    /// reports a change of the interface, when the descriptor [`Filter::event_fd`] reports an
    /// error, and periodically.
    ///
    /// # Errors
    /// `ENODEV` if the interface is gone.
    pub fn refresh(&mut self) -> Result<(), Failed> {
        self.interface =
            netlink::by_index(self.interface.index).map_err(Failed::at("finding the interface"))?;
        if self.group.as_ref().is_some_and(Group::take_error) {
            self.reorder()?;
        }
        self.settle();
        self.config = Config { members: self.config.members, ..config_of(&self.interface) };
        self.loaded.set_config(&self.config)
    }

    /// Removes everything: sessions, owners, ports, programs.
    pub fn detach(mut self) {
        self.hook = None;
        self.xdp = None;
        for owner in self.owners.values() {
            if let Target::Port { interface } = owner.target() {
                // The interface may be gone with its program.
                let _ = netlink::delete(interface);
            }
        }
    }
}

/// Gives a session's packets to the kernel, by the map of [`Filter::rules`] alone and in any
/// process that has it. [`Filter::release_flow`] is still to follow.
///
/// # Errors
/// The kernel's: `ENOENT` if there is no such rule.
pub fn release_rule(rules: BorrowedFd<'_>, key: &Key) -> std::io::Result<()> {
    sys::remove_entry(rules, &key.encode())
}

fn config_of(interface: &Interface) -> Config {
    Config {
        interface: interface.index,
        mtu: interface.mtu,
        members: 0,
        is_raw: interface.link == LinkType::Raw,
        mac: port::mac_of(interface),
    }
}
