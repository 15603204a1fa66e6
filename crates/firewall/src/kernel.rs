//! The host's packet filters, policies and eBPF programs as the kernel tells them, with notice of
//! changes.
//!
//! Rules and policies are read when they have changed: nfnetlink, xfrm and rtnetlink tell. Nobody
//! tells of the older tables of iptables, of control groups' programs and of those attached by
//! link, so they are read again every [`RESURVEY_US`]. Not here: their meaning for a session
//! (`ruleset`, `tables`, `policies`, `routing`, `refusals`, `cgroups`, `traffic`,
//! `linked`, `modules`).

#![allow(unsafe_code, reason = "the socket options of iptables, which rustix does not have")]

use crate::cgroups::ControlGroups;
use crate::dumps;
use crate::linked::LinkedPrograms;
use crate::modules::Modules;
use crate::netlink::{Question, drain, dump, socket};
use crate::policies::Policies;
use crate::refusals::Refusals;
use crate::routing::RoutingRules;
use crate::ruleset::Ruleset;
use crate::session::{Family, Session};
use crate::tables::{self, Listing, Table};
use crate::traffic;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netlink;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};

/// How often [`Firewall::resurvey`] is to be called (microseconds).
pub const RESURVEY_US: u64 = 1_000_000;

/// `XFRM_MSG_GETPOLICY` and `XFRM_MSG_GETDEFAULT`.
const GET_POLICY: u16 = 0x15;
const GET_DEFAULT: u16 = 0x28;
/// `RTM_GETRULE`.
const GET_ROUTING: u16 = 34;
/// The groups of `NFNLGRP_NFTABLES`, `XFRMNLGRP_POLICY`, `RTNLGRP_TC`, and of `RTNLGRP_IPV4_RULE`
/// and `RTNLGRP_IPV6_RULE`.
const RULES_CHANGE: u32 = 1 << 6;
const POLICIES_CHANGE: u32 = 1 << 3;
const TRAFFIC_CHANGES: u32 = 1 << 3;
const ROUTING_CHANGES: u32 = 1 << 7 | 1 << 18;
/// The groups of `RTNLGRP_IPV4_ROUTE` and `RTNLGRP_IPV6_ROUTE`.
const ROUTES_CHANGE: u32 = 1 << 6 | 1 << 10;
/// `IPT_SO_GET_INFO` and `IPT_SO_GET_ENTRIES`, and the same for IPv6.
const GET_INFO: i32 = 64;
const GET_ENTRIES: i32 = 65;
/// Longer tables are not read.
const TABLE_MAX: usize = 16 << 20;

/// The packet filters and policies of the network namespace in which it was made.
#[derive(Debug)]
pub struct Firewall {
    changes: Vec<OwnedFd>,
    /// `Err`: they cannot be read.
    rules: Result<Ruleset, Errno>,
    policies: Result<Policies, Errno>,
    routing: Result<RoutingRules, Errno>,
    refusals: Refusals,
    /// Tells that routes have changed; not among [`Firewall::changes_fds`], as they may often do.
    routes: Option<OwnedFd>,
    tables: Vec<Table>,
    groups: ControlGroups,
    linked: LinkedPrograms,
    modules: Modules,
}

impl Firewall {
    /// Reads all of it. Parts that this kernel does not have say nothing.
    #[must_use]
    pub fn new() -> Self {
        let netfilter = socket(Some(netlink::NETFILTER), RULES_CHANGE);
        let xfrm = socket(Some(netlink::XFRM), POLICIES_CHANGE);
        let traffic = socket(None, TRAFFIC_CHANGES | ROUTING_CHANGES);
        let changes = [netfilter, xfrm, traffic].into_iter().filter_map(Result::ok).collect();
        let routes = socket(None, ROUTES_CHANGE).ok();
        let (groups, refusals) = (ControlGroups::new(), Refusals::read());
        let (rules, policies, routing, tables) = (rules(), policies(), routing(), tables());
        let (linked, modules) = (LinkedPrograms::read(), Modules::read());
        Self {
            changes,
            rules,
            policies,
            routing,
            refusals,
            routes,
            tables,
            groups,
            linked,
            modules,
        }
    }

    /// Returns the sockets that are readable when something may have changed.
    pub fn changes_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.changes.iter().map(AsFd::as_fd)
    }

    /// Reads rules and policies again if something has changed. Returns true if it has.
    pub fn refresh(&mut self) -> bool {
        // Each is drained.
        let has_changed = self.changes.iter().filter(|socket| drain(socket)).count() > 0;
        if has_changed {
            self.rules = rules();
            self.policies = policies();
            self.routing = routing();
        }
        has_changed
    }

    /// Reads again whatever has no notice of its changes. Returns true if it has changed.
    pub fn resurvey(&mut self) -> bool {
        let now = tables();
        let is_same = now.len() == self.tables.len()
            && now.iter().zip(&self.tables).all(|(now, before)| now.is_same(before));
        self.tables = now;
        let modules = core::mem::replace(&mut self.modules, Modules::read());
        let refusals = self.refusals;
        if self.routes.as_ref().is_none_or(drain) {
            self.refusals = Refusals::read();
        }
        // Each survey is made even if the other one has found a change: both remember what they
        // saw.
        let by_programs = [self.groups.resurvey(), self.linked.resurvey()].contains(&true);
        by_programs || !is_same || modules != self.modules || refusals != self.refusals
    }

    /// Returns true if no rule, table, policy, routing rule or security module could say something
    /// about any session.
    #[must_use]
    pub fn has_no_rules(&self) -> bool {
        self.rules.as_ref().is_ok_and(Ruleset::is_empty)
            && self.tables.iter().all(Table::is_empty)
            && self.policies.as_ref().is_ok_and(Policies::is_empty)
            && self.routing.as_ref().is_ok_and(RoutingRules::is_empty)
            && self.refusals.is_empty()
            && self.module().is_none()
    }

    /// Returns the rule, table, policy, routing rule or security module that could say something
    /// about the session's packets.
    #[must_use]
    pub fn rule_concerning(&self, session: &Session) -> Option<String> {
        let by_rules = match &self.rules {
            Ok(rules) => rules.concerning(session),
            Err(error) => Some(format!("nftables, whose rules cannot be read: {error}")),
        };
        let by_tables = || self.tables.iter().find_map(|table| table.concerning(session));
        let by_policies = || match &self.policies {
            Ok(policies) => policies.concerning(session),
            Err(error) => Some(format!("IPsec, whose policies cannot be read: {error}")),
        };
        let by_routing = || match &self.routing {
            Ok(routing) => routing.concerning(session),
            Err(error) => Some(format!("routing rules, which cannot be read: {error}")),
        };
        let by_routes = || by_routing().or_else(|| self.refusals.concerning(session));
        let by_modules = || self.module().map(str::to_owned);
        by_rules.or_else(by_tables).or_else(by_policies).or_else(by_routes).or_else(by_modules)
    }

    /// Returns the security module that looks at packets of all sessions.
    fn module(&self) -> Option<&'static str> {
        let marks =
            self.rules.as_ref().is_ok_and(Ruleset::marks) || self.tables.iter().any(Table::marks);
        self.modules.concerning(marks)
    }

    /// Returns the program or filter of the session's own control group, interface or hooks that
    /// could say something about its packets. The kernel is asked each time.
    #[must_use]
    pub fn program_concerning(&mut self, session: &Session) -> Option<String> {
        let by_group = self.groups.concerning(session).or_else(|| traffic::concerning(session));
        by_group.or_else(|| self.linked.concerning(session))
    }
}

impl Default for Firewall {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns true if the kernel does not have what it was asked for, as opposed to not telling it.
fn is_absent(error: Errno) -> bool {
    matches!(error, Errno::PROTONOSUPPORT | Errno::INVAL | Errno::OPNOTSUPP)
}

fn rules() -> Result<Ruleset, Errno> {
    match dumps::ruleset() {
        Err(error) if is_absent(error) => Ok(Ruleset::default()),
        read => read,
    }
}

fn policies() -> Result<Policies, Errno> {
    let of = |kind, body| Question { protocol: Some(netlink::XFRM), kind, body };
    let read = dump(&[of(GET_POLICY, &[])], Policies::default, |policies, message| {
        policies.add(message.body);
    });
    let mut policies = match read {
        Err(error) if is_absent(error) => Policies::default(),
        read => read?,
    };
    // `struct xfrm_userpolicy_default`. Kernels before 5.14 have no defaults.
    match crate::netlink::ask(of(GET_DEFAULT, &[0; 4]), |message| {
        policies.set_default(message.body);
    }) {
        Err(error) if !is_absent(error) => Err(error),
        _ => Ok(policies),
    }
}

fn routing() -> Result<RoutingRules, Errno> {
    let mut all = RoutingRules::default();
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut body = [0; 12];
        body[0] = family as u8;
        let question = Question { protocol: None, kind: GET_ROUTING, body: &body };
        let read = dump(&[question], || all.clone(), |all, message| all.add(message.body));
        match read {
            // The kernel has no such family, or no rules.
            Err(error) if is_absent(error) || error == Errno::AFNOSUPPORT => {}
            read => all = read?,
        }
    }
    Ok(all)
}

/// Reads the legacy tables that exist. Only those: a request for another table would create it.
fn tables() -> Vec<Table> {
    let files = [(Family::V4, "ip_tables_names"), (Family::V6, "ip6_tables_names")];
    let mut all = Vec::new();
    for (family, file) in files {
        let path = format!("/proc/thread-self/net/{file}");
        // A kernel without the file has no such tables.
        let names = std::fs::read_to_string(path).unwrap_or_default();
        for name in names.lines() {
            let answer = table(family, name);
            all.push(Table::new(family, name, answer.as_ref().map(Answers::listing)));
        }
    }
    all
}

/// The kernel's answers about a legacy table.
struct Answers {
    /// `struct ipt_getinfo`.
    info: Vec<u8>,
    /// `struct ipt_get_entries`.
    entries: Vec<u8>,
}

impl Answers {
    fn listing(&self) -> Listing<'_> {
        Listing { info: &self.info, entries: &self.entries[tables::ENTRIES..] }
    }
}

/// Reads a legacy table.
fn table(family: Family, name: &str) -> Option<Answers> {
    let mut info = vec![0; tables::INFO_LEN];
    info.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let mut entries = info.get(..tables::ENTRIES)?.to_vec();
    ask(family, GET_INFO, &mut info)?;
    let len = tables::entries_len(&info).filter(|len| *len <= TABLE_MAX)?;
    entries.get_mut(32..36)?.copy_from_slice(&(len as u32).to_ne_bytes());
    entries.resize(tables::ENTRIES + len, 0);
    // Fails if the size of the table has changed meanwhile; the next survey reads it again.
    ask(family, GET_ENTRIES, &mut entries)?;
    Some(Answers { info, entries })
}

/// Asks the kernel to fill `answer`, which begins with the request.
fn ask(family: Family, what: i32, answer: &mut [u8]) -> Option<()> {
    let (of, level) = match family {
        Family::V4 => (AddressFamily::INET, libc::IPPROTO_IP),
        Family::V6 => (AddressFamily::INET6, libc::IPPROTO_IPV6),
    };
    let raw = Protocol::from_raw(rustix::net::RawProtocol::new(libc::IPPROTO_RAW as u32)?);
    let socket =
        rustix::net::socket_with(of, SocketType::RAW, SocketFlags::CLOEXEC, Some(raw)).ok()?;
    let mut len = libc::socklen_t::try_from(answer.len()).ok()?;
    // SAFETY: `answer` is memory of that length, which the kernel may write, and outlives the call.
    let done = unsafe {
        let value = answer.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), level, what, value, &raw mut len)
    };
    (done == 0).then_some(())
}
