//! Sessions with other hosts, whose other side is the carrier, and streams of a server before.
//!
//! Not here: sessions within this host (the file above).

use super::*;
use sojourn_session::Inode;

#[test]
fn streams_of_a_server_before_are_taken_over() {
    let mut world = World::new(limits());
    let mut adopt = |process, identity, local, stream, side| {
        let part = StreamSide { stream: StreamNumber(stream), side };
        world.registry.adopt(client(process), identity, args(local), part, 5)
    };
    assert_eq!(adopt(1, socket(5, 6), 10, 77, 0), Ok(true));
    assert_eq!(adopt(3, socket(6, 4), 30, 77, 1), Ok(false), "not the mirror image");
    assert_eq!(adopt(2, socket(6, 5), 20, 77, 0), Ok(false), "that side is there");
    assert_eq!(adopt(1, socket(6, 5), 11, 77, 1), Ok(false), "both in one process");
    assert_eq!(adopt(2, socket(6, 5), 20, 77, 2), Err(CallError::Argument));
    assert_eq!(adopt(2, pipe(3, false), 21, 78, 0), Ok(false), "side 0 writes");
    assert_eq!(adopt(2, socket(6, 5), 20, 77, 1), Ok(true));
    let rows = world.registry.list(Uid::from_raw(1000), 0, 9, &world.memory).rows;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.stream == 77 && row.home == HomeT::Library));
    assert!(rows.iter().all(|row| !row.has_counts), "an earlier server made the memory");
    assert_eq!((rows[0].peer_pid, rows[1].peer_pid), (2, 1));
    assert!(world.registry.recall_for(StreamNumber(77), Uid::from_raw(1000), 9));
    assert_eq!(world.recalled(1), Some((10, ReasonT::User)));
    assert_eq!(world.recalled(2), Some((20, ReasonT::User)));
    world.left(1, 10);
    world.left(2, 20);
    assert_eq!(world.registry.stream_count(), 0);
    assert_eq!(world.registry.counters().bytes, 60, "as the libraries say");
    assert!(world.registry.users.is_empty());
}

#[test]
fn a_stream_to_another_host_is_taken_over_by_the_carrier_and_then_by_its_program() {
    let mut world = World::new(limits());
    world.registry.hello(CARRIER, info(99, 0)).unwrap();
    let mut adopt = |process, identity, local, side| {
        let part = StreamSide { stream: StreamNumber(77), side };
        world.registry.adopt(process, identity, args(local), part, 5)
    };
    assert_eq!(adopt(CARRIER, socket(0, 5), 1, 1), Ok(true));
    assert_eq!(adopt(client(2), socket(6, 0), 20, 0), Ok(false), "of another socket");
    assert_eq!(adopt(client(1), socket(5, 0), 10, 0), Ok(true));
    assert!(
        world.registry.has_stream(StreamNumber(77)) && !world.registry.has_stream(StreamNumber(78))
    );
    // Only the program's user has a stream.
    assert_eq!(world.registry.users.get(&Uid::from_raw(1000)), Some(&1));
    assert_eq!(world.registry.users.get(&Uid::ROOT), None);
    world.registry.set_region(StreamNumber(77), SOMETHING.clone());
    let rows = world.registry.list(Uid::from_raw(1000), 0, 9, &world.memory).rows;
    assert_eq!((rows.len(), rows[0].stream, rows[0].peer_pid), (1, 77, 99));
    assert_eq!((rows[0].sent, rows[0].received), (1000, 10), "as its memory says");
    world.registry.gone(client(1), 9, &world.memory);
    let told = world.registry.next(CARRIER).unwrap();
    assert_eq!(told, Some(Delivery::Recall { local: LocalNumber(1), reason: ReasonT::PeerDied }));
    world.registry.left(of_carrier(1), ReasonT::PeerLeft, 0, 9, &world.memory);
    assert_eq!(world.registry.stream_count(), 0);
    assert!(world.registry.users.is_empty());
}

fn of_carrier(local: u64) -> EndId {
    EndId { process: CARRIER, local: LocalNumber(local) }
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
    world.registry.left(of_carrier(20), ReasonT::PeerLeft, 0, 6, &world.memory);
    assert_eq!(world.offer(1, socket(5, 0), args(12)), Offered::Waits);
    assert_eq!(offered_by_carrier(&mut world, 22), Offered::Decided);
    world.join(1);
}

#[test]
fn a_session_that_is_offered_again_has_its_last_refusal_until_something_new_is_known() {
    let mut world = with_carrier();
    let reason = |world: &World| {
        let rows = world.registry.list(Uid::from_raw(1000), 0, 9, &world.memory).rows;
        let refusals = world.registry.refused(Uid::from_raw(1000), 0, 9).rows;
        (rows.first().map(|row| row.reason), refusals.first().map(|refusal| refusal.reason))
    };
    // With another host: the carrier has not looked yet.
    assert_eq!(world.offer(1, socket(5, 0), args(10)), Offered::Waits);
    world.registry.left(end(1, 10), ReasonT::Firewall, 0, 6, &world.memory);
    assert_eq!(reason(&world), (None, Some(ReasonT::Firewall)));
    let again = OfferArguments { inode: Inode(10), ..args(11) };
    assert_eq!(world.offer(1, socket(5, 0), again), Offered::Waits);
    assert_eq!(reason(&world), (Some(ReasonT::Firewall), Some(ReasonT::Firewall)));
    assert_eq!(offered_by_carrier(&mut world, 20), Offered::Decided);
    world.join(1);
    assert_eq!(reason(&world), (Some(ReasonT::None), None));
    // Within this host: while holders are counted nothing is known, and then only the peer lacks.
    let mut world = with_carrier();
    world.registry.declined(client(1), Inode(7), ReasonT::SeveralHolders, [0; 2], 5);
    let uncounted = OfferArguments { is_sole: false, inode: Inode(7), ..args(10) };
    let Offered::Count(number) = world.offer(1, socket(5, 6), uncounted) else { panic!() };
    assert_eq!(reason(&world), (Some(ReasonT::SeveralHolders), Some(ReasonT::SeveralHolders)));
    let World { registry, memory } = &mut world;
    registry.counted(ToCount { end: end(1, 10), number }, Ok(()), 9, memory);
    assert_eq!(reason(&world), (Some(ReasonT::NoPeer), None));
}

#[test]
fn a_carrier_s_offer_does_not_wait_for_a_program_that_has_gone() {
    let mut world = with_carrier();
    assert_eq!(world.offer(1, socket(5, 0), args(10)), Offered::Waits);
    world.left(1, 10);
    assert_eq!(offered_by_carrier(&mut world, 20), Offered::Decided);
    let told = told_to_carrier(&mut world);
    assert!(matches!(told, Some(Delivery::Refused { local: LocalNumber(20), .. })), "{told:?}");
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
    assert_eq!(times(Uid::ROOT, stream).map(|told| told.sent), Some(77));
    assert!(times(Uid::from_raw(1000), stream).is_some());
    assert!(times(Uid::from_raw(1001), stream).is_none());
    assert!(times(Uid::ROOT, StreamNumber(stream.0 + 1)).is_none());

    let (world, stream) = World::joined();
    assert!(
        world.registry.times(stream, Uid::ROOT, 77, &world.memory).is_none(),
        "no layers between"
    );
}
