//! eBPF programs that are attached by link where packets come in: at an interface (tcx, Linux 6.6)
//! and at the hooks of netfilter (Linux 6.4).
//!
//! Neither tc(8) nor nftables lists them, and nobody tells of their changes. The packet sockets of
//! sessions that are away get packets before a program at the interface, and a session that is away
//! passes no hook of netfilter. Which network namespace a program at a hook is in is not told: each
//! counts. What goes out passes the programs at the interface as ever. Not here: the programs
//! themselves, which are not understood; filters of tc (`traffic`), programs of control groups
//! (`cgroups`).

use crate::bpf::{self, Attachment, INFO_LEN};
use crate::session::{Family, Session};
use std::collections::{BTreeMap, HashMap};

/// `BPF_TCX_INGRESS`.
const TCX_INGRESS: u32 = 46;
/// `BPF_LINK_TYPE_NETFILTER`.
const AT_HOOK: u32 = 10;
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

/// The hook at which a program sees packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hook {
    /// `NFPROTO_*`.
    family: u32,
    /// `NF_INET_*`.
    number: u32,
}

impl Hook {
    /// Reads the hook of a link (`struct bpf_link_info`); `None` if it is not at a hook.
    fn of(info: &[u8; INFO_LEN]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?));
        (word(0)? == AT_HOOK).then_some(())?;
        Some(Self { family: word(16)?, number: word(20)? })
    }

    fn concerns(self, session: &Session) -> bool {
        let family = match session.family() {
            Family::V4 => libc::NFPROTO_IPV4,
            Family::V6 => libc::NFPROTO_IPV6,
        };
        self.family == family.cast_unsigned() && self.number != FORWARD
    }
}

/// The programs as they were last seen.
#[derive(Debug, Default)]
pub(crate) struct LinkedPrograms {
    /// Programs of others at interfaces that were asked about, by the interface's index.
    entries: HashMap<u32, Vec<u32>>,
    /// All links of the host, by number, with the hooks of those that are at one. A number does not
    /// come again before all others.
    links: BTreeMap<u32, Option<Hook>>,
}

impl LinkedPrograms {
    /// Looks at the hooks of netfilter for the first time.
    pub(crate) fn read() -> Self {
        let mut all = Self::default();
        all.look_at_links();
        all
    }

    /// Returns the program that could say something about the session's packets. Interfaces are
    /// asked each time, hooks with [`Self::resurvey`].
    pub(crate) fn concerning(&mut self, session: &Session) -> Option<String> {
        if self.links.values().flatten().any(|hook| hook.concerns(session)) {
            return Some("an eBPF program at a hook of netfilter".into());
        }
        let interface = session.interface.as_ref()?;
        let programs = others_at(interface.index);
        let is_concerned = !programs.is_empty();
        self.entries.insert(interface.index, programs);
        let name = &interface.name;
        is_concerned.then(|| format!("an eBPF program (tcx) on packets that come by {name}"))
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
    Hook::of(&bpf::info_of(&bpf::link(link).ok()?).ok()?)
}

/// Returns the numbers of the programs at an interface's entry that are not Sojourn's own.
fn others_at(index: u32) -> Vec<u32> {
    let mut numbers = [0u32; PROGRAMS_MAX];
    let at = Attachment { target: index, kind: TCX_INGRESS, flags: 0 };
    let count = bpf::programs_at(at, &mut numbers).unwrap_or_default();
    numbers.iter().take(count).copied().filter(|number| !is_own(*number)).collect()
}

/// Returns true for a program of Sojourn's, and for one that may not be looked at.
fn is_own(program: u32) -> bool {
    let info = bpf::program(program).and_then(|program| bpf::info_of(&program));
    info.map_or(true, |info| info[NAME].starts_with(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_is_read_from_a_link() {
        let info = |kind: u32, family: u32, number: u32| {
            let mut info = [0; INFO_LEN];
            for (at, word) in [(0, kind), (16, family), (20, number)] {
                info[at..at + 4].copy_from_slice(&word.to_ne_bytes());
            }
            Hook::of(&info)
        };
        assert_eq!(info(11, 2, 1), None, "a link of another kind");
        let session = |local: &str| Session {
            protocol: sojourn_wire::Protocol::Tcp,
            local: local.parse().unwrap(),
            remote: None,
            interface: None,
            is_established: true,
        };
        let concerns = |family, number, local| {
            info(AT_HOOK, family, number).unwrap().concerns(&session(local))
        };
        assert!(concerns(2, 1, "10.0.0.1:1") && concerns(10, 3, "[fd00::1]:1"));
        assert!(!concerns(10, 1, "10.0.0.1:1") && !concerns(2, FORWARD, "10.0.0.1:1"));
    }
}
