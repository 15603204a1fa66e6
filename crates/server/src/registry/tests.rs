//! Tests of the registry: each rule of docs/understand/streams.md that it decides.

use super::*;
use rustix::fd::OwnedFd;
use sojourn_session::HomeT;
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

    fn inbox(&mut self) -> Option<[Descriptor; 3]> {
        *self.made.lock().unwrap() += 1;
        take(&mut self.inboxes).map(|one| [one.clone(), one.clone(), one])
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
    ProcessInfo { pid, uid, program: format!("p{pid}"), process, doorbell }
}

pub(super) fn limits() -> Limits {
    let (all_ends, descriptors, own_user) = (1000, 10_000, 1000);
    Limits {
        ends: 64,
        all_ends,
        descriptors,
        own_user,
        slots: 4,
        serves_everybody: false,
        joins_within: false,
    }
}

pub(super) fn socket(own: u64, peer: u64) -> Identity {
    let name = |n| format!("socket:[{n}]");
    let key = Key::Socket { own, peer };
    let object = Object::Socket { inode: own };
    let (kind, holds) = (KindT::Unix, [64 << 10, 0]);
    Identity { key, kind, from: name(own), to: name(peer), holds, object, pin: None }
}

pub(super) fn pipe(inode: u64, writes: bool) -> Identity {
    let key = Key::Pipe { object: inode, writes };
    let name = format!("pipe:[{inode}]");
    let object = Object::Pipe { inode, writes };
    let (kind, holds) = (KindT::Pipe, [64 << 10, 0]);
    Identity { key, kind, from: name.clone(), to: name, holds, object, pin: None }
}

pub(super) fn args(local: u64) -> OfferArguments {
    OfferArguments {
        local,
        set: 0,
        ring_bytes: 64 << 10,
        is_sole: true,
        home: HomeT::Library,
        inode: local,
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
        for (process, local, number) in self.registry.take_counts() {
            self.registry.counted(process, local, number, verdict, 5, &mut self.memory);
        }
    }

    fn left(&mut self, process: u32, local: u64) {
        self.registry.left(client(process), local, ReasonT::Operation, 30, 6, &self.memory);
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
    fn joined() -> (Self, u64) {
        let mut world = Self::new(limits());
        assert_eq!(world.offer(1, socket(5, 6), args(10)), Offered::Waits);
        assert_eq!(world.offer(2, socket(6, 5), args(20)), Offered::Decided);
        let stream = world.join(1).stream;
        assert_eq!(world.join(2).stream, stream);
        (world, stream)
    }

    fn refused(&mut self, process: u32) -> Option<(u64, ReasonT)> {
        match self.next(process) {
            Some(Delivery::Refused { local, reason }) => Some((local, reason)),
            None => None,
            other => panic!("{other:?}"),
        }
    }

    fn recalled(&mut self, process: u32) -> Option<(u64, ReasonT)> {
        match self.next(process) {
            Some(Delivery::Recall { local, reason }) => Some((local, reason)),
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
    assert_eq!((first.local, first.side, first.peer_pid), (10, 0, 2));
    assert_eq!((second.local, second.side, second.peer_pid), (20, 1, 1));
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
    assert_eq!(world.registry.counters().0.refusals, 5);
    assert_eq!(world.registry.list((0, 0), 9, &world.memory), (vec![], 0));
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
        let (mut rows, _) = world.registry.refused((uid, 0), 10);
        rows.sort_by_key(|row| (row.pid, core::cmp::Reverse(row.age_ms), row.inode));
        rows.into_iter().map(|row| (row.pid, row.inode, row.reason, row.age_ms)).collect()
    };
    let World { registry, memory } = &mut world;
    for (process, local) in [(1, 31), (4, 32)] {
        let seen = Err(ReasonT::Option);
        registry.offer(client(process), seen, args(local), 5, memory).unwrap();
    }
    let of_one = (1, 31, ReasonT::Option, 5);
    assert_eq!(told(&world, 1000), [of_one], "of one's own processes");
    assert_eq!(told(&world, 0), [of_one, (4, 32, ReasonT::Option, 5)]);
    // Refused after it had waited, for another offers it too.
    world.offer(1, socket(5, 6), args(33));
    world.offer(2, socket(5, 6), args(34));
    assert_eq!(told(&world, 1000).len(), 3);
    assert_eq!(told(&world, 1000)[1], (1, 33, ReasonT::SeveralHolders, 5));
    world.offer(1, socket(7, 8), OfferArguments { inode: 31, ..args(35) });
    assert!(!told(&world, 0).contains(&of_one), "offered again");
    // Home for a reason; and closed.
    world.left(1, 35);
    assert!(told(&world, 0).contains(&(1, 31, ReasonT::Operation, 4)), "went home");
    world.offer(1, socket(7, 8), OfferArguments { inode: 31, ..args(36) });
    world.registry.left(client(1), 36, ReasonT::Closed, 0, 6, &world.memory);
    assert!(told(&world, 0).iter().all(|row| row.1 != 31), "closed");
    let World { registry, memory } = &mut world;
    for local in 100..400 {
        registry.offer(client(3), Err(ReasonT::Kind), args(local), 5, memory).unwrap();
    }
    registry
        .offer(client(3), Err(ReasonT::Kind), OfferArguments { inode: 0, ..args(99) }, 5, memory)
        .unwrap();
    let of_three = told(&world, 0).into_iter().filter(|row| row.0 == 3);
    assert_eq!(of_three.map(|row| row.1).collect::<Vec<_>>(), (144..400).collect::<Vec<_>>());
    world.registry.gone(client(3), 7, &world.memory);
    assert!(told(&world, 0).iter().all(|row| row.0 != 3));
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
    registry.counted(client(1), 1, number + 1, Ok(()), 0, memory);
    assert_eq!(world.next(1), None, "not the count that was asked for");
    let World { registry, memory } = &mut world;
    registry.counted(client(1), 1, number, Ok(()), 0, memory);
    assert_eq!(world.join(1).stream, world.join(2).stream);

    let shared = OfferArguments { is_sole: false, ..args(7) };
    let Offered::Count(number) = world.offer(1, socket(50, 60), shared) else {
        panic!("not counted")
    };
    let World { registry, memory } = &mut world;
    registry.counted(client(1), 7, number, Err(ReasonT::HoldersUnknown), 0, memory);
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
    assert_eq!(world.registry.counters().0.returns, [0; ReasonT::COUNT]);
}

#[test]
fn one_side_leaves_and_the_other_is_told() {
    let (mut world, _) = World::joined();
    world.left(1, 10);
    assert_eq!(world.recalled(2), Some((20, ReasonT::PeerLeft)));
    assert_eq!(world.registry.counters().2, 1, "until the other has left too");
    assert_eq!(world.offer(1, socket(5, 6), args(11)), Offered::Waits, "the other is not home yet");
    world.left(2, 20);
    assert_eq!(world.registry.counters().2, 0);
    assert_eq!(world.registry.counters().0.bytes, 1010);
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
    assert_eq!(world.registry.counters().2, 0);
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
fn inboxes_fill_up_and_slots_are_used_again_only_when_both_have_left() {
    let mut world = World::new(limits());
    for n in 0..5 {
        world.offer(1, socket(100 + n, 200 + n), args(n));
        world.offer(2, socket(200 + n, 100 + n), args(n));
    }
    assert_eq!(*world.memory.made.lock().unwrap(), 4, "four slots, five streams, two sides");
    let joins: Vec<_> = (0..5).map(|_| world.join(1)).collect();
    for _ in 0..5 {
        world.join(2);
    }
    let has_descriptors = |inbox: &InboxOut| !inbox.descriptors[0].is_none();
    let told: Vec<_> = joins.iter().map(|join| has_descriptors(&join.own)).collect();
    assert_eq!(told, [true, false, false, false, true], "descriptors come with the first join");
    world.left(1, 2);
    world.offer(1, socket(9, 8), args(50));
    world.offer(2, socket(8, 9), args(51));
    let place = |join: &JoinOut| (join.own.id, join.own.slot);
    let (old, new) = (place(&joins[2]), world.join(1));
    assert_ne!(place(&new), old, "the other side can still ring it");
    assert_eq!(world.recalled(2), Some((2, ReasonT::PeerLeft)));
    world.left(2, 2);
    world.offer(1, socket(19, 18), args(60));
    world.offer(2, socket(18, 19), args(61));
    assert_eq!(place(&world.join(1)), old);
}

#[test]
fn what_a_library_never_heard_of_does_not_count_as_forgotten() {
    let mut world = World::new(limits());
    for n in 0..2 {
        world.offer(1, socket(100 + n, 200 + n), args(n));
        world.offer(2, socket(200 + n, 100 + n), args(n));
    }
    let known = world.join(1);
    // Left before its join was collected: that join named the same inbox, but nobody was told.
    world.left(1, 1);
    world.offer(1, socket(9, 8), args(5));
    world.offer(2, socket(8, 9), args(5));
    let next = world.join(1);
    assert_eq!(next.own.id, known.own.id);
    assert!(next.own.descriptors[0].is_none(), "the library has that inbox");
}

#[test]
fn without_memory_both_are_refused_and_nothing_is_kept() {
    for (regions, inboxes) in [(0, 9), (9, 0), (9, 1)] {
        let mut world = World::new(limits());
        world.memory = Fake { regions, inboxes, ..Fake::default() };
        world.offer(1, socket(5, 6), args(1));
        world.offer(2, socket(6, 5), args(2));
        assert_eq!(world.refused(1), Some((1, ReasonT::Resources)));
        assert_eq!(world.refused(2), Some((2, ReasonT::Resources)));
        assert!(world.registry.inboxes.is_empty());
    }
}

#[test]
fn there_are_limits_for_each_process_and_user() {
    // User 1000 is not the server's own here, and has three of four processes.
    let limits = || Limits { ends: 3, own_user: 7, serves_everybody: true, ..limits() };
    let mut world = World::new(limits());
    for n in 0..4 {
        world.offer(1, socket(10 + n, 20 + n), args(n));
    }
    assert_eq!(world.refused(1), Some((3, ReasonT::Quota)), "of a process");

    let mut world = World::new(Limits { all_ends: 5, ..limits() });
    for process in 1..=3 {
        world.offer(process, socket(10 + u64::from(process), 20), args(1));
    }
    assert_eq!(world.refused(3), Some((1, ReasonT::Quota)), "as much is left for others");
    assert_eq!(world.offer(4, socket(30, 40), args(1)), Offered::Waits);
    world.left(1, 1);
    assert_eq!(world.offer(3, socket(50, 60), args(2)), Offered::Waits);

    // The descriptors that are kept for four processes, and for one stream with both inboxes.
    let mut world = World::new(Limits { descriptors: 16 + 4 + 2 * 19 - 4, ..limits() });
    for (n, set) in [(0, 1), (1, 2)] {
        world.offer(1, socket(10 + n, 20 + n), OfferArguments { set, ..args(n) });
        world.offer(2, socket(20 + n, 10 + n), OfferArguments { set, ..args(n) });
    }
    world.join(1);
    assert_eq!(world.refused(1), Some((1, ReasonT::Quota)));
    assert_eq!(world.registry.descriptors.of(1000), 3 * 4 + 7);
    for process in [1, 2] {
        world.left(process, 0);
    }
    assert_eq!(world.registry.descriptors.of(1000), 3 * 4);
    world.registry.gone(client(1), 9, &world.memory);
    assert_eq!(world.registry.descriptors.of(1000), 2 * 4);
}

#[test]
fn lists_come_in_pages() {
    let mut world = World::new(Limits { ends: 10_000, all_ends: 10_000, ..limits() });
    for n in 0..5000 {
        world.offer(1 + n as u32 % 3, socket(10_000 + n, 1), args(n));
    }
    let (mut rows, mut after, mut pages) = (Vec::new(), 0, 0);
    loop {
        let (page, last) = world.registry.list((0, after), 9, &world.memory);
        rows.extend(page.into_iter().map(|row| row.from));
        (pages, after) = (pages + 1, last);
        // Ends that come and go meanwhile change nothing of the others' pages.
        world.left(2, 4);
        world.offer(4, socket(9000 + pages, 1), args(pages));
        if after == 0 {
            break;
        }
    }
    assert_eq!(pages, 3);
    let count = rows.len();
    rows.sort();
    rows.dedup();
    assert!(rows.len() == count && (5000..5003).contains(&count), "{count}");
}

#[test]
fn who_does_not_collect_is_dropped() {
    let mut world = World::new(limits());
    for n in 0..=EVENTS_SOME as u64 {
        let seen = Err(ReasonT::Kind);
        world.registry.offer(client(1), seen, args(n), n, &mut world.memory).unwrap();
    }
    assert_eq!(world.registry.take_rings(), [client(1)], "rung once");
    assert_eq!(world.registry.take_late(LATE_MS), []);
    assert_eq!(world.registry.take_late(LATE_MS + 1), [client(1)]);
    while world.next(1).is_some() {}
    assert_eq!(world.registry.take_late(LATE_MS + 1), []);
    assert!(!world.registry.has_events());
}

#[test]
fn streams_of_a_server_before_are_taken_over() {
    let mut world = World::new(limits());
    let mut adopt = |process, identity, local, stream, side| {
        world.registry.adopt(client(process), identity, args(local), stream, side, 5)
    };
    assert_eq!(adopt(1, socket(5, 6), 10, 77, 0), Ok(true));
    assert_eq!(adopt(3, socket(6, 4), 30, 77, 1), Ok(false), "not the mirror image");
    assert_eq!(adopt(2, socket(6, 5), 20, 77, 0), Ok(false), "that side is there");
    assert_eq!(adopt(1, socket(6, 5), 11, 77, 1), Ok(false), "both in one process");
    assert_eq!(adopt(2, socket(6, 5), 20, 77, 2), Err(CallError::Argument));
    assert_eq!(adopt(2, pipe(3, false), 21, 78, 0), Ok(false), "side 0 writes");
    assert_eq!(adopt(2, socket(6, 5), 20, 77, 1), Ok(true));
    let (rows, _) = world.registry.list((1000, 0), 9, &world.memory);
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.stream == 77 && row.home == HomeT::Library));
    assert_eq!((rows[0].peer_pid, rows[1].peer_pid), (2, 1));
    assert!(world.registry.recall_for(77, 1000, 9));
    assert_eq!(world.recalled(1), Some((10, ReasonT::User)));
    assert_eq!(world.recalled(2), Some((20, ReasonT::User)));
    world.left(1, 10);
    world.left(2, 20);
    assert_eq!(world.registry.counters().2, 0);
    assert_eq!(world.registry.counters().0.bytes, 60, "as the libraries say");
    assert!(world.registry.users.is_empty());
}

#[test]
fn a_stream_to_another_host_is_taken_over_by_the_carrier_and_then_by_its_program() {
    let mut world = World::new(limits());
    world.registry.hello(CARRIER, info(99, 0)).unwrap();
    let mut adopt = |process, identity, local, side| {
        world.registry.adopt(process, identity, args(local), 77, side, 5)
    };
    assert_eq!(adopt(CARRIER, socket(0, 5), 1, 1), Ok(true));
    assert_eq!(adopt(client(2), socket(6, 0), 20, 0), Ok(false), "of another socket");
    assert_eq!(adopt(client(1), socket(5, 0), 10, 0), Ok(true));
    assert!(world.registry.has_stream(77) && !world.registry.has_stream(78));
    // Only the program's user has a stream.
    assert_eq!(world.registry.users.get(&1000), Some(&1));
    assert_eq!(world.registry.users.get(&0), None);
    world.registry.set_region(77, SOMETHING.clone());
    let (rows, _) = world.registry.list((1000, 0), 9, &world.memory);
    assert_eq!((rows.len(), rows[0].stream, rows[0].peer_pid), (1, 77, 99));
    assert_eq!((rows[0].sent, rows[0].received), (1000, 10), "as its memory says");
    world.registry.gone(client(1), 9, &world.memory);
    let told = world.registry.next(CARRIER).unwrap();
    assert_eq!(told, Some(Delivery::Recall { local: 1, reason: ReasonT::PeerDied }));
    world.registry.left(CARRIER, 1, ReasonT::PeerLeft, 0, 9, &world.memory);
    assert_eq!(world.registry.counters().2, 0);
    assert!(world.registry.users.is_empty());
}

#[test]
fn users_see_and_recall_their_own() {
    let (mut world, stream) = World::joined();
    world.offer(4, socket(50, 60), args(40));
    assert_eq!(world.registry.list((0, 0), 9, &world.memory).0.len(), 3);
    let (rows, _) = world.registry.list((1001, 0), 9, &world.memory);
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].home, rows[0].reason, rows[0].age_ms), (HomeT::Kernel, ReasonT::NoPeer, 4));
    let (rows, _) = world.registry.list((1000, 0), 9, &world.memory);
    assert_eq!((rows[0].sent, rows[0].received), (1000, 10));
    assert_eq!((rows[1].sent, rows[1].received), (10, 1000));
    assert_eq!(rows[0].from.as_deref(), rows[1].to.as_deref());
    assert!(!world.registry.recall_for(stream, 1001, 9));
    assert!(!world.registry.recall_for(stream + 1, 0, 9));
    assert!(world.registry.recall_for(stream, 0, 9));
    assert_eq!(world.recalled(1), Some((10, ReasonT::User)));
}

/// A registry with a carrier.
fn with_carrier() -> World {
    let mut world = World::new(limits());
    world.registry.hello(CARRIER, info(99, 1000)).unwrap();
    world
}

fn offered_by_carrier(world: &mut World, local: u64) -> Offered {
    let World { registry, memory } = world;
    registry.offer(CARRIER, Ok(socket(5, 0).mirrored()), args(local), 5, memory).unwrap()
}

fn told_to_carrier(world: &mut World) -> Option<Delivery> {
    world.registry.next(CARRIER).unwrap()
}

#[test]
fn a_program_whose_session_comes_again_while_its_carrier_has_the_last_one_may_try_again() {
    let mut world = with_carrier();
    assert_eq!(world.offer(1, socket(5, 0), args(10)), Offered::Waits);
    assert_eq!(offered_by_carrier(&mut world, 20), Offered::Decided);
    world.join(1);
    assert!(matches!(told_to_carrier(&mut world), Some(Delivery::Join(_))));
    // The program has gone home, and comes again before the carrier knows.
    world.left(1, 10);
    assert_eq!(world.offer(1, socket(5, 0), args(11)), Offered::Waits);
    assert_eq!(offered_by_carrier(&mut world, 21), Offered::Decided);
    assert_eq!(world.refused(1), Some((11, ReasonT::SeveralHolders)), "it waits for ever");
    // Once the carrier knows, all is well again.
    world.registry.left(CARRIER, 20, ReasonT::PeerLeft, 0, 6, &world.memory);
    assert_eq!(world.offer(1, socket(5, 0), args(12)), Offered::Waits);
    assert_eq!(offered_by_carrier(&mut world, 22), Offered::Decided);
    world.join(1);
}

#[test]
fn a_carrier_s_offer_does_not_wait_for_a_program_that_has_gone() {
    let mut world = with_carrier();
    assert_eq!(world.offer(1, socket(5, 0), args(10)), Offered::Waits);
    world.left(1, 10);
    assert_eq!(offered_by_carrier(&mut world, 20), Offered::Decided);
    let told = told_to_carrier(&mut world);
    assert!(matches!(told, Some(Delivery::Refused { local: 20, .. })), "{told:?}");
}

#[test]
fn a_tcp_session_with_another_host_is_timed_for_its_user_and_no_other_session_is() {
    let mut world = with_carrier();
    let tcp = || Identity { kind: KindT::Tcp, ..socket(5, 0) };
    assert_eq!(world.offer(1, tcp(), args(10)), Offered::Waits);
    let World { registry, memory } = &mut world;
    let other = Ok(tcp().mirrored());
    assert_eq!(registry.offer(CARRIER, other, args(20), 5, memory).unwrap(), Offered::Decided);
    let stream = world.join(1).stream;
    let times = |uid, number| world.registry.times(number, uid, 77, &world.memory);
    // The maker answers with the wish's end.
    assert_eq!(times(0, stream).map(|told| told.sent), Some(77));
    assert!(times(1000, stream).is_some());
    assert!(times(1001, stream).is_none());
    assert!(times(0, stream + 1).is_none());

    let (world, stream) = World::joined();
    assert!(world.registry.times(stream, 0, 77, &world.memory).is_none(), "no layers between");
}
