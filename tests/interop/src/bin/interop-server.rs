//! `interop-server ADDRESS FILE SEED [CLIENTS]`: serves an example file until so many clients (one)
//! have come and gone; `0`: until it is killed. Ends with status 1 if a one-way message was wrong
//! of which no client can know.

use std::time::Duration;

use sojourn_interop::{Checked, Failure, LIFE_S, services};
use sojourn_ipc::rt::{self, Arrival, Served, ServerTransport as _, Service as _};
use sojourn_ipc::{Address, Deadline, Endpoint, Server, ServerOptions};

fn main() -> Result<(), Failure> {
    rt::set_reference_threshold(8);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, file, seed, clients) = match arguments.as_slice() {
        [address, file, seed] => (address, file, seed, 1),
        [address, file, seed, clients] => (address, file, seed, clients.parse()?),
        _ => return Err("usage: interop-server ADDRESS FILE SEED [CLIENTS]".into()),
    };
    let mut checked = services(file, seed.parse()?)?;
    let endpoint = Endpoint::bind(Address::parse(address)?, ServerOptions::default())?;
    let mut server = endpoint.server();
    if clients == 0 {
        let deadline = Deadline::after(Duration::from_secs(LIFE_S));
        return Ok(rt::serve(&mut server, &mut checked.router, deadline)?);
    }
    serve(&mut server, &mut checked, clients)?;
    Ok(checked.verdict()?)
}

/// As `rt::serve`, but ends when `clients` are gone.
fn serve(server: &mut Server, checked: &mut Checked, mut clients: u32) -> Result<(), Failure> {
    let deadline = Deadline::after(Duration::from_secs(LIFE_S));
    let mut ready = None;
    while clients > 0 {
        let served = match server.next(ready.take(), deadline)? {
            Arrival::Call(request) => rt::answer(&mut checked.router, false, request),
            Arrival::Send(request) => rt::answer(&mut checked.router, true, request),
            Arrival::Gone(client) => {
                checked.router.gone(client);
                clients -= 1;
                continue;
            }
            Arrival::Idle => return Err("nobody came, or nobody went".into()),
            _ => continue,
        };
        match served {
            Served::Reply(reply) => ready = Some(reply),
            Served::Done => {}
            Served::Violation(_, error) => return Err(error.into()),
        }
    }
    Ok(())
}
