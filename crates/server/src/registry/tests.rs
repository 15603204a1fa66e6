//! Tests of the registry: each rule of docs/understand/streams.md that it decides.

mod carrier;
mod limits;

use super::*;
use crate::holders::Object;
use rustix::fd::OwnedFd;
use rustix::process::Uid;
use sojourn_session::{HomeT, Inode, ProcessId};
use sojourn_wire::SocketCookie;
use std::sync::{LazyLock, Mutex};

/// Something that is a descriptor; which one does not matter here.
static SOMETHING: LazyLock<Descriptor> =
    LazyLock::new(|| OwnedFd::from(std::fs::File::open("/dev/null").unwrap()).into());

/// Returns out as much as it is told to.
#[derive(Debug)]
pub(super) struct Fake {
    pub(super) regions: u32,
    pub(super) inboxes: u32,
    pub(super) made: Mutex<u32>,
}

impl Default for Fake {
    fn default() -> Self {
        Self { regions: u32::MAX, inboxes: u32::MAX, made: Mutex::new(0) }
    }
}

fn take(left: &mut u32) -> Option<Descriptor> {
    *left = left.checked_sub(1)?;
    Some(SOMETHING.clone())
}

impl SharedMemory for Fake {
    fn region(&mut self, ring_bytes: [u32; 2]) -> Option<Descriptor> {
        assert!(sojourn_stream::Layout::new(ring_bytes).is_some(), "{ring_bytes:?}");
        take(&mut self.regions)
    }

    fn inbox(&mut self, _: bool) -> Option<InboxDescriptors> {
        *self.made.lock().unwrap() += 1;
        let three = |one: Descriptor| [one.clone(), one.clone(), one];
        let peer = take(&mut self.inboxes).map(three)?;
        Some(InboxDescriptors { owner: peer.clone(), peer })
    }

    fn totals(&self, region: &Descriptor) -> [u64; 2] {
        if region.is_none() { [0; 2] } else { [1000, 10] }
    }

    fn counts(&self, region: &Descriptor) -> sojourn_pump::Counts {
        let [sent_bytes, received_bytes] = self.totals(region);
        let (sent, received, dropped) = (sent_bytes / 10, received_bytes / 10, 2);
        sojourn_pump::Counts { sent_bytes, sent, received_bytes, received, dropped }
    }

    fn figures(&self, region: &Descriptor) -> Option<sojourn_pump::figures::Figures> {
        region.as_fd().map(|_| sojourn_pump::figures::Figures { cwnd: 10, ..Default::default() })
    }

    fn times(&self, region: &Descriptor, until_s: u32) -> Option<sojourn_stream::LayerTimes> {
        region
            .as_fd()
            .map(|_| sojourn_stream::LayerTimes { sent: u64::from(until_s), ..Default::default() })
    }
}

pub(super) fn client(index: u32) -> ClientId {
    ClientId { index, generation: 1 }
}

pub(super) fn info(pid: u32, uid: u32) -> ProcessInfo {
    let (process, doorbell) = (Descriptor::NONE, Descriptor::NONE);
    let (pid, uid, program) = (ProcessId(pid), Uid::from_raw(uid), format!("p{pid}"));
    ProcessInfo { pid, uid, program, process, doorbell }
}

pub(super) fn limits() -> Limits {
    let (all_ends, descriptors, own_user) = (1000, 10_000, Uid::from_raw(1000));
    Limits {
        ends: 64,
        all_ends,
        descriptors,
        watches: 1000,
        carried: 1000,
        own_user,
        slots: 4,
        serves_everybody: false,
        joins_within: false,
    }
}

pub(super) fn socket(own: u64, peer: u64) -> Identity {
    let name = |n| format!("socket:[{n}]");
    let key = Key::Socket { own: SocketCookie(own), peer: SocketCookie(peer) };
    let object = Object::Socket { inode: Inode(own) };
    let (kind, holds) = (KindT::Unix, [64 << 10, 0]);
    Identity { key, kind, from: name(own), to: name(peer), holds, object, pin: None }
}

pub(super) fn pipe(inode: u64, writes: bool) -> Identity {
    let key = Key::Pipe { object: inode, writes };
    let name = format!("pipe:[{inode}]");
    let object = Object::Pipe { inode: Inode(inode), writes };
    let (kind, holds) = (KindT::Pipe, [64 << 10, 0]);
    Identity { key, kind, from: name.clone(), to: name, holds, object, pin: None }
}

pub(super) fn end(process: u32, local: u64) -> EndId {
    EndId { process: client(process), local: LocalNumber(local) }
}

pub(super) fn args(local: u64) -> OfferArguments {
    OfferArguments {
        local: LocalNumber(local),
        set: 0,
        ring_bytes: 64 << 10,
        is_sole: true,
        home: HomeT::Library,
        inode: Inode(local),
    }
}

/// A registry with processes 1, 2 and 3 of user 1000 and 4 of user 1001, whose clients have the
/// same numbers.
struct World {
    registry: Registry,
    memory: Fake,
}

impl World {
    fn new(limits: Limits) -> Self {
        let mut registry = Registry::new(limits, 7);
        for pid in 1..=4 {
            registry.hello(client(pid), info(pid, 1000 + pid / 4)).unwrap();
        }
        Self { registry, memory: Fake::default() }
    }

    fn offer(&mut self, process: u32, identity: Identity, arguments: OfferArguments) -> Offered {
        self.registry.offer(client(process), Ok(identity), arguments, 5, &mut self.memory).unwrap()
    }

    /// Answers the counts of ends whose libraries are not believed.
    fn counted(&mut self, verdict: Result<(), ReasonT>) {
        for counted in self.registry.take_counts() {
            self.registry.counted(counted, verdict, 5, &mut self.memory);
        }
    }

    fn left(&mut self, process: u32, local: u64) {
        self.registry.left(end(process, local), ReasonT::Operation, 30, 6, &self.memory);
    }

    fn next(&mut self, process: u32) -> Option<Delivery> {
        self.registry.next(client(process)).unwrap()
    }

    fn join(&mut self, process: u32) -> JoinOut {
        match self.next(process) {
            Some(Delivery::Join(join)) => *join,
            other => panic!("{other:?}"),
        }
    }

    /// Processes 1 and 2 joined by their numbers 10 and 20, and both know it.
    fn joined() -> (Self, StreamNumber) {
        let mut world = Self::new(limits());
        assert_eq!(world.offer(1, socket(5, 6), args(10)), Offered::Waits);
        assert_eq!(world.offer(2, socket(6, 5), args(20)), Offered::Decided);
        let stream = world.join(1).stream;
        assert_eq!(world.join(2).stream, stream);
        (world, stream)
    }

    fn refused(&mut self, process: u32) -> Option<(u64, ReasonT)> {
        match self.next(process) {
            Some(Delivery::Refused { local, reason }) => Some((local.0, reason)),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    fn recalled(&mut self, process: u32) -> Option<(u64, ReasonT)> {
        match self.next(process) {
            Some(Delivery::Recall { local, reason }) => Some((local.0, reason)),
            None => None,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn mirror_images_are_joined_and_each_side_is_told_its_part() {
    let mut world = World::new(limits());
    let small = OfferArguments { ring_bytes: 9000, ..args(10) };
    assert_eq!(world.offer(1, socket(5, 6), small), Offered::Waits);
    assert_eq!(world.offer(3, socket(7, 6), args(30)), Offered::Waits, "not the mirror image");
    assert_eq!(world.registry.take_rings(), []);
    assert_eq!(world.offer(2, socket(6, 5), args(20)), Offered::Decided);
    assert_eq!(world.registry.take_rings(), [client(1), client(2)]);
    let (first, second) = (world.join(1), world.join(2));
    assert_eq!((first.local.0, first.side, first.peer_pid.0), (10, 0, 2));
    assert_eq!((second.local.0, second.side, second.peer_pid.0), (20, 1, 1));
    assert_eq!(first.stream, second.stream);
    assert_eq!(
        first.ring_bytes,
        [128 << 10; 2],
        "the smaller wish, a power of two, and what the kernel held"
    );
    assert_eq!((first.own.id, first.own.slot), (second.peer.id, second.peer.slot));
    assert_eq!((second.own.id, second.own.slot), (first.peer.id, first.peer.slot));
    assert_ne!(first.own.id, second.own.id);
    assert_eq!(world.next(1), None);
    assert_eq!(world.next(3), None);
}

#[test]
fn the_writer_of_a_pipe_is_side_0_whoever_comes_first() {
    for writer_first in [false, true] {
        let mut world = World::new(limits());
        world.offer(1, pipe(9, writer_first), args(1));
        world.offer(2, pipe(9, !writer_first), args(2));
        let join = world.join(1);
        assert_eq!(join.side, u8::from(!writer_first));
        assert_eq!((join.kind, join.ring_bytes), (KindT::Pipe, [64 << 10, 0]));
    }
}

#[test]
fn a_ring_is_as_large_as_what_the_kernel_held_of_both_ends() {
    let mut world = World::new(limits());
    world.offer(1, Identity { holds: [1 << 20, 20_000], ..socket(5, 6) }, args(1));
    world.offer(2, socket(6, 5), args(2));
    assert_eq!(world.join(1).ring_bytes, [2 << 20, 256 << 10]);
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let mut world = World::new(limits());
    world.offer(1, socket(5, 6), args(1));
    world.offer(1, socket(6, 5), args(2));
    assert_eq!(world.refused(1), Some((1, ReasonT::SameProcess)));
    assert_eq!(world.refused(1), Some((2, ReasonT::SameProcess)));
    world.offer(1, socket(5, 6), args(3));
    world.offer(4, socket(6, 5), args(4));
    assert_eq!(world.refused(1), Some((3, ReasonT::OtherUser)));
    assert_eq!(world.refused(4), Some((4, ReasonT::OtherUser)));
    let seen = Err(ReasonT::State);
    world.registry.offer(client(1), seen, args(5), 0, &mut world.memory).unwrap();
    assert_eq!(world.refused(1), Some((5, ReasonT::State)));
    assert_eq!(world.registry.counters().refusals, 5);
    let page = world.registry.list(Uid::ROOT, 0, 9, &world.memory);
    assert_eq!((page.rows, page.last), (vec![], 0));
}

#[test]
fn two_ends_of_one_process_are_joined_where_that_is_wanted_and_know_each_inbox_in_both_roles() {
    let mut world = World::new(Limits { joins_within: true, ..limits() });
    world.offer(1, socket(5, 6), args(1));
    world.offer(1, socket(6, 5), args(2));
    let (one, other) = (world.join(1), world.join(1));
    assert_eq!((one.stream, one.own.id), (other.stream, other.peer.id));
    let brought = |inbox: &InboxOut| inbox.descriptors.iter().all(|one| !one.is_none());
    let roles = [&one.own, &one.peer, &other.own, &other.peer].map(brought);
    assert_eq!(roles, [true, true, false, false], "once in each role: {one:?} {other:?}");
    world.left(1, 1);
    world.offer(1, socket(7, 8), args(3));
    world.offer(1, socket(8, 7), args(4));
    let next = [world.next(1), world.next(1), world.next(1)];
    let joins = next.iter().filter_map(|one| match one {
        Some(Delivery::Join(join)) => Some([brought(&join.own), brought(&join.peer)]),
        _ => None,
    });
    // The session that was left named it in both roles; the one that was not still does.
    assert_eq!(joins.collect::<Vec<_>>(), [[false, false], [false, false]]);
}

#[test]
fn roots_server_joins_users_and_keeps_their_inboxes_apart() {
    let mut world = World::new(Limits { serves_everybody: true, ..limits() });
    world.offer(1, socket(5, 6), args(1));
    world.offer(2, socket(6, 5), args(2));
    world.offer(1, socket(7, 8), args(3));
    assert_eq!(world.offer(4, socket(8, 7), args(4)), Offered::Waits, "both are counted");
    world.counted(Ok(()));
    let (of_own_user, of_other) = (world.join(1).own, world.join(1).own);
    assert_ne!(of_own_user.id, of_other.id);
}

#[test]
fn between_users_nobody_is_believed_but_root() {
    let mut world = World::new(Limits { serves_everybody: true, ..limits() });
    world.registry.hello(client(5), info(5, 0)).unwrap();
    world.offer(5, socket(5, 6), args(1));
    assert_eq!(world.offer(4, socket(6, 5), args(2)), Offered::Waits);
    assert_eq!(world.registry.to_count.len(), 1, "root's is not counted");
    world.counted(Err(ReasonT::SeveralHolders));
    assert_eq!(world.refused(4), Some((2, ReasonT::SeveralHolders)));
    assert_eq!(world.next(5), None, "it waits for another");
}

#[test]
fn a_second_holder_ends_offer_and_stream() {
    let mut world = World::new(limits());
    world.offer(1, socket(5, 6), args(1));
    assert_eq!(world.offer(3, socket(5, 6), args(3)), Offered::Decided);
    assert_eq!(world.refused(1), Some((1, ReasonT::SeveralHolders)));
    assert_eq!(world.refused(3), Some((3, ReasonT::SeveralHolders)));
    assert_eq!(
        world.offer(2, socket(6, 5), args(2)),
        Offered::Waits,
        "nobody is left to pair with"
    );

    let (mut world, _) = World::joined();
    world.offer(3, socket(5, 6), args(3));
    assert_eq!(world.refused(3), Some((3, ReasonT::SeveralHolders)));
    assert_eq!(world.recalled(1), Some((10, ReasonT::SeveralHolders)));
    assert_eq!(world.recalled(2), Some((20, ReasonT::SeveralHolders)));
    world.offer(3, socket(6, 5), args(4));
    assert_eq!(world.refused(3), Some((4, ReasonT::SeveralHolders)));
    assert_eq!(world.next(1), None, "recalled once");
}

#[test]
fn a_pipe_that_is_opened_once_more_does_not_move_and_comes_home() {
    let mut world = World::new(limits());
    world.offer(1, pipe(7, true), args(1));
    world.registry.opened(8, 5);
    assert_eq!(world.refused(1), None, "another pipe");
    world.registry.opened(7, 5);
    assert_eq!(world.refused(1), Some((1, ReasonT::SeveralHolders)));
    for is_any in [false, true] {
        let local = 2 + u64::from(is_any);
        world.offer(1, pipe(7, true), args(local));
        world.offer(2, pipe(7, false), args(local));
        world.join(1);
        world.join(2);
        match is_any {
            true => world.registry.any_opened(5),
            false => world.registry.opened(7, 5),
        }
        for process in [1, 2] {
            let told = world.recalled(process);
            assert_eq!(told, Some((local, ReasonT::SeveralHolders)));
            assert_eq!(world.recalled(process), None, "once");
        }
        world.left(1, local);
        world.left(2, local);
        world.recalled(2);
    }
}

#[test]
fn the_same_process_may_not_offer_an_end_twice() {
    let mut world = World::new(limits());
    world.offer(1, socket(5, 6), args(1));
    world.offer(1, socket(5, 6), args(2));
    assert_eq!(world.refused(1), Some((2, ReasonT::SeveralHolders)));
    assert_eq!(world.offer(2, socket(6, 5), args(3)), Offered::Decided, "the first still stands");
    let again = world.registry.offer(client(1), Ok(socket(8, 9)), args(1), 0, &mut world.memory);
    assert_eq!(again, Err(CallError::Argument));
}

#[test]
fn refusals_are_remembered_until_the_end_is_offered_again() {
    let mut world = World::new(limits());
    let told = |world: &World, uid| -> Vec<_> {
        let mut rows = world.registry.refused(uid, 0, 10).rows;
        rows.sort_by_key(|row| (row.pid, core::cmp::Reverse(row.age_ms), row.inode));
        rows.into_iter().map(|row| (row.pid, row.inode, row.reason, row.age_ms)).collect()
    };
    let World { registry, memory } = &mut world;
    for (process, local) in [(1, 31), (4, 32)] {
        let seen = Err(ReasonT::Option);
        registry.offer(client(process), seen, args(local), 5, memory).unwrap();
    }
    let of_one = (1, 31, ReasonT::Option, 5);
    assert_eq!(told(&world, Uid::from_raw(1000)), [of_one], "of one's own processes");
    assert_eq!(told(&world, Uid::ROOT), [of_one, (4, 32, ReasonT::Option, 5)]);
    // Refused after it had waited, for another offers it too.
    world.offer(1, socket(5, 6), args(33));
    world.offer(2, socket(5, 6), args(34));
    assert_eq!(told(&world, Uid::from_raw(1000)).len(), 3);
    assert_eq!(told(&world, Uid::from_raw(1000))[1], (1, 33, ReasonT::SeveralHolders, 5));
    world.offer(1, socket(7, 8), OfferArguments { inode: Inode(31), ..args(35) });
    assert!(!told(&world, Uid::ROOT).contains(&of_one), "offered again");
    // Home for a reason; and closed.
    world.left(1, 35);
    assert!(told(&world, Uid::ROOT).contains(&(1, 31, ReasonT::Operation, 4)), "went home");
    world.offer(1, socket(7, 8), OfferArguments { inode: Inode(31), ..args(36) });
    world.registry.left(end(1, 36), ReasonT::Closed, 0, 6, &world.memory);
    assert!(told(&world, Uid::ROOT).iter().all(|row| row.1 != 31), "closed");
    let World { registry, memory } = &mut world;
    for local in 100..400 {
        registry.offer(client(3), Err(ReasonT::Kind), args(local), 5, memory).unwrap();
    }
    registry
        .offer(
            client(3),
            Err(ReasonT::Kind),
            OfferArguments { inode: Inode(0), ..args(99) },
            5,
            memory,
        )
        .unwrap();
    let of_three = told(&world, Uid::ROOT).into_iter().filter(|row| row.0 == 3);
    assert_eq!(of_three.map(|row| row.1).collect::<Vec<_>>(), (100..400).collect::<Vec<_>>());
    world.registry.gone(client(3), 7, &world.memory);
    assert!(told(&world, Uid::ROOT).iter().all(|row| row.0 != 3));
}

#[test]
fn an_offer_waits_while_its_holders_are_counted() {
    let mut world = World::new(limits());
    let shared = OfferArguments { is_sole: false, ..args(1) };
    let Offered::Count(number) = world.offer(1, socket(5, 6), shared) else {
        panic!("not counted")
    };
    assert_eq!(world.offer(2, socket(6, 5), args(2)), Offered::Waits);
    let World { registry, memory } = &mut world;
    registry.counted(ToCount { end: end(1, 1), number: number + 1 }, Ok(()), 0, memory);
    assert_eq!(world.next(1), None, "not the count that was asked for");
    let World { registry, memory } = &mut world;
    registry.counted(ToCount { end: end(1, 1), number }, Ok(()), 0, memory);
    assert_eq!(world.join(1).stream, world.join(2).stream);

    let shared = OfferArguments { is_sole: false, ..args(7) };
    let Offered::Count(number) = world.offer(1, socket(50, 60), shared) else {
        panic!("not counted")
    };
    let World { registry, memory } = &mut world;
    registry.counted(ToCount { end: end(1, 7), number }, Err(ReasonT::HoldersUnknown), 0, memory);
    assert_eq!(world.refused(1), Some((7, ReasonT::HoldersUnknown)));
}

#[test]
fn an_offer_taken_back_is_forgotten() {
    let mut world = World::new(limits());
    world.offer(1, socket(5, 6), args(1));
    world.left(1, 1);
    world.left(1, 99);
    assert_eq!(world.offer(2, socket(6, 5), args(2)), Offered::Waits);
    assert_eq!(world.next(1), None);
    assert_eq!(world.registry.counters().returns, [0; ReasonT::COUNT]);
}

#[test]
fn one_side_leaves_and_the_other_is_told() {
    let (mut world, _) = World::joined();
    world.left(1, 10);
    assert_eq!(world.recalled(2), Some((20, ReasonT::PeerLeft)));
    assert_eq!(world.registry.stream_count(), 1, "until the other has left too");
    assert_eq!(world.offer(1, socket(5, 6), args(11)), Offered::Waits, "the other is not home yet");
    world.left(2, 20);
    assert_eq!(world.registry.stream_count(), 0);
    assert_eq!(world.registry.counters().bytes, 1010);
    assert_eq!(world.offer(2, socket(6, 5), args(21)), Offered::Decided);
}

#[test]
fn a_join_that_nobody_has_seen_is_withdrawn() {
    let mut world = World::new(limits());
    world.offer(1, socket(5, 6), args(1));
    world.offer(2, socket(6, 5), args(2));
    world.left(1, 1);
    assert_eq!(world.next(1), None, "the join is stale");
    assert_eq!(world.refused(2), Some((2, ReasonT::PeerLeft)));
    assert_eq!(world.next(2), None);
    assert_eq!(world.registry.stream_count(), 0);
    assert!(world.registry.inboxes.is_empty());
}

#[test]
fn what_a_dead_process_had_is_gone() {
    let (mut world, _) = World::joined();
    world.offer(1, socket(50, 60), args(11));
    world.registry.gone(client(1), 6, &world.memory);
    assert_eq!(world.registry.next(client(1)), Err(CallError::NoHello));
    assert_eq!(world.recalled(2), Some((20, ReasonT::PeerDied)));
    assert_eq!(world.offer(2, socket(60, 50), args(21)), Offered::Waits);
    world.left(2, 20);
    world.left(2, 21);
    assert!(world.registry.inboxes.is_empty() && world.registry.keys.is_empty());
}

#[test]
fn users_see_and_recall_their_own() {
    let (mut world, stream) = World::joined();
    world.offer(4, socket(50, 60), args(40));
    assert_eq!(world.registry.list(Uid::ROOT, 0, 9, &world.memory).rows.len(), 3);
    let rows = world.registry.list(Uid::from_raw(1001), 0, 9, &world.memory).rows;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].home, rows[0].reason, rows[0].age_ms), (HomeT::Kernel, ReasonT::NoPeer, 4));
    let rows = world.registry.list(Uid::from_raw(1000), 0, 9, &world.memory).rows;
    assert!(rows[0].has_counts);
    assert_eq!((rows[0].sent, rows[0].received), (1000, 10));
    assert_eq!((rows[1].sent, rows[1].received), (10, 1000));
    assert_eq!(rows[0].from.as_deref(), rows[1].to.as_deref());
    assert!(!world.registry.recall_for(stream, Uid::from_raw(1001), 9));
    assert!(!world.registry.recall_for(StreamNumber(stream.0 + 1), Uid::ROOT, 9));
    assert!(world.registry.recall_for(stream, Uid::ROOT, 9));
    assert_eq!(world.recalled(1), Some((10, ReasonT::User)));
}
