//! What the kernel says of its packet filters and policies, and notice of changes.
//!
//! Rules and policies are read when they have changed: nfnetlink and xfrm tell. The older tables of
//! iptables tell nobody, so they are read again every [`RESURVEY_US`]. Not here: what they mean for
//! a session (`ruleset`, `tables`, `policies`).

#![allow(unsafe_code, reason = "the socket options of iptables, which rustix does not have")]

use crate::attributes::{Message, messages};
use crate::policies;
use crate::ruleset::Ruleset;
use crate::session::{Family, Session};
use crate::tables::{self, Table};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};

/// How often [`Firewall::resurvey`] is to be called (microseconds).
pub const RESURVEY_US: u64 = 1_000_000;

/// `NFNL_SUBSYS_NFTABLES` with `NFT_MSG_GETCHAIN` and `NFT_MSG_GETRULE`; `XFRM_MSG_GETPOLICY`.
const GET_CHAIN: u16 = 10 << 8 | 4;
const GET_RULE: u16 = 10 << 8 | 7;
const GET_POLICY: u16 = 0x15;
/// The groups of `NFNLGRP_NFTABLES` and `XFRMNLGRP_POLICY`.
const RULES_CHANGE: u32 = 1 << 6;
const POLICIES_CHANGE: u32 = 1 << 3;
/// `NLM_F_REQUEST | NLM_F_DUMP`, and `NLM_F_DUMP_INTR` of an answer.
const DUMP: u16 = 0x301;
const INTERRUPTED: u16 = 0x10;
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// Longer than any one datagram of a dump is.
const ANSWER_LEN: usize = 64 * 1024;
/// How often it is tried to read what changes meanwhile.
const TRIES: usize = 8;
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
    policies: Result<Vec<Vec<u8>>, Errno>,
    tables: Vec<Table>,
}

impl Firewall {
    /// Reads all of it. Of what this kernel does not have nothing is said.
    #[must_use]
    pub fn new() -> Self {
        let netfilter = socket(netlink::NETFILTER, RULES_CHANGE);
        let xfrm = socket(netlink::XFRM, POLICIES_CHANGE);
        let changes = [netfilter, xfrm].into_iter().filter_map(Result::ok).collect();
        Self { changes, rules: rules(), policies: policies(), tables: tables() }
    }

    /// Readable when rules or policies may have changed.
    pub fn changes_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.changes.iter().map(AsFd::as_fd)
    }

    /// Reads rules and policies again if they have changed. Whether they have.
    pub fn refresh(&mut self) -> bool {
        // Each is drained.
        let has_changed = self.changes.iter().filter(|socket| drain(socket)).count() > 0;
        if has_changed {
            self.rules = rules();
            self.policies = policies();
        }
        has_changed
    }

    /// Reads again what tells nobody of its changes. Whether it has changed.
    pub fn resurvey(&mut self) -> bool {
        let now = tables();
        let has_changed = now != self.tables;
        self.tables = now;
        has_changed
    }

    /// Whether there is nothing that could say something about any session.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        self.rules.as_ref().is_ok_and(Ruleset::is_empty)
            && self.tables.iter().all(|table| table.chains.is_empty())
            && self.policies.as_ref().is_ok_and(Vec::is_empty)
    }

    /// The hook that could say something about the session's packets.
    #[must_use]
    pub fn concerning(&self, session: &Session) -> Option<String> {
        let by_rules = match &self.rules {
            Ok(rules) => rules.concerning(session),
            Err(error) => Some(format!("nftables, whose rules cannot be read: {error}")),
        };
        let by_tables = || self.tables.iter().find_map(|table| table.concerning(session));
        let by_policies = || match &self.policies {
            Ok(all) => {
                let selects = |policy: &Vec<u8>| policies::selects(policy, session);
                all.iter().any(selects).then(|| "an IPsec policy (ip xfrm policy)".to_owned())
            }
            Err(error) => Some(format!("IPsec, whose policies cannot be read: {error}")),
        };
        by_rules.or_else(by_tables).or_else(by_policies)
    }
}

impl Default for Firewall {
    fn default() -> Self {
        Self::new()
    }
}

fn socket(protocol: Protocol, groups: u32) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = rustix::net::socket_with(family, kind, flags, Some(protocol))?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

/// Whether anything was told. Notices get lost, too, when there are too many.
fn drain(socket: &OwnedFd) -> bool {
    let mut any = false;
    let mut ignored = [0; 512];
    loop {
        match rustix::net::recv(socket, &mut ignored[..], RecvFlags::TRUNC) {
            Ok(_) | Err(Errno::NOBUFS) => any = true,
            Err(Errno::INTR) => {}
            Err(_) => return any,
        }
    }
}

/// What the kernel does not have, as opposed to what it does not tell.
fn is_absent(error: Errno) -> bool {
    matches!(error, Errno::PROTONOSUPPORT | Errno::INVAL | Errno::OPNOTSUPP)
}

fn rules() -> Result<Ruleset, Errno> {
    let read = || {
        let mut rules = Ruleset::default();
        for kind in [GET_CHAIN, GET_RULE] {
            // Of nfnetlink's header: any family.
            dump(netlink::NETFILTER, kind, &[0; 4], |message| rules.add(message))?;
        }
        Ok(rules)
    };
    match repeat(read) {
        Err(error) if is_absent(error) => Ok(Ruleset::default()),
        read => read,
    }
}

fn policies() -> Result<Vec<Vec<u8>>, Errno> {
    let read = || {
        let mut policies = Vec::new();
        dump(netlink::XFRM, GET_POLICY, &[], |message| policies.push(message.body.to_vec()))?;
        Ok(policies)
    };
    match repeat(read) {
        Err(error) if is_absent(error) => Ok(Vec::new()),
        read => read,
    }
}

/// Again while it changes under one's hands.
fn repeat<T>(read: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    (1..TRIES).map(|_| read()).find(|read| !matches!(read, Err(Errno::INTR))).unwrap_or_else(read)
}

/// Every message of a dump. `INTR`: something has changed meanwhile.
fn dump(
    protocol: Protocol,
    kind: u16,
    body: &[u8],
    mut each: impl FnMut(Message<'_>),
) -> Result<(), Errno> {
    let socket = socket(protocol, 0)?;
    let mut question = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    question.extend(kind.to_ne_bytes());
    question.extend(DUMP.to_ne_bytes());
    question.extend([0; 8]);
    question.extend(body);
    rustix::net::send(&socket, &question, SendFlags::empty())?;
    let mut answer = vec![0; ANSWER_LEN];
    loop {
        // The kernel goes on with the dump in this call; nobody is waited for.
        let (len, whole) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::TRUNC)?;
        if whole > len {
            return Err(Errno::MSGSIZE);
        }
        for message in messages(answer.get(..len).unwrap_or_default()) {
            if message.flags & INTERRUPTED != 0 {
                return Err(Errno::INTR);
            }
            match message.kind {
                DONE | ERROR => return result(message.body),
                _ => each(message),
            }
        }
    }
}

/// What the end of a dump says.
fn result(body: &[u8]) -> Result<(), Errno> {
    let code = body.get(..4).and_then(|code| code.try_into().ok()).map_or(0, i32::from_ne_bytes);
    match code.wrapping_neg() {
        0 => Ok(()),
        code @ 1..4096 => Err(Errno::from_raw_os_error(code)),
        _ => Err(Errno::BADMSG),
    }
}

/// The older tables that there are. To ask for another would make it.
fn tables() -> Vec<Table> {
    let files = [(Family::V4, "ip_tables_names"), (Family::V6, "ip6_tables_names")];
    let mut all = Vec::new();
    for (family, file) in files {
        let path = format!("/proc/thread-self/net/{file}");
        // Without the file the kernel has none of them.
        let names = std::fs::read_to_string(path).unwrap_or_default();
        for name in names.lines() {
            let chains = chains(family, name).unwrap_or_else(|| vec!["?"]);
            all.push(Table { family, name: name.into(), chains });
        }
    }
    all
}

fn chains(family: Family, name: &str) -> Option<Vec<&'static str>> {
    let mut info = vec![0; tables::INFO_LEN];
    info.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    let mut entries = info.get(..tables::ENTRIES)?.to_vec();
    ask(family, GET_INFO, &mut info)?;
    let len = tables::entries_len(&info).filter(|len| *len <= TABLE_MAX)?;
    entries.get_mut(32..36)?.copy_from_slice(&(len as u32).to_ne_bytes());
    entries.resize(tables::ENTRIES + len, 0);
    // Fails if the table has become another meanwhile: it is read again soon.
    ask(family, GET_ENTRIES, &mut entries)?;
    tables::chains(family, &info, entries.get(tables::ENTRIES..)?)
}

/// Asks the kernel to fill `answer`, which begins with what is asked for.
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
