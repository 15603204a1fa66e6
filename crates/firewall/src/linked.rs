//! eBPF programs that are attached by link: at an interface (tcx, Linux 6.6), at the hooks of
//! netfilter (Linux 6.4), and where the kernel looks for the socket of a packet (`sk_lookup`, Linux
//! 5.9).
//!
//! Neither tc(8) nor nftables lists them, and nobody tells of their changes. The packet sockets of
//! sessions that are away get packets before a program at the interface's entry; at its exit a
//! program may ask for the socket that sends, which is another one then. A session that is away
//! passes no hook of netfilter; which network namespace a program at a hook is in is not told: each
//! counts. A program that chooses sockets is asked only for those without a peer. Not here: the
//! programs themselves, which are not understood; filters of tc (`traffic`), programs of control
//! groups (`cgroups`).

use crate::bpf::{self, Attachment, INFO_LEN};
use crate::session::{Family, Session};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::MetadataExt;

/// `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
const TCX: [u32; 2] = [46, 47];
/// `BPF_LINK_TYPE_NETFILTER` and `BPF_LINK_TYPE_NETNS`.
const AT_HOOK: u32 = 10;
const IN_SPACE: u32 = 5;
/// `BPF_SK_LOOKUP`.
const LOOKUP: u32 = 36;
/// `NF_INET_FORWARD`, whose packets are not a session's.
const FORWARD: u32 = 2;
/// The most programs at one interface (`BPF_MPROG_MAX`).
const PROGRAMS_MAX: usize = 64;
/// Links that are looked at.
const LINKS_MAX: usize = 1 << 16;
/// The names of Sojourn's own programs begin so (`bpf/`).
const OWN: &[u8] = b"sojourn";
/// The place of the name in `struct bpf_prog_info`.
const NAME: std::ops::Range<usize> = 64..80;

/// The place at which a program sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Netfilter {
        /// `NFPROTO_*`.
        family: u32,
        /// `NF_INET_*`.
        number: u32,
    },
    /// Where the sockets of this network namespace, named by its inode, are looked for.
    Lookup { space: u32 },
}

impl Hook {
    /// Reads the hook of a link (`struct bpf_link_info`); `None` if it is at none, or Sojourn's
    /// own.
    fn of(info: &[u8; INFO_LEN], is_own: impl Fn(u32) -> bool) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?));
        let [program, first, second] = [word(8)?, word(16)?, word(20)?];
        match word(0)? {
            AT_HOOK => Some(Self::Netfilter { family: first, number: second }),
            IN_SPACE if second == LOOKUP && !is_own(program) => Some(Self::Lookup { space: first }),
            _ => None,
        }
    }

    /// `here`: the network namespace of the session.
    fn concerns(self, session: &Session, here: Option<u32>) -> bool {
        match self {
            Self::Netfilter { family, number } => {
                let its = match session.family() {
                    Family::V4 => libc::NFPROTO_IPV4,
                    Family::V6 => libc::NFPROTO_IPV6,
                };
                family == its.cast_unsigned() && number != FORWARD
            }
            Self::Lookup { space } => {
                session.remote.is_none() && here.is_none_or(|here| here == space)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Netfilter { .. } => "an eBPF program at a hook of netfilter",
            Self::Lookup { .. } => "an eBPF program that chooses sockets (sk_lookup)",
        }
    }
}

/// Returns the inode of this thread's network namespace, by which links name it.
fn space_here() -> Option<u32> {
    let found = std::fs::metadata("/proc/thread-self/ns/net").ok()?;
    u32::try_from(found.ino()).ok()
}

/// The programs as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct LinkedPrograms {
    /// Programs of others at interfaces that were asked about, by the interface's index.
    entries: HashMap<u32, Vec<u32>>,
    /// All links of the host, by number, with the hooks of those that are at one. A number does not
    /// come again before all others.
    links: BTreeMap<u32, Option<Hook>>,
    /// The network namespace of the sessions, by its inode.
    here: Option<u32>,
}

impl LinkedPrograms {
    /// Looks at the hooks of netfilter for the first time.
    pub(crate) fn read() -> Self {
        let mut all = Self { here: space_here(), ..Self::default() };
        all.look_at_links();
        all
    }

    /// Returns the program that could say something about the session's packets. Interfaces are
    /// asked each time, hooks with [`Self::resurvey`].
    pub(crate) fn concerning(&mut self, session: &Session) -> Option<String> {
        let mut hooks = self.links.values().flatten();
        if let Some(hook) = hooks.find(|hook| hook.concerns(session, self.here)) {
            return Some(hook.name().into());
        }
        let interface = session.interface.as_ref()?;
        let programs = others_at(interface.index);
        let is_concerned = !programs.is_empty();
        self.entries.insert(interface.index, programs);
        let name = &interface.name;
        is_concerned.then(|| format!("an eBPF program (tcx) at {name}"))
    }

    /// Looks again. Returns true if something has changed.
    pub(crate) fn resurvey(&mut self) -> bool {
        let mut has_changed = self.look_at_links();
        for (index, known) in &mut self.entries {
            let now = others_at(*index);
            has_changed |= now != *known;
            *known = now;
        }
        has_changed
    }

    /// Returns true if programs at hooks have come or gone.
    fn look_at_links(&mut self) -> bool {
        let mut now = BTreeMap::new();
        let mut last = 0;
        // Ends without the right to look at links (`CAP_SYS_ADMIN`), or on older kernels.
        while now.len() < LINKS_MAX
            && let Ok(number) = bpf::next_link(last)
        {
            let known = self.links.get(&number).copied();
            now.insert(number, known.unwrap_or_else(|| hook_of(number)));
            last = number;
        }
        let before = core::mem::replace(&mut self.links, now);
        let hooks = |links: &BTreeMap<u32, Option<Hook>>| -> Vec<(u32, Hook)> {
            links.iter().filter_map(|(number, hook)| Some((*number, (*hook)?))).collect()
        };
        hooks(&before) != hooks(&self.links)
    }
}

fn hook_of(link: u32) -> Option<Hook> {
    Hook::of(&bpf::info_of(&bpf::link(link).ok()?).ok()?, is_own)
}

/// Returns the numbers of the programs at an interface's entry and exit that are not Sojourn's own.
fn others_at(index: u32) -> Vec<u32> {
    let mut others = Vec::new();
    for kind in TCX {
        let mut numbers = [0u32; PROGRAMS_MAX];
        let at = Attachment { target: index, kind, flags: 0 };
        let count = bpf::programs_at(at, &mut numbers).unwrap_or_default();
        others.extend(numbers.iter().take(count).copied().filter(|number| !is_own(*number)));
    }
    others
}

/// Returns true for a program of Sojourn's, and for one that may not be looked at.
fn is_own(program: u32) -> bool {
    let info = bpf::program(program).and_then(|program| bpf::info_of(&program));
    info.map_or(true, |info| info[NAME].starts_with(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(kind: u32, first: u32, second: u32) -> Option<Hook> {
        let mut info = [0; INFO_LEN];
        for (at, word) in [(0, kind), (8, 9), (16, first), (20, second)] {
            info[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        Hook::of(&info, |program| program != 9)
    }

    fn session(local: &str) -> Session {
        Session {
            protocol: sojourn_wire::Protocol::Tcp,
            local: local.parse().unwrap(),
            remote: Some("10.0.0.2:2".parse().unwrap()),
            interface: None,
            is_established: true,
        }
    }

    #[test]
    fn a_hook_is_read_from_a_link() {
        assert_eq!(hook(11, 2, 1), None, "a link of another kind");
        let concerns = |family, number, local| {
            hook(AT_HOOK, family, number).unwrap().concerns(&session(local), Some(1))
        };
        assert!(concerns(2, 1, "10.0.0.1:1") && concerns(10, 3, "[fd00::1]:1"));
        assert!(!concerns(10, 1, "10.0.0.1:1") && !concerns(2, FORWARD, "10.0.0.1:1"));
    }

    #[test]
    fn who_chooses_sockets_is_asked_for_those_without_a_peer() {
        assert_eq!(hook(IN_SPACE, 7, 17), None, "a flow dissector");
        let lookup = hook(IN_SPACE, 7, LOOKUP).unwrap();
        let peerless = Session { remote: None, ..session("10.0.0.1:1") };
        assert!(lookup.concerns(&peerless, Some(7)) && lookup.concerns(&peerless, None));
        assert!(!lookup.concerns(&peerless, Some(8)), "another network namespace");
        assert!(!lookup.concerns(&session("10.0.0.1:1"), Some(7)));
        let mut info = [0; INFO_LEN];
        info[..4].copy_from_slice(&IN_SPACE.to_ne_bytes());
        info[20..24].copy_from_slice(&LOOKUP.to_ne_bytes());
        assert_eq!(Hook::of(&info, |_| true), None, "Sojourn's own");
    }
}
