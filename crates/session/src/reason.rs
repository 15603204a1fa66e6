//! Texts of the reasons: a short code on which programs can rely, and a sentence for people.
//!
//! Not here: the conditions for each reason; see `docs/understand/streams.md` and
//! `idl/session.idl`.

use crate::ReasonT;

/// Texts of one reason.
#[derive(Clone, Copy, Debug)]
pub struct ReasonText {
    /// The reason.
    pub reason: ReasonT,
    /// Code in lower case with hyphens, which never changes: for JSON, filters and tests.
    pub word: &'static str,
    /// The meaning of the reason, and the remedy if there is one.
    pub sentence: &'static str,
}

const fn text(reason: ReasonT, word: &'static str, sentence: &'static str) -> ReasonText {
    ReasonText { reason, word, sentence }
}

/// Texts of every reason, indexed by its number.
pub const ALL: [ReasonText; 45] = [
    text(ReasonT::None, "none", "The session is away from the kernel."),
    text(
        ReasonT::NotHot,
        "not-hot",
        "Too little has gone through the session so far, as far as can be seen, or its calls are 4 ms apart or more. To move earlier, lower move_after_calls or move_after_bytes.",
    ),
    text(
        ReasonT::NoPeer,
        "no-peer",
        "The other end is not on this host, or its program does not run under Sojourn. Start that program with `sojourn run` too.",
    ),
    text(
        ReasonT::SeveralHolders,
        "several-holders",
        "More than one process has this end open, so that only the kernel can share it. It can move when the others have closed it.",
    ),
    text(
        ReasonT::HoldersUnknown,
        "holders-unknown",
        "A process that this server may not inspect could have this end open. A server run as root can look.",
    ),
    text(
        ReasonT::Kind,
        "kind",
        "Only TCP connections, connected Unix stream sockets and pipes that are open in one direction can move.",
    ),
    text(ReasonT::State, "state", "It is not (or no longer) connected in both directions."),
    text(
        ReasonT::Option,
        "option",
        "An option that only the kernel can honour is set on it (time stamps, credentials, out-of-band data in line, a low-water mark, packet mode, ...). Without the option it can move.",
    ),
    text(
        ReasonT::Operation,
        "operation",
        "The program asked for something that only the kernel does (splice, out-of-band data, io_uring, ...).",
    ),
    text(
        ReasonT::Stdio,
        "stdio",
        "Calls on it happen inside the C library where they cannot be seen: it is standard error, aio_read or dprintf has used it, or a FILE of a program with threads has come to it.",
    ),
    text(
        ReasonT::Set,
        "set",
        "It is in several epoll sets, or in one that is itself polled or was inherited. A session in one set of its own process can move.",
    ),
    text(
        ReasonT::Fork,
        "fork",
        "A child made by fork used it as well, so it came home to be shared. It can move again when one process has it alone.",
    ),
    text(ReasonT::Exec, "exec", "It was passed on to another program by exec or posix_spawn."),
    text(
        ReasonT::Passed,
        "passed",
        "Its descriptor was sent to another process over a Unix socket.",
    ),
    text(
        ReasonT::Sandbox,
        "sandbox",
        "The program has limited its own system calls (seccomp), or entered other namespaces (unshare, setns), so its sessions stay where it can reach them.",
    ),
    text(ReasonT::Closed, "closed", "The program closed it or shut a direction down."),
    text(
        ReasonT::PeerLeft,
        "peer-left",
        "The other end went home first; its reason is shown there.",
    ),
    text(ReasonT::PeerDied, "peer-died", "The process of the other end has ended."),
    text(
        ReasonT::Violation,
        "violation",
        "The other end broke the rules of the shared memory. Please report which program it was.",
    ),
    text(
        ReasonT::Policy,
        "policy",
        "The configuration leaves it to the kernel. See kinds, ports, addresses and programs in the configuration.",
    ),
    text(ReasonT::User, "user", "Somebody sent it home with `sojourn move`."),
    text(
        ReasonT::OtherUser,
        "other-user",
        "The ends belong to different users. Only a server run as root pairs them.",
    ),
    text(
        ReasonT::Namespace,
        "namespace",
        "It lives in a network or process name space that this server cannot look into. A server run as root, or one inside that name space, can.",
    ),
    text(ReasonT::SameProcess, "same-process", "Both ends are in one process."),
    text(
        ReasonT::Resources,
        "resources",
        "Server or program ran out of descriptors or memory, or has as many sessions as it may have. Raise the limit of open files (ulimit -n) or of address space (ulimit -v).",
    ),
    text(
        ReasonT::ServerGone,
        "server-gone",
        "No session server answers. Look with `sojourn doctor`.",
    ),
    text(
        ReasonT::Slower,
        "slower",
        "It was measured to do better in the kernel: a session with another host (a bulk transfer by itself, all others of the program together), or one whose ends sleep again and again. It is tried again later, less and less often; measure_bulk=off leaves it away.",
    ),
    text(
        ReasonT::Trial,
        "trial",
        "It is in the kernel for a moment to see which is faster: a session with another host, or one whose ends sleep again and again. measure_bulk=off leaves it away.",
    ),
    text(
        ReasonT::SharedPort,
        "shared-port",
        "Other UDP sockets have its port too, or may take it at any time (SO_REUSEADDR, SO_REUSEPORT), and which of them gets a datagram the kernel decides. Connected, and the only one with that peer, it can move.",
    ),
    text(
        ReasonT::Translated,
        "translated",
        "The kernel translates its addresses or ports on their way (NAT: redirect, dnat, snat, masquerade), and only the kernel can.",
    ),
    text(
        ReasonT::Ring,
        "io-uring",
        "The program has an io_uring ring whose submissions the library cannot see: one that liburing or inline system calls made, or that a kernel thread serves. What it submits for a session only the kernel can do. --programs leaves such a program out; without the ring it moves.",
    ),
    text(
        ReasonT::Unreachable,
        "unreachable",
        "A session server runs, but where this program looks for one (SOJOURN_SERVER, or the usual places inside its root folder) there is none that it can use. Share the folder of the server's socket with its container or root folder, let its user in, and name the socket with --server.",
    ),
    text(
        ReasonT::OtherServer,
        "other-server",
        "The other end's program is served by another session server. Give both the same one: `sojourn run --server`, or have root run the server of the system (sojournd --system).",
    ),
    text(
        ReasonT::LostLibrary,
        "lost-library",
        "A program under Sojourn started this one, but with an environment that does not have the library any more (env -i, sudo, an exec with variables of its own). Set follow to same-user or on, let LD_PRELOAD and the variables SOJOURN_* through, or start it with `sojourn run` there.",
    ),
    text(
        ReasonT::NotLoaded,
        "not-loaded",
        "Its environment names the library, but the dynamic loader has not loaded it: the program makes its own system calls (static, Go) and was not loaded by Sojourn's loader, has rights of its own (set-user-ID, file capabilities), or is for another C library or machine. `sojourn run --strict` before the program says which. A static child that seemed to stay small at its last starts is loaded with --load=on.",
    ),
    text(
        ReasonT::Prohibited,
        "prohibited",
        "Something forbids this program what the library needs: a thread, or a table of descriptors of its own (clone, unshare, close_range). Let the seccomp profile of its container or service allow these calls, or raise its limit of processes (ulimit -u).",
    ),
    text(
        ReasonT::StoodDown,
        "stood-down",
        "The library has given up in this process for good: the program needed the numbers of the library's descriptors, or did what the library cannot follow (clone, pthread_cancel, dlmopen). Raise the limit of open files (ulimit -n) and start it anew; if it stays, --programs leaves it out.",
    ),
    text(
        ReasonT::PeerStays,
        "peer-stays",
        "The other end's program cannot take part; the reason is shown at that end.",
    ),
    text(
        ReasonT::PeerNotHot,
        "peer-not-hot",
        "This end is hot and waits for the other one, whose program runs under Sojourn but has not used it enough, as far as can be seen. To move earlier, lower move_after_calls or move_after_bytes there.",
    ),
    text(
        ReasonT::OtherNetwork,
        "other-network",
        "The other end is on this host, but in another network name space. Run both in one, or start a server in one of them that carries sessions between hosts (sojournd --network), which counts this as one.",
    ),
    text(
        ReasonT::Quota,
        "quota",
        "Its user, or its peer's, has its share of the sessions, offers and descriptors that the server can have: half of what there is at most, and less if others need theirs. More open files for the server (LimitNOFILE) make more of it.",
    ),
    text(
        ReasonT::Firewall,
        "firewall",
        "A rule of the host (nftables, iptables, tc), an IPsec policy, a routing rule by user, an eBPF program of its control group or a security module could say something about its packets, and only the kernel asks them. Root sees its name here, and the server's log has it. Let established connections pass first (ct state established accept), or start the server with --firewall=ignore.",
    ),
    text(
        ReasonT::Route,
        "route",
        "Its packets have another way than before, which the kernel follows better: by another interface, in fragments, or past the packet filter. It moves again while it is hot.",
    ),
    text(
        ReasonT::Named,
        "named",
        "The pipe has a name (a FIFO), by which any program may open one more end of it at any time, and read or write before anybody could be told. It can move once its name is removed.",
    ),
    text(
        ReasonT::ProtocolServer,
        "protocol-server",
        "It is the protocol server's to move (home = server): where sojourn-protocol has a row with its addresses, it is there. Where not, a call of its program sits in the kernel still, or no sojourn-protocol serves its user (a server for everybody, sojournd --system, has none).",
    ),
];

/// Returns the texts of a reason.
#[must_use]
pub fn text_of(reason: ReasonT) -> &'static ReasonText {
    // Reasons are numbered from 0 without gaps, which a test checks.
    ALL.get(reason as usize).unwrap_or(&ALL[0])
}

impl ReasonT {
    /// Returns the short code, which never changes.
    #[must_use]
    pub fn word(self) -> &'static str {
        text_of(self).word
    }

    /// Returns the sentence for people.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        text_of(self).sentence
    }

    /// Returns the reason with that short code.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        ALL.iter().find(|text| text.word == word).map(|text| text.reason)
    }

    /// Returns the reason with that number; `None` for 0 and for a number of none.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        let reason = Self::try_from(i32::try_from(number).ok()?).ok();
        reason.filter(|reason| *reason != Self::None)
    }

    /// Number of reasons; all their numbers are below it.
    pub const COUNT: usize = ALL.len();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_its_own_words() {
        for (number, text) in ALL.iter().enumerate() {
            assert_eq!(text.reason as usize, number);
            assert_eq!(ReasonT::try_from(number as i32), Ok(text.reason));
            assert_eq!(ReasonT::from_word(text.word), Some(text.reason));
            assert!(text.sentence.ends_with('.'), "{}", text.word);
        }
        assert!(ReasonT::try_from(ALL.len() as i32).is_err(), "a reason without words");
        let distinct: HashSet<_> = ALL.iter().map(|text| text.word).collect();
        assert_eq!(distinct.len(), ALL.len());
    }
}
