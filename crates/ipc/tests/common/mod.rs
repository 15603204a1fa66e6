//! An echo server, calls with a time limit, and the watchdog of every test that could hang.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use sojourn_ipc::{
    Address, CallError, ConnectOptions, Connection, Deadline, Endpoint, Event, ReadyReply,
    ReplyToken, Request, Server, ServerOptions, Wait,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends the process, loudly, unless dropped in time.
pub fn watchdog(seconds: u64) -> impl Drop {
    struct Watchdog(#[allow(dead_code, reason = "its drop is the message")] Sender<()>);
    impl Drop for Watchdog {
        fn drop(&mut self) {}
    }
    let (alive, dropped) = channel();
    let test = std::thread::current().name().unwrap_or("test").to_owned();
    std::thread::spawn(move || {
        if dropped.recv_timeout(Duration::from_secs(seconds)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("watchdog: {test} hung for {seconds} s");
            std::process::abort();
        }
    });
    Watchdog(alive)
}

pub fn limit() -> Deadline {
    Deadline::after(Duration::from_secs(20))
}

/// A fresh abstract name.
pub fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("sojourn-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn call(connection: &mut Connection, op: u16, body: &[u8]) -> Result<Vec<u8>, CallError> {
    let mut draft = connection.start(op, body.len());
    draft.encoder().put_bytes(body)?;
    Ok(draft.call(limit())?.body().to_vec())
}

pub fn call_with_items(
    connection: &mut Connection,
    body: &[u8],
    items: &[&[u8]],
) -> Result<(Vec<u8>, Vec<Vec<u8>>), CallError> {
    let mut draft = connection.start(1, body.len());
    draft.encoder().put_bytes(body)?;
    for item in items {
        draft.encoder().put_item(item)?;
    }
    let reply = draft.call(limit())?;
    let back = (0..).map_while(|index| reply.item(index)).collect();
    Ok((reply.body().to_vec(), back))
}

pub struct Echo {
    pub name: String,
    endpoint: Option<Endpoint>,
    threads: Vec<JoinHandle<()>>,
}

impl Echo {
    pub fn start(options: ServerOptions) -> Self {
        Self::start_threads(1, options)
    }

    pub fn start_with(wait: Wait) -> Self {
        Self::start(ServerOptions { wait, ..Default::default() })
    }

    pub fn start_threads(threads: usize, options: ServerOptions) -> Self {
        let name = name();
        let endpoint = Endpoint::bind(Address::abstract_name(&name), options).unwrap();
        let threads = (0..threads)
            .map(|_| {
                let server = endpoint.server();
                std::thread::spawn(move || serve(server))
            })
            .collect();
        Self { name, endpoint: Some(endpoint), threads }
    }

    pub fn connect(&self) -> Connection {
        self.connect_with(Wait::Adaptive)
    }

    pub fn connect_with(&self, wait: Wait) -> Connection {
        let options = ConnectOptions { wait, ..Default::default() };
        Connection::connect(Address::abstract_name(&self.name), &options).unwrap()
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.endpoint.take());
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

/// Answers 1 with what came; keeps 2 until 3 comes; counts 10 and reports with 11.
pub fn serve(mut server: Server) {
    let mut kept: Vec<ReplyToken> = vec![];
    let (mut count, mut in_order) = (0u32, 1u32);
    let mut reply = None;
    while let Ok(event) = server.reply_wait(reply.take(), Deadline::NEVER) {
        match event {
            Event::Call(request) => match request.op() {
                2 => kept.push(request.into_token()),
                11 => {
                    let body = [count.to_ne_bytes(), in_order.to_ne_bytes()].concat();
                    reply = Some(answer(request.into_token(), &body, &[]));
                }
                op => {
                    if op == 3 {
                        kept.drain(..).for_each(|token| {
                            let _ = answer(token, b"late", &[]).send();
                        });
                    }
                    reply = Some(echo(request));
                }
            },
            Event::Send(request) => {
                in_order &= u32::from(request.body() == count.to_ne_bytes());
                count += 1;
            }
            Event::Notify { client, bits, .. } => {
                server.notify(client, bits << 1);
            }
            _ => {}
        }
    }
}

fn echo(request: Request<'_>) -> ReadyReply {
    let body = request.body().to_vec();
    let items: Vec<Vec<u8>> =
        (0..).map_while(|index| request.item(index).map(<[u8]>::to_vec)).collect();
    answer(request.into_token(), &body, &items)
}

pub fn answer(token: ReplyToken, body: &[u8], items: &[Vec<u8>]) -> ReadyReply {
    let mut draft = token.start(body.len());
    draft.encoder().put_bytes(body).unwrap();
    for item in items {
        draft.encoder().put_item(item).unwrap();
    }
    draft.finish()
}
