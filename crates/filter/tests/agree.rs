//! Tests that the oracle and the eBPF programs decide the same about the same frames: sessions'
//! frames of every kind, with tags, options, extension headers and fragments, cut off, and changed
//! at random.
#![cfg(debug_assertions)]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod common;

use common::{Host, Random};
use sojourn_filter::oracle::{Ingress, Oracle, Outgoing, Received};
use sojourn_filter::probe::{Owned, Program};
use sojourn_filter::samples::{MAC, frame, keys};
use sojourn_filter::{AttachError, Filter, Key, NewOwner, Options, OwnerId, Reason, Target};
use sojourn_wire::Protocol;
use sojourn_wire::frame::LinkType;
use std::collections::BTreeMap;

const TC_NEXT: u32 = u32::MAX;
const TC_DROP: u32 = 2;
const TC_REDIRECT: u32 = 7;
const WHOLE: u32 = 0x7fff_ffff;
const XDP_PASS: u32 = 2;
const FRAMES: usize = 20_000;

/// Returns keys like those of the samples, whose local ports are `far` higher.
fn shifted(far: u16) -> Vec<Key> {
    let shift = |key: Key| {
        let mut local = key.local();
        local.set_port(local.port() + far);
        Key::new(key.protocol(), local, key.remote()).unwrap()
    };
    keys().into_iter().map(shift).collect()
}

/// Inserts bytes, and corrects the length field of the IP header.
fn insert(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    bytes.splice(at..at, new.iter().copied());
    let at = if bytes[12] == 8 { 16 } else { 18 };
    let len = u16::from_be_bytes([bytes[at], bytes[at + 1]]).wrapping_add(new.len() as u16);
    bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
}

fn add_ipv4_options(bytes: &mut Vec<u8>, random: &mut Random) {
    let words = random.below(10) + 1;
    insert(bytes, 34, &vec![1; words * 4]);
    bytes[14] = bytes[14].wrapping_add(words as u8);
}

fn add_extensions(bytes: &mut Vec<u8>, random: &mut Random) {
    const KINDS: [u8; 6] = [0, 60, 60, 43, 44, 51];
    for _ in 0..random.below(10) + 1 {
        let kind = KINDS[random.below(KINDS.len())];
        let units = if kind == 44 { 0 } else { random.below(3) as u8 };
        let mut header = vec![0; (usize::from(units) + 1) * 8];
        (header[0], header[1]) = (bytes[20], units);
        if kind == 44 {
            header[3] = random.below(10) as u8;
        }
        insert(bytes, 54, &header);
        bytes[20] = kind;
    }
}

/// Makes one change as the network, or an attacker, could make it.
fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    let is_ipv4 = bytes.len() > 34 && bytes[12..14] == [8, 0];
    let is_ipv6 = bytes.len() > 54 && bytes[12..14] == [0x86, 0xdd];
    match random.below(9) {
        0 if is_ipv4 => add_ipv4_options(bytes, random),
        0 if is_ipv6 => add_extensions(bytes, random),
        1 if is_ipv4 => bytes[20 + random.below(2)] = [0x20, 0x40, 1, 0][random.below(4)],
        2 if is_ipv4 || is_ipv6 => {
            let padding = vec![0; [1, 4, 12, 30, 1400, 1450][random.below(6)]];
            let end = bytes.len();
            insert(bytes, end, &padding);
        }
        3 => {
            let kind = [[0x81, 0], [0x88, 0xa8]][random.below(2)];
            let tag = [0x20 * random.below(8) as u8, random.below(2) as u8];
            bytes.splice(12..12, [kind, tag].concat());
        }
        4 => bytes.truncate(14.max(random.below(bytes.len() + 1))),
        5 => bytes.extend(vec![0; random.below(8)]),
        6 | 7 => {
            let at = random.below(bytes.len().min(80));
            bytes[at] = random.next() as u8;
        }
        _ => {
            let at = random.below(bytes.len().min(80));
            bytes[at] ^= 1 << random.below(8);
        }
    }
}

/// Returns true if the kernel's test run accepts the frame: if its type says IP, it needs a whole
/// IP header (`bpf_prog_test_run_skb`).
fn is_run(bytes: &[u8]) -> bool {
    match bytes[12..14] {
        [8, 0] => bytes.len() >= 34,
        [0x86, 0xdd] => bytes.len() >= 54,
        _ => bytes.len() > 14,
    }
}

fn random_frame(keys: &[Key], random: &mut Random, sent: bool) -> Vec<u8> {
    loop {
        let mut bytes = frame(&keys[random.below(keys.len())], sent);
        for _ in 0..random.below(4) {
            change(&mut bytes, random);
        }
        if is_run(&bytes) {
            return bytes;
        }
    }
}

/// A filter with three owners, each with a session of every kind: two with packet sockets, one with
/// a port.
struct Subject {
    filter: Filter,
    oracle: Oracle,
    owners: BTreeMap<OwnerId, Owned>,
    port: u32,
    keys: Vec<Key>,
    sockets: Vec<rustix::fd::OwnedFd>,
}

impl Subject {
    fn new(interface: &str) -> Option<Self> {
        let mut filter = match Filter::attach(interface, Options::default()) {
            Err(AttachError::Unavailable { package }) => {
                eprintln!("skipped: built without {package}");
                return None;
            }
            filter => filter.unwrap(),
        };
        let NewOwner { owner: one, socket: first } = filter.add_owner(|_| Ok(())).unwrap();
        let NewOwner { owner: two, socket: second } = filter.add_owner(|_| Ok(())).unwrap();
        // Without AF_XDP sockets: the XDP program passes all frames of this owner, so its packet
        // socket gets them.
        filter.set_xsks(two, &[]).unwrap();
        let port = filter.open_port(false).unwrap();
        let mut all = shifted(3);
        for (owner, far) in [(one, 0), (two, 10), (port.owner, 20)] {
            for key in shifted(far) {
                filter.add_flow(key, owner).unwrap();
                all.push(key);
            }
        }
        let owners = [one, two].map(|owner| (owner, filter.probe_owned(owner).unwrap())).into();
        let oracle = Oracle {
            link: filter.interface().link,
            mac: filter.interface().mac,
            mtu: filter.interface().mtu,
            rules: filter.flows().map(|flow| (flow.key, filter.rule(&flow.key).unwrap())).collect(),
        };
        let sockets = vec![first, second, port.descriptor];
        Some(Self { filter, oracle, owners, port: port.interface, keys: all, sockets })
    }

    fn check_received(&self, bytes: &[u8], oracles: &[u8]) {
        let received = Received { frame: oracles, tag: None };
        let index = self.filter.interface().index;
        let reader = self.oracle.reader(&received);
        let expected = reader.map_or(0, |owner| self.filter.probe_index(owner).unwrap());
        let selected = self.filter.probe(Program::Select, bytes, index, 0).unwrap();
        assert_eq!(selected, expected, "select: {bytes:02x?}");
        // For a real frame one of them runs. The reader's runs last here, so that the note for the
        // program on the interface is the same.
        let mut owners: Vec<_> = self.owners.iter().collect();
        owners.sort_by_key(|(owner, _)| reader == Some(**owner));
        for (owner, program) in owners {
            let passed = program.probe(bytes, index).unwrap();
            let expected = if reader == Some(*owner) { WHOLE } else { 0 };
            assert_eq!(passed, expected, "owner {owner:?}: {bytes:02x?}");
        }
    }

    fn check_ingress(&self, bytes: &[u8], oracles: &[u8]) {
        let index = self.filter.interface().index;
        let expected = match self.oracle.ingress(&Received { frame: oracles, tag: None }) {
            Ingress::Pass => TC_NEXT,
            Ingress::Drop(_) => TC_DROP,
            Ingress::Port(_) => TC_REDIRECT,
        };
        let action = self.filter.probe(Program::Ingress, bytes, index, 0).unwrap();
        assert_eq!(action, expected, "ingress: {bytes:02x?}");
    }

    fn check_sent(&self, bytes: &[u8], gso_size: u32) -> Reason {
        let outgoing = Outgoing { frame: bytes, gso_size, ..Outgoing::default() };
        let expected = self.oracle.outgoing(self.port, &outgoing);
        let before = self.filter.counts().unwrap();
        let action = self.filter.probe(Program::PortOut, bytes, self.port, gso_size).unwrap();
        let after = self.filter.counts().unwrap();
        assert_eq!(action, TC_DROP, "no such frame leaves its checksum to the device");
        let counted = Reason::ALL.into_iter().find(|why| before.of(*why) != after.of(*why));
        assert_eq!(counted, Some(expected), "gso {gso_size}: {bytes:02x?}");
        expected
    }
}

/// Ties this thread to its processor, since the programs pass data to each other in maps that have
/// a value for each processor.
fn stay_on_this_processor() {
    let mut one = rustix::thread::CpuSet::new();
    one.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &one).unwrap();
}

/// Checks that every answer occurred: a generator of only one kind of frame would test nothing.
fn all_met<T: std::fmt::Debug + Ord>(met: &BTreeMap<T, usize>, kinds: usize) {
    assert_eq!(met.len(), kinds, "{met:?}");
    assert!(met.values().all(|times| *times >= 20), "{met:?}");
}

#[test]
fn received_frames() {
    let Some(host) = Host::new() else { return };
    host.ip("link add eth0 address 02:00:00:00:00:01 type veth peer name far");
    host.run(|| {
        let Some(subject) = Subject::new("eth0") else { return };
        assert_eq!(subject.oracle.mac, MAC);
        stay_on_this_processor();
        let (mut random, mut met) = (Random(0x5eed), BTreeMap::new());
        for _ in 0..FRAMES {
            let bytes = random_frame(&subject.keys, &mut random, false);
            subject.check_received(&bytes, &bytes);
            subject.check_ingress(&bytes, &bytes);
            let ingress = subject.oracle.ingress(&Received { frame: &bytes, tag: None });
            *met.entry(format!("{ingress:?}")).or_insert(0) += 1;
        }
        all_met(&met, 4);
        drop(subject.sockets);
    });
}

#[test]
fn a_segment_that_came_before_its_rule_reaches_the_kernel() {
    let Some(host) = Host::new() else { return };
    host.ip("link add eth0 address 02:00:00:00:00:01 type veth peer name far");
    host.run(|| {
        let Some(mut subject) = Subject::new("eth0") else { return };
        stay_on_this_processor();
        let (index, owner) =
            (subject.filter.interface().index, *subject.owners.keys().next().unwrap());
        let is_tcp = |key: &Key| key.protocol() == Protocol::Tcp;
        let keys: Vec<Key> = shifted(3).into_iter().filter(is_tcp).collect();
        assert!(!keys.is_empty());
        for key in keys {
            let bytes = frame(&key, false);
            let probe = |subject: &Subject, program| {
                subject.filter.probe(program, &bytes, index, 0).unwrap()
            };
            assert_eq!(probe(&subject, Program::Select), 0, "there is no rule yet");
            subject.filter.add_flow(key, owner).unwrap();
            assert_eq!(probe(&subject, Program::Ingress), TC_NEXT, "nobody has seen it");
            assert_ne!(probe(&subject, Program::Select), 0);
            assert_eq!(probe(&subject, Program::Ingress), TC_DROP, "one that its owner sees");
            subject.filter.settle_flow(&key).unwrap();
            subject.filter.release_flow(&key).unwrap();
            assert_eq!(probe(&subject, Program::Select), 0);
            subject.filter.add_flow(key, owner).unwrap();
            subject.filter.settle_flow(&key).unwrap();
            assert_eq!(probe(&subject, Program::Ingress), TC_DROP, "the socket is deaf by now");
        }
    });
}

#[test]
fn received_packets_of_a_link_without_header() {
    let Some(host) = Host::new() else { return };
    host.ip("tuntap add mode tun name tun0");
    host.run(|| {
        let Some(subject) = Subject::new("tun0") else { return };
        assert_eq!(subject.oracle.link, LinkType::Raw);
        stay_on_this_processor();
        let mut random = Random(0x1234);
        for _ in 0..FRAMES {
            let mut bytes = frame(&subject.keys[random.below(subject.keys.len())], false);
            // A test run takes frames with an Ethernet header only, so the packet keeps a header
            // that carries no further information.
            bytes[..6].fill(0);
            let at = 14 + random.below(bytes.len() - 14);
            if at != 14 && random.below(2) == 0 {
                bytes[at] = random.next() as u8;
            }
            subject.check_received(&bytes, &bytes[14..]);
            subject.check_ingress(&bytes, &bytes[14..]);
        }
    });
}

#[test]
fn sent_frames() {
    let Some(host) = Host::new() else { return };
    host.ip("link add eth0 address 02:00:00:00:00:01 type veth peer name far");
    host.run(|| {
        let Some(subject) = Subject::new("eth0") else { return };
        let (mut random, mut met) = (Random(0xfeed), BTreeMap::new());
        for _ in 0..FRAMES {
            let bytes = random_frame(&subject.keys, &mut random, true);
            let gso_size = [0, 0, 0, 100, 1446, 1448, 1460, 1500][random.below(8)];
            *met.entry(subject.check_sent(&bytes, gso_size)).or_insert(0) += 1;
        }
        // All reasons but those of frames that leave their checksum to the device.
        all_met(&met, Reason::ALL[Reason::NotIp as usize..].len());
    });
}

#[test]
fn frames_before_the_stack() {
    let Some(host) = Host::new() else { return };
    host.ip("link add eth0 address 02:00:00:00:00:01 type veth peer name far");
    host.run(|| {
        let Some(subject) = Subject::new("eth0") else { return };
        let (mut random, mut met) = (Random(0xabc), 0);
        for _ in 0..FRAMES {
            let bytes = random_frame(&subject.keys, &mut random, false);
            let action = subject.filter.probe(Program::Xdp, &bytes, 0, 0).unwrap();
            assert_eq!(action, XDP_PASS, "nobody has a socket for it");
            met += usize::from(subject.oracle.xdp(&bytes).is_some());
        }
        assert!(met > 1000, "{met}");
        let is_xsk =
            |key: &Key| subject.oracle.rules.get(key).is_some_and(|r| r.target == Target::Xsk);
        assert!(subject.keys.iter().any(is_xsk));
    });
}
