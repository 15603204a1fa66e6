//! What a process and a user may have at once: inboxes, ends, pages of lists, events.
//!
//! Not here: who is joined with whom (the file above).

use super::*;
use crate::registry::refusals::{OF_PROCESS_MAX, OF_PROCESS_MIN, OF_USER_MAX};
use sojourn_session::Inode;

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
    let limits =
        || Limits { ends: 3, own_user: Uid::from_raw(7), serves_everybody: true, ..limits() };
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
    assert_eq!(world.registry.descriptors.of(Uid::from_raw(1000)), 3 * 4 + 7);
    for process in [1, 2] {
        world.left(process, 0);
    }
    assert_eq!(world.registry.descriptors.of(Uid::from_raw(1000)), 3 * 4);
    world.registry.gone(client(1), 9, &world.memory);
    assert_eq!(world.registry.descriptors.of(Uid::from_raw(1000)), 2 * 4);
}

#[test]
fn no_user_takes_all_watches_of_pipes() {
    let (own_user, serves_everybody) = (Uid::from_raw(7), true);
    let mut world = World::new(Limits { watches: 5, own_user, serves_everybody, ..limits() });
    for n in 0..3 {
        world.offer(1, pipe(10 + n, true), args(n));
    }
    assert_eq!(world.refused(1), Some((2, ReasonT::Quota)), "as many are left for others");
    assert_eq!(world.offer(1, socket(10, 20), args(3)), Offered::Waits, "it takes none");
    assert_eq!(world.offer(4, pipe(20, true), args(1)), Offered::Waits);
    let part = StreamSide { stream: StreamNumber(9), side: 0 };
    let adopted = world.registry.adopt(client(2), pipe(30, true), args(1), part, 5);
    assert_eq!(adopted, Ok(false));
    world.left(1, 1);
    assert_eq!(world.offer(1, pipe(40, true), args(4)), Offered::Waits);
}

/// Each is a mapping of the carrier's.
#[test]
fn no_user_takes_all_sessions_with_other_hosts() {
    let (own_user, serves_everybody) = (Uid::from_raw(7), true);
    let mut world = World::new(Limits { carried: 5, own_user, serves_everybody, ..limits() });
    for n in 0..3 {
        world.offer(1, socket(10 + n, 0), args(n));
    }
    assert_eq!(world.refused(1), Some((2, ReasonT::Quota)), "as many are left for others");
    assert_eq!(world.offer(1, socket(10, 20), args(3)), Offered::Waits, "of this host");
    assert_eq!(world.offer(4, socket(20, 0), args(1)), Offered::Waits);
    world.left(1, 1);
    assert_eq!(world.offer(1, socket(30, 0), args(4)), Offered::Waits);
}

#[test]
fn who_gives_up_roots_rights_counts_as_the_user_that_it_is() {
    let (own_user, user) = (Uid::from_raw(7), Uid::from_raw(1000));
    let mut world = World::new(Limits { own_user, serves_everybody: true, ..limits() });
    world.registry.hello(client(5), info(5, 0)).unwrap();
    world.offer(5, socket(10, 20), args(1));
    world.offer(5, pipe(10, true), args(2));
    world.offer(5, socket(30, 0), args(3));
    world.registry.has_become(client(5), user);
    let shares = |world: &World| {
        let Registry { descriptors, ends, pipes, carried, .. } = &world.registry;
        [descriptors, ends, pipes, carried].map(|shares| [shares.of(user), shares.of(Uid::ROOT)])
    };
    assert_eq!(shares(&world), [[16, 0], [3, 0], [1, 0], [1, 0]]);
    world.registry.gone(client(5), 9, &world.memory);
    assert_eq!(shares(&world), [[12, 0], [0, 0], [0, 0], [0, 0]], "others of the user keep theirs");
}

/// Its peers have to be kept apart from it from then on.
#[test]
fn who_gives_up_roots_rights_gets_no_more_rings_where_root_got_them() {
    let mut world = World::new(Limits { serves_everybody: true, ..limits() });
    for pid in [5, 6] {
        world.registry.hello(client(pid), info(pid, 0)).unwrap();
    }
    let join = |world: &mut World, n: u64| {
        world.offer(5, socket(10 + n, 20 + n), args(n));
        world.offer(6, socket(20 + n, 10 + n), args(n));
        world.counted(Ok(()));
        [world.join(5), world.join(6)].map(|join| join.own.id)
    };
    let before = join(&mut world, 1);
    assert_eq!(join(&mut world, 2), before);
    world.registry.has_become(client(5), Uid::from_raw(1000));
    let after = join(&mut world, 3);
    assert_ne!(after[0], before[0]);
    assert_ne!(after[1], before[1], "nor do root's");
}

#[test]
fn lists_come_in_pages() {
    let mut world = World::new(Limits { ends: 10_000, all_ends: 10_000, ..limits() });
    for n in 0..5000 {
        world.offer(1 + n as u32 % 3, socket(10_000 + n, 1), args(n));
    }
    let (mut rows, mut after, mut pages) = (Vec::new(), 0, 0);
    loop {
        let page = world.registry.list(Uid::ROOT, after, 9, &world.memory);
        rows.extend(page.rows.into_iter().map(|row| row.from));
        (pages, after) = (pages + 1, page.last);
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
fn the_reasons_of_a_thousand_ends_are_remembered_and_users_have_shares() {
    let mut world = World::new(limits());
    let mut decline = |process: u32, count: usize| {
        let id = client(process);
        // Some have been there from the start.
        let _known = world.registry.hello(id, info(process, 1000));
        for inode in 1..=count as u64 {
            world.registry.declined(id, Inode(inode), ReasonT::Slower, [2, 1], 0);
        }
        let refused = &world.registry.processes.get(&id).unwrap().refused;
        (refused.len(), refused.reason(Inode(1)))
    };
    assert_eq!(decline(1, 1000), (1000, Some(ReasonT::Slower)));
    assert_eq!(decline(1, OF_PROCESS_MAX + 1), (OF_PROCESS_MAX, None), "the last ones");
    let others = (OF_USER_MAX / OF_PROCESS_MAX) as u32;
    let lens: Vec<usize> = (0..others).map(|nth| decline(100 + nth, OF_PROCESS_MAX).0).collect();
    assert_eq!(lens[0], OF_PROCESS_MAX);
    assert_eq!(lens.last(), Some(&OF_PROCESS_MIN), "no more than that beyond the share");
}

#[test]
fn who_does_not_collect_is_dropped() {
    let mut world = World::new(limits());
    for n in 0..=EVENTS_SOME as u64 {
        let seen = Err(ReasonT::Kind);
        world.registry.offer(client(1), seen, args(n), n, &mut world.memory).unwrap();
    }
    assert_eq!(world.registry.take_rings(), [client(1)], "rung once");
    assert_eq!(world.registry.take_unresponsive(LATE_MS), []);
    assert_eq!(world.registry.take_unresponsive(LATE_MS + 1), [client(1)]);
    while world.next(1).is_some() {}
    assert_eq!(world.registry.take_unresponsive(LATE_MS + 1), []);
    assert!(!world.registry.has_events());
}
