//! `sojourn-udpd`: reads the command line and starts the server.

mod flags;

use clap::Parser as _;
use flags::Flags;
use socket2::{Domain, Protocol, Socket, Type};
use sojourn_ipc::{Address, Deadline, Endpoint, ServerOptions};
use sojourn_udp::{Echoes, Handler, Udp, UdpService};
use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let flags = Flags::parse();
    let done = match flags.printed() {
        Ok(Some(text)) => std::io::stdout().write_all(&text).map_err(Into::into),
        Ok(None) => serve(&flags),
        Err(error) => Err(error.into()),
    };
    let Err(error) = done else { return ExitCode::SUCCESS };
    eprintln!("sojourn-udpd: {error}");
    ExitCode::FAILURE
}

/// Serves until the process is killed.
fn serve(flags: &Flags) -> Result<(), Box<dyn Error>> {
    let raw = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::UDP));
    raw.map_err(|error| format!("raw sockets: {error}. They take CAP_NET_RAW: start as root"))?;
    let wait = flags.wait.into();
    let udp = Udp::new(flags.spin_on_network);
    let echoes = Echoes(flags.echo.iter().map(|local| local.port()).collect());
    for local in &flags.echo {
        let echoes = echoes.clone();
        let echo: Handler = Box::new(move |port, from, data| {
            // A failed answer counts as lost.
            if echoes.may_answer(port.local().port(), from) {
                let _ = port.send(from, data);
            }
        });
        udp.open_here(*local, echo).map_err(|error| format!("port {local}: {error}"))?;
    }
    let address = Address::parse(&flags.address)?;
    if let Address::Path(path) = &address {
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    // Any user may connect: the server checks rights when a port is bound, as the kernel does.
    let before = rustix::process::umask(rustix::fs::Mode::empty());
    let endpoint = Endpoint::bind(address, ServerOptions { wait, ..Udp::options() });
    rustix::process::umask(before);
    let endpoint = endpoint?;
    let service = UdpService::<Udp>::new(udp);
    println!("ready {}", flags.address);
    std::thread::scope(|threads| {
        for _ in 0..flags.threads.get() {
            let (mut server, mut service) = (endpoint.server(), service.clone());
            threads.spawn(move || service.serve(&mut server, Deadline::NEVER));
        }
    });
    Ok(())
}
