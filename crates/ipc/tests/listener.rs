//! Endpoints that do not listen by themselves: at a socket that another owner has bound, and
//! without any name.
#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use sojourn_ipc::{
    Address, ConnectError, ConnectOptions, Connection, Deadline, Endpoint, Event, Listener, Server,
    ServerOptions,
};
use std::os::fd::AsFd;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Answers each call with the sum of its bytes, until the endpoint ends.
fn serve(mut server: Server) {
    let mut reply = None;
    while let Ok(event) = server.reply_wait(reply.take(), Deadline::NEVER) {
        if let Event::Call(request) = event {
            let sum: u8 = request.body().iter().sum();
            let mut draft = request.into_token().start(1);
            draft.encoder().put_bytes(&[sum]).unwrap();
            reply = Some(draft.finish());
        }
    }
}

fn assert_sums(address: Address) {
    let mut connection = Connection::connect(address, &ConnectOptions::default()).unwrap();
    let mut draft = connection.start(7, 3);
    draft.encoder().put_bytes(&[1, 2, 3]).unwrap();
    assert_eq!(draft.call(Deadline::after(LIMIT)).unwrap().body(), [6]);
}

#[test]
fn what_one_has_bound_others_serve_one_after_the_other() {
    let name = format!("sojourn-listener-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let listener = Listener::bind(Address::Path(path.clone())).unwrap();
    for _ in 0..2 {
        let socket = listener.as_fd().try_clone_to_owned().unwrap();
        let endpoint =
            Endpoint::bind(Address::Descriptor(socket), ServerOptions::default()).unwrap();
        let server = endpoint.server();
        let serving = std::thread::spawn(move || serve(server));
        assert_sums(Address::Path(path.clone()));
        drop(endpoint);
        serving.join().unwrap();
        assert!(path.exists(), "the name is the listener's");
    }
    drop(listener);
    assert!(!path.exists());
    let options = ConnectOptions::default();
    let error = Connection::connect(Address::Path(path), &options).unwrap_err();
    assert!(matches!(error, ConnectError::NotFound(_)), "{error}");
}

#[test]
fn without_a_name_clients_come_by_offers() {
    let endpoint = Endpoint::unnamed(ServerOptions::default()).unwrap();
    let server = endpoint.server();
    let serving = std::thread::spawn(move || serve(server));
    for _ in 0..2 {
        assert_sums(Address::Descriptor(endpoint.offer().unwrap()));
    }
    drop(endpoint);
    serving.join().unwrap();
}
