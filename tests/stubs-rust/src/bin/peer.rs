//! The Rust end of cross-language tests: drives or serves the interfaces of an example file with
//! the random values of `docs/idl-random.md`.
//!
//! `peer client FILE ADDRESS SEED ROUNDS` or `peer server FILE ADDRESS SEED`, with FILE one of
//! calc, everything, files, paper. The client fails with a text if an answer is wrong; the server
//! runs until it is killed, or for a minute.

use std::time::Duration;

use sojourn_ipc::rt;
use sojourn_ipc::{Address, ConnectOptions, Connection, Deadline, Endpoint, Server, ServerOptions};
use sojourn_stubs_rust::{calc, everything, files, paper};

type Failure = Box<dyn std::error::Error>;

/// Binds each interface in turn on one connection and drives it.
macro_rules! drive {
    ($connection:expr, $seed:expr, $rounds:expr, $($client:path, $drive:path);* $(;)?) => {{
        let mut connection = $connection;
        let deadline = || Deadline::after(Duration::from_secs(60));
        $(
            let mut client = <$client>::bind_by(connection, deadline())?;
            $drive(&mut client, $seed, $rounds)?;
            connection = client.into_inner();
        )*
        drop(connection);
    }};
}

fn client(file: &str, connection: Connection, seed: u64, rounds: u64) -> Result<(), Failure> {
    match file {
        "calc" => {
            drive!(connection, seed, rounds, calc::CalcClient<Connection>, calc::calc_random::drive)
        }
        "everything" => drive!(connection, seed, rounds,
            everything::ObserverClient<Connection>, everything::observer_random::drive;
            everything::EverythingBaseClient<Connection>, everything::everything_base_random::drive;
            everything::EverythingClient<Connection>, everything::everything_random::drive),
        "files" => drive!(
            connection,
            seed,
            rounds,
            files::FilesClient<Connection>,
            files::files_random::drive
        ),
        "paper" => drive!(
            connection,
            seed,
            rounds,
            paper::PaperClient<Connection>,
            paper::paper_random::drive
        ),
        _ => return Err(format!("no such file: {file}").into()),
    }
    Ok(())
}

fn services(file: &str, seed: u64) -> Result<rt::Router<Server>, Failure> {
    use calc::calc_random::CalcOracle;
    use everything::everything_base_random::EverythingBaseOracle;
    use everything::everything_random::EverythingOracle;
    use everything::observer_random::ObserverOracle;
    use files::files_random::FilesOracle;
    use paper::paper_random::PaperOracle;

    let mut router = rt::Router::new();
    match file {
        "calc" => router.add(calc::CalcService::<CalcOracle>::new(CalcOracle::new(seed)))?,
        "everything" => {
            let observer = ObserverOracle::new(seed);
            router.add(everything::ObserverService::<ObserverOracle>::new(observer))?;
            let base = EverythingBaseOracle::new(seed);
            router.add(everything::EverythingBaseService::<EverythingBaseOracle>::new(base))?;
            let all = EverythingOracle::new(seed);
            router.add(everything::EverythingService::<EverythingOracle>::new(all))?;
        }
        "files" => router.add(files::FilesService::<FilesOracle>::new(FilesOracle::new(seed)))?,
        "paper" => router.add(paper::PaperService::<PaperOracle>::new(PaperOracle::new(seed)))?,
        _ => return Err(format!("no such file: {file}").into()),
    }
    Ok(router)
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    // Small enough that every kind of array goes by reference now and then.
    rt::set_reference_threshold(24);
    match arguments.as_slice() {
        ["client", file, address, seed, rounds] => {
            let address = Address::parse(address)?;
            let connection = Connection::connect(address, &ConnectOptions::default())?;
            client(file, connection, seed.parse()?, rounds.parse()?)
        }
        ["server", file, address, seed] => {
            let address = Address::parse(address)?;
            let endpoint = Endpoint::bind(address, ServerOptions::default())?;
            let mut router = services(file, seed.parse()?)?;
            let deadline = Deadline::after(Duration::from_secs(60));
            Ok(rt::serve(&mut endpoint.server(), &mut router, deadline)?)
        }
        _ => {
            Err("usage: peer client FILE ADDRESS SEED ROUNDS | peer server FILE ADDRESS SEED"
                .into())
        }
    }
}
