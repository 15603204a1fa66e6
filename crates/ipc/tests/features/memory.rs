//! Memory that is granted, and messages of every size, which are read where they lie.
//!
//! Not here: descriptors (`descriptors`).

use crate::common::service::*;
use crate::common::{Echo, Home, ask, call, call_until, limit, soon, watchdog};
use sojourn_ipc::{
    Access, Address, CallError, ConnectOptions, Connection, Deadline, Endpoint, Fault, Grant,
    GrantId, KEEP as KEEP_FLAG, Memory, Reason, ServerOptions, WRITE, Wait,
};

in_both_homes! {
    grants_are_read_and_written_in_place
    grants_out_of_bounds_end_the_connection
    grants_are_limited
    too_large_is_an_error_and_nothing_worse
    items_are_read_where_they_lie
}

fn with_grant(
    connection: &mut Connection,
    op: u16,
    body: &[u8],
    grant: Grant,
) -> Result<Vec<u8>, CallError> {
    let mut draft = connection.start(op, body.len());
    draft.encoder().put_bytes(body)?;
    draft.encoder().grant(grant)?;
    Ok(draft.call(limit())?.body().to_vec())
}

fn grants_are_read_and_written_in_place(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let mut connection = echo.connect();
    let ours = Memory::new(10_000, Access::Read).unwrap();
    let shared = Memory::new(10_000, Access::ReadWrite).unwrap();
    ours.span(5000, 5).unwrap().copy_from(b"hello");
    shared.span(0, 5).unwrap().copy_from(b"there");
    let read = connection.register(&ours, limit()).unwrap();
    let write = connection.register(&shared, limit()).unwrap();
    let grant = |id, flags, offset, len| Grant { id, flags, offset, len };
    assert_eq!(with_grant(&mut connection, GRANT, b"", grant(read, 0, 5000, 5)).unwrap(), b"hello");
    // Read-only by seal: what the server tries to write goes nowhere.
    with_grant(&mut connection, GRANT, b"w", grant(read, 0, 5000, 5)).unwrap();
    assert_eq!(with_grant(&mut connection, GRANT, b"", grant(read, 0, 5000, 5)).unwrap(), b"hello");
    let flags = WRITE | KEEP_FLAG;
    with_grant(&mut connection, GRANT, b"w", grant(write, flags, 0, 5)).unwrap();
    let mut seen = [0; 5];
    shared.span(0, 5).unwrap().copy_to(&mut seen);
    assert_eq!(&seen, b"!here");
    // Kept only if allowed; a kept one sees what is written later.
    let kept = |bytes: Vec<u8>| bytes == 1u64.to_ne_bytes();
    assert!(!kept(with_grant(&mut connection, KEEP_GRANT, b"", grant(read, 0, 0, 5)).unwrap()));
    assert!(kept(with_grant(&mut connection, KEEP_GRANT, b"", grant(write, flags, 0, 5)).unwrap()));
    shared.span(0, 5).unwrap().copy_from(b"later");
    assert_eq!(call(&mut connection, KEPT, &[]).unwrap(), b"later");
    // Unregistered: known no more, but kept is kept.
    connection.unregister(write, limit()).unwrap();
    assert_eq!(call(&mut connection, KEPT, &[]).unwrap(), b"later");
    let error = with_grant(&mut connection, GRANT, b"", grant(write, 0, 0, 5)).unwrap_err();
    assert_eq!(error, CallError::Disconnected(Reason::BadGrant));
}

fn grants_out_of_bounds_end_the_connection(home: Home) {
    let _watchdog = watchdog(60);
    let echo = Echo::start(home);
    let memory = Memory::new(4096, Access::Read).unwrap();
    for (flags, offset, len) in
        [(0, 4096, 1), (0, 0, 4097), (0, u64::MAX, 2), (0, 2, u64::MAX), (WRITE, 0, 1), (8, 0, 1)]
    {
        let mut connection = echo.connect();
        let id = connection.register(&memory, limit()).unwrap();
        let edge = Grant { id, flags: 0, offset: 4095, len: 1 };
        assert_eq!(with_grant(&mut connection, GRANT, b"", edge).unwrap(), [0]);
        let beyond = Grant { id, flags, offset, len };
        let error = with_grant(&mut connection, GRANT, b"", beyond).unwrap_err();
        assert_eq!(error, CallError::Disconnected(Reason::BadGrant), "{beyond:?}");
    }
}

fn grants_are_limited(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { max_granted: 100 << 12, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let mut connection = echo.connect();
    let page = Memory::new(4096, Access::Read).unwrap();
    let large = Memory::new(101 << 12, Access::Read).unwrap();
    assert_eq!(connection.register(&large, limit()), Err(CallError::TooLarge));
    let ids: Vec<GrantId> = (0..64).map(|_| connection.register(&page, limit()).unwrap()).collect();
    assert_eq!(connection.register(&page, limit()), Err(CallError::TooLarge));
    connection.unregister(ids[0], limit()).unwrap();
    connection.register(&page, limit()).unwrap();
    assert_eq!(call(&mut connection, ECHO, b"x").unwrap(), b"x");
}

fn too_large_is_an_error_and_nothing_worse(home: Home) {
    let _watchdog = watchdog(60);
    let options = ServerOptions { max_message: 50_000, ..Default::default() };
    let echo = Echo::start_with(home, 1, options);
    let small = ConnectOptions { max_message: 50_000, ..Default::default() };
    let mut connection = echo.connect_with(small);
    for deadline in [limit(), soon(10_000)] {
        let answer = call_until(&mut connection, ECHO, &[1; 60_000], deadline);
        assert_eq!(answer, Err(CallError::TooLarge));
        let answer = call_until(&mut connection, SIZED, &60_000u64.to_ne_bytes(), deadline);
        assert_eq!(answer, Err(CallError::Fault(Fault::TOO_LARGE)));
        assert_eq!(call(&mut connection, ECHO, &[1; 49_000]).unwrap().len(), 49_000);
    }
}

fn items_are_read_where_they_lie(home: Home) {
    let _watchdog = watchdog(60);
    for (wait, max_inflight) in [(Wait::Adaptive, 8), (Wait::Park, 1)] {
        let options =
            ServerOptions { items_in_place: true, wait, max_inflight, ..Default::default() };
        let echo = Echo::start_with(home, 1, options);
        let mut connection = echo.connect_waiting(wait);
        let bytes: Vec<u8> = (0..200_000).map(|n| (n * 7 + n / 256) as u8).collect();
        let mut count = 0u32;
        for len in [0, 1, 100, 5000, 30_000, 65_000, 200_000] {
            let items = [&bytes[..len], &bytes[7..7 + len / 2]];
            let back = crate::common::call_with_items(&mut connection, b"body", &items).unwrap();
            assert_eq!(back, (b"body".to_vec(), items.map(<[u8]>::to_vec).to_vec()));
            // The slot is given back when the next message is waited for: more of them than there
            // are.
            for _ in 0..12 {
                let mut draft = connection.start(COUNT, 4);
                draft.encoder().put_bytes(&count.to_ne_bytes()).unwrap();
                draft.encoder().put_item(items[0]).unwrap();
                draft.send(limit()).unwrap();
                count += 1;
            }
            let counted = ask(&mut connection, COUNTED, &[]).unwrap();
            assert_eq!(counted, [u64::from(count), 1]);
        }
    }
}

/// In one address space a call passes the caller's own memory.
#[test]
fn a_call_within_one_address_space_is_by_reference() {
    let _watchdog = watchdog(60);
    let echo = Echo::start(Home::Within);
    let mut connection = echo.connect();
    let item = vec![5; 1000];
    for body_len in [10, 50_000] {
        let mut draft = connection.start(WHERE, body_len);
        draft.encoder().put_bytes(&vec![1; body_len]).unwrap();
        draft.encoder().put_item(&item).unwrap();
        let reply = draft.call(Deadline::NEVER).unwrap();
        let word = |at: usize| u64::from_ne_bytes(reply.body()[at..at + 8].try_into().unwrap());
        assert_eq!(word(8), item.as_ptr() as u64, "the item is the caller's");
        let mut draft = connection.start(WHERE, body_len);
        draft.encoder().put_item(&item).unwrap();
        let reply = draft.call(limit()).unwrap();
        let word = |at: usize| u64::from_ne_bytes(reply.body()[at..at + 8].try_into().unwrap());
        assert_ne!(
            word(8),
            item.as_ptr() as u64,
            "a caller that may go keeps its memory to itself"
        );
    }
}

/// What a caller lent is not looked at any more once its call has ended, however that ends.
#[test]
fn a_loan_ends_before_its_call_does() {
    let _watchdog = watchdog(60);
    use sojourn_ipc::Event;
    let name = crate::common::name();
    let endpoint = Endpoint::bind(Address::abstract_name(&name), Default::default()).unwrap();
    let mut server = endpoint.server();
    let (seen, looking) = std::sync::mpsc::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
    let serving = std::thread::spawn(move || {
        loop {
            match server.recv(Deadline::NEVER) {
                Ok(Event::Call(request)) => {
                    seen.send(()).unwrap();
                    may_go_on.recv().unwrap();
                    assert!(request.item(0).unwrap().iter().all(|byte| *byte == 9));
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    let address = Address::abstract_name(&name);
    let mut connection = Connection::connect(address, &Default::default()).unwrap();
    let (returned, has_returned) = std::sync::mpsc::channel();
    let caller = std::thread::spawn(move || {
        let mut item = vec![9; 100_000];
        let mut draft = connection.start(1, 0);
        draft.encoder().put_item(&item).unwrap();
        let error = draft.call(Deadline::NEVER).map(drop).unwrap_err();
        item.fill(0);
        returned.send(()).unwrap();
        error
    });
    looking.recv().unwrap();
    // The endpoint goes while the server looks at the caller's memory.
    drop(endpoint);
    let early = has_returned.recv_timeout(std::time::Duration::from_millis(50));
    assert!(early.is_err(), "the caller has its memory back while the server looks at it");
    go_on.send(()).unwrap();
    assert_eq!(caller.join().unwrap(), CallError::Disconnected(Reason::Closed));
    serving.join().unwrap();
}
