//! Clients that end in the middle of a bind, in orders that threads would have to meet by chance.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::port::Owner;
use rt::{Caller, Credentials};
use sojourn_ipc::Badge;

const HERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// The client with one index and that generation.
fn client(generation: u32) -> ClientId {
    ClientId { index: 3, generation }
}

fn caller(generation: u32) -> Caller {
    Caller {
        client: client(generation),
        badge: Badge::default(),
        credentials: Credentials::default(),
    }
}

/// Returns a server; `None`, with a message, where raw sockets are not allowed.
fn server() -> Option<Udp> {
    let udp = Udp::new(false);
    match udp.open_here(HERE, Box::new(|_, _, _| ())) {
        Ok(_) => Some(udp),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn has(udp: &Udp, generation: u32) -> bool {
    udp.port_of(client(generation)).is_some()
}

/// Returns the number of ports that clients have.
fn ports(udp: &Udp) -> usize {
    let taken = udp.ports.iter().filter_map(ArcSwapOption::load_full);
    taken.filter(|port| matches!(port.owner, Owner::Client(..))).count()
}

#[test]
fn a_bind_of_a_client_that_has_ended_takes_no_later_clients_port() {
    let Some(udp) = server() else { return };
    let bound = udp.take(&caller(2), HERE).unwrap();
    // Another thread was about to bind for the client before.
    let late = udp.take(&caller(1), HERE).map_err(|error| error.raw_os_error());
    assert_eq!(late, Err(Some(libc::EINVAL)));
    udp.client_gone(client(1));
    assert!(has(&udp, 2) && ports(&udp) == 1);
    assert_eq!(udp.port_of(client(2)).unwrap().as_ref().unwrap().local(), bound);
    udp.client_gone(client(2));
    assert_eq!(ports(&udp), 0);
}

#[test]
fn a_later_client_with_the_index_frees_the_earlier_ones_port() {
    let Some(udp) = server() else { return };
    // Numbers of generations come again.
    for [earlier, later] in [[1, 2], [0x3fff_ffff, 1]] {
        udp.take(&caller(earlier), HERE).unwrap();
        udp.take(&caller(later), HERE).unwrap();
        assert!(has(&udp, later) && !has(&udp, earlier) && ports(&udp) == 1);
        udp.client_gone(client(earlier));
        assert!(has(&udp, later) && ports(&udp) == 1);
        udp.client_gone(client(later));
        assert_eq!(ports(&udp), 0);
    }
}

#[test]
fn ends_and_binds_of_two_threads_leave_no_port() {
    let Some(udp) = server() else { return };
    for round in 0..60 {
        udp.take(&caller(2 * round + 1), HERE).unwrap();
        std::thread::scope(|threads| {
            threads.spawn(|| udp.client_gone(client(2 * round + 1)));
            threads.spawn(|| udp.take(&caller(2 * round + 2), HERE).unwrap());
        });
        assert!(has(&udp, 2 * round + 2) && ports(&udp) == 1, "round {round}");
        udp.client_gone(client(2 * round + 2));
        assert_eq!(ports(&udp), 0, "round {round}");
    }
}
