//! eBPF programs that are attached by link: at an interface's entry and exit, at a hook of
//! netfilter, and where sockets are looked for.
//!
//! Skipped with a message where there are no hosts of the lab, or the kernel has no such links.

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]
#![allow(unsafe_code, reason = "bpf(2)")]

use sojourn_firewall::{Firewall, Interface, Session};
use sojourn_lab::net::{Host, is_possible};
use sojourn_wire::Protocol;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;

fn bpf(command: i32, words: &mut [u32]) -> Option<OwnedFd> {
    // SAFETY: the kernel reads the words, and instructions and text that they point to.
    let made = unsafe {
        libc::syscall(libc::SYS_bpf, command, words.as_mut_ptr(), size_of_val(words)) as i32
    };
    if made < 0 {
        eprintln!("skipped: bpf(2), {command}: {}", std::io::Error::last_os_error());
        return None;
    }
    // SAFETY: the kernel has just made it.
    Some(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Loads `r0 = answer; exit`.
fn load(kind: u32, attach_type: u32, answer: u64) -> Option<OwnedFd> {
    let instructions: [u64; 2] = [0xb7 | answer << 32, 0x95];
    let halves = |address: usize| [address as u64 as u32, (address as u64 >> 32) as u32];
    let [code, code_high] = halves(instructions.as_ptr() as usize);
    let [text, text_high] = halves(c"GPL".as_ptr() as usize);
    // Name and interface stand between.
    let mut words = [kind, 2, code, code_high, text, text_high, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    words[17] = attach_type;
    bpf(LOAD, &mut words)
}

fn session(local: &str, index: u32) -> Session {
    Session {
        protocol: Protocol::Tcp,
        local: local.parse().unwrap(),
        remote: None,
        interface: Some(Interface { index, name: "lo".into() }),
        is_established: true,
    }
}

#[test]
fn programs_at_interfaces_and_hooks_keep_sessions_as_long_as_they_are_there() {
    if !is_possible() {
        return;
    }
    let host = Host::new().unwrap();
    let tried = host.enter(|| {
        let mut firewall = Firewall::new();
        let (v4, v6) = (session("10.0.0.1:1", 1), session("[fd00::1]:1", 1));
        let mut said = |session: &Session| firewall.program_concerning(session);
        // Other programs of this machine may be at hooks.
        if said(&v4).is_some() || said(&v6).is_some() {
            return eprintln!("skipped: there are programs already");
        }
        // `BPF_PROG_TYPE_SCHED_CLS`, `BPF_TCX_INGRESS` and `BPF_TCX_EGRESS`.
        let Some(program) = load(3, 0, u64::from(u32::MAX)) else { return };
        let number = program.as_raw_fd().cast_unsigned();
        for kind in [46, 47] {
            let Some(link) = bpf(LINK_CREATE, &mut [number, 1, kind, 0]) else { return };
            let mut said = |session: &Session| firewall.program_concerning(session);
            assert!(said(&v4).is_some_and(|hook| hook.contains("tcx")), "{kind}");
            assert_eq!(said(&session("10.0.0.1:1", 77)), None, "another interface");
            drop(link);
            assert!(firewall.resurvey(), "the change is noticed");
            assert_eq!(firewall.program_concerning(&v4), None);
            assert!(!firewall.resurvey());
        }
        // `BPF_PROG_TYPE_SK_LOOKUP`, `BPF_SK_LOOKUP`.
        let Some(program) = load(30, 36, 1) else { return };
        let number = program.as_raw_fd().cast_unsigned();
        let space = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let space = space.as_raw_fd().cast_unsigned();
        let Some(link) = bpf(LINK_CREATE, &mut [number, space, 36, 0]) else { return };
        assert!(firewall.resurvey(), "it is noticed");
        assert!(firewall.program_concerning(&v4).is_some_and(|hook| hook.contains("sk_lookup")));
        let with_peer = Session { remote: Some("10.0.0.2:2".parse().unwrap()), ..v4.clone() };
        assert_eq!(firewall.program_concerning(&with_peer), None);
        drop(link);
        assert!(firewall.resurvey());
        assert_eq!(firewall.program_concerning(&v4), None);
        // `BPF_PROG_TYPE_NETFILTER`, `BPF_NETFILTER`, at the hook for local packets.
        let Some(program) = load(32, 45, 1) else { return };
        let number = program.as_raw_fd().cast_unsigned();
        let mut words = [number, 0, 45, 0, 2, 1, 10_u32.wrapping_neg(), 0];
        let Some(link) = bpf(LINK_CREATE, &mut words) else { return };
        assert!(firewall.resurvey(), "it is noticed");
        assert!(firewall.program_concerning(&v4).is_some_and(|hook| hook.contains("netfilter")));
        assert_eq!(firewall.program_concerning(&v6), None);
        drop(link);
        assert!(firewall.resurvey());
        assert_eq!(firewall.program_concerning(&v4), None);
    });
    tried.unwrap();
}
