//! Smallest complete program: a server and a client in two processes, and the time of a call.
//!
//! `cargo run --release -p sojourn-ipc --example ping [spin|adaptive|park] [one|two]`
//!
//! The program pins both processes to one processor or to two, makes a hundred thousand calls with
//! eight bytes each way, and prints the median over batches of calls. Serious figures come from
//! `cargo xtask bench ipc`.

use sojourn_ipc::{
    Address, ConnectOptions, Connection, Deadline, Endpoint, Event, ServerOptions, Wait,
};
use std::time::{Duration, Instant};

const NAME: &str = "sojourn-example-ping";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is = |word: &str| arguments.iter().any(|argument| argument == word);
    let wait = match () {
        () if is("spin") => Wait::Spin(None),
        () if is("park") => Wait::Park,
        () => Wait::Adaptive,
    };
    if is("serve") {
        return serve(wait);
    }
    pin(0);
    let mut server = std::process::Command::new(std::env::current_exe()?)
        .arg("serve")
        .args(&arguments)
        .spawn()?;
    let result = measure(wait);
    server.kill()?;
    server.wait()?;
    result
}

fn serve(wait: Wait) -> Result<(), Box<dyn std::error::Error>> {
    pin(usize::from(!std::env::args().any(|argument| argument == "one")));
    let options = ServerOptions { wait, ..Default::default() };
    let endpoint = Endpoint::bind(Address::abstract_name(NAME), options)?;
    let mut server = endpoint.server();
    let mut reply = None;
    loop {
        if let Event::Call(request) = server.reply_wait(reply.take(), Deadline::NEVER)? {
            let number = request.body().try_into().map(u64::from_ne_bytes).unwrap_or(0);
            let mut draft = request.into_token().start(8);
            draft.encoder().put_bytes(&(number + 1).to_ne_bytes())?;
            reply = Some(draft.finish());
        }
    }
}

fn connect(wait: Wait) -> Result<Connection, Box<dyn std::error::Error>> {
    let options = ConnectOptions { wait, ..Default::default() };
    let limit = Instant::now() + Duration::from_secs(5);
    loop {
        match Connection::connect(Address::abstract_name(NAME), &options) {
            Ok(connection) => return Ok(connection),
            Err(error) if Instant::now() > limit => return Err(error.into()),
            // The server is a new process and may not listen yet.
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

fn measure(wait: Wait) -> Result<(), Box<dyn std::error::Error>> {
    const BATCH: u32 = 100;
    let mut connection = connect(wait)?;
    let mut batches = Vec::new();
    let mut number = 0u64;
    for _ in 0..1000 {
        let start = Instant::now();
        for _ in 0..BATCH {
            let mut draft = connection.start(1, 8);
            draft.encoder().put_bytes(&number.to_ne_bytes())?;
            let reply = draft.call(Deadline::NEVER)?;
            number = reply.body().try_into().map(u64::from_ne_bytes)?;
        }
        batches.push(start.elapsed() / BATCH);
    }
    assert_eq!(number, 1000 * u64::from(BATCH));
    batches.sort_unstable();
    println!("{wait:?}: {:?} per call and answer (median)", batches[batches.len() / 2]);
    Ok(())
}

fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    // A failure to pin is ignored: it only makes the figures noisier.
    let _ = rustix::thread::sched_setaffinity(None, &set);
}
