//! A protocol server that always has more to tell.

use super::*;
use sojourn_ipc::rt::{
    self, Forms, InterfaceId, Request as _, Served, ServerTransport, Service, stub,
};
use sojourn_ipc::{Address, Connection, Endpoint, ServerOptions};
use sojourn_session::protocol::server::{
    PROTOCOL_ID, READY_MAX, ReadyT as Told, protocol_wire as wire,
};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

/// Calls that are answered with full lists; then the test has failed, and ends.
const ENOUGH: usize = 50;

/// The service, and the number of calls that it has answered.
struct Endless(Arc<AtomicUsize>);

impl<T: ServerTransport> Service<T> for Endless {
    fn base_of(&self, wanted: &InterfaceId) -> Option<u16> {
        (*wanted == PROTOCOL_ID).then_some(0)
    }

    fn operations(&self) -> u16 {
        32
    }

    fn dispatch(&mut self, _op: u16, _oneway: bool, request: T::Request<'_>) -> Served<T::Ready> {
        let is_full = self.0.fetch_add(1, Ordering::SeqCst) < ENOUGH;
        let count = if is_full { READY_MAX } else { 0 };
        let told: Vec<Told> = (0..count).map(|session| Told { session, events: 1 }).collect();
        let size = wire::collect_reply_size(Forms::machine(), &told);
        let token = request.into_token();
        Served::Reply(stub::reply(token, size, None, |w| wire::put_collect_reply(w, &told)))
    }
}

#[test]
fn a_server_that_always_has_more_to_tell_is_asked_once_for_each_ring() {
    let endpoint = Endpoint::unnamed(ServerOptions::default()).unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (mut thread, mut service) = (endpoint.server(), Endless(Arc::clone(&asked)));
    let serving = std::thread::spawn(move || {
        let _ = rt::serve(&mut thread, &mut service, Deadline::after(SLOW_LIMIT));
    });
    let address = Address::Descriptor(endpoint.offer().unwrap());
    let connection = Connection::connect(address, &protocol_connect_options()).unwrap();
    let receiver = Receiver::bind(connection, Deadline::after(ANSWER_LIMIT)).unwrap();
    // A bell that the server has filled.
    let (bell, rings) = std::os::unix::net::UnixStream::pair().unwrap();
    rings.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &rings, &[0; 4096]).is_ok() {}
    let mut connected = Connected::new(library());
    (connected.channel, connected.bell) = (Some(Channel::new(receiver)), Some(bell.into()));
    let told = connected.collect().unwrap();
    assert_eq!((told.len(), asked.load(Ordering::SeqCst)), (READY_MAX as usize, 1));
    drop((connected, endpoint));
    serving.join().unwrap();
}
