//! The server of the tests: one small operation for everything that can travel.

use super::child::{say, wait_for_parent};
use sojourn_ipc::{
    Address, Badge, Deadline, Endpoint, Event, Fault, KeptGrant, ReadyReply, Reason, ReplyToken,
    Request, Server, ServerOptions, Wait,
};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

/// Body and items come back.
pub const ECHO: u16 = 1;
/// Answered only when `RELEASE` comes.
pub const KEEP: u16 = 2;
/// Answers what was kept with `late`, then itself.
pub const RELEASE: u16 = 3;
/// Descriptors come back.
pub const FDS: u16 = 4;
/// Answers the bytes of grant 0; writes `!` over its first byte if the body is `w`.
pub const GRANT: u16 = 5;
/// Keeps grant 0; answers 1 if it may.
pub const KEEP_GRANT: u16 = 6;
/// Answers the bytes of the kept grant.
pub const KEPT: u16 = 7;
/// Badge, pid, uid, gid, index, generation: u64 each.
pub const WHO: u16 = 8;
/// Drops its token.
pub const DROP: u16 = 9;
/// One-way: counts, and checks the order.
pub const COUNT: u16 = 10;
/// How many came, and whether in order.
pub const COUNTED: u16 = 11;
/// Answers a body of as many bytes as the body (u64) says, each the low byte of its place.
pub const SIZED: u16 = 12;
/// Open descriptors of the server, its clients: u64 each.
pub const STATE: u16 = 13;
/// Expels the caller.
pub const EXPEL: u16 = 14;
/// Answers so many (u64) descriptors.
pub const GIVE: u16 = 15;
/// Addresses of body and item 0: u64 each.
pub const WHERE: u16 = 16;
/// Takes the request and never looks at it again; answered when `RELEASE` comes. One-way.
pub const FDS_SENT: u16 = 17;
/// An answer that was put together and dropped.
pub const UNSENT: u16 = 18;
/// Descriptors along with an answer that is too large.
pub const GIVE_TOO_MUCH: u16 = 19;
/// How many clients have gone, and the reason of the last: u64 each.
pub const GONE: u16 = 20;
/// How many late answers found their client gone: u64.
pub const UNHEARD: u16 = 21;

#[derive(Default)]
struct State {
    kept: Vec<ReplyToken>,
    count: u32,
    in_order: bool,
    grants: HashMap<u32, KeptGrant>,
    gone: u64,
    unheard: u64,
    last_reason: u64,
    next_badge: u64,
}

pub fn open_fds() -> u64 {
    std::fs::read_dir("/proc/self/fd").unwrap().count() as u64 - 1
}

/// Serves until the endpoint closes.
pub fn serve(mut server: Server) {
    let mut state = State { in_order: true, next_badge: 1000, ..Default::default() };
    let mut reply = None;
    while let Ok(event) = server.reply_wait(reply.take(), Deadline::NEVER) {
        match event {
            Event::Call(request) if request.op() == STATE => {
                let token = request.into_token();
                reply = Some(numbers(token, &[open_fds(), server.clients() as u64]));
            }
            Event::Call(request) if request.op() == EXPEL => {
                let client = request.client();
                server.expel(client, Reason::Expelled);
            }
            Event::Call(request) => reply = state.call(request),
            Event::Send(request) if request.op() == COUNT => {
                state.in_order &= request.body() == state.count.to_ne_bytes();
                state.count += 1;
            }
            Event::Send(_) => {}
            Event::Notify { client, bits, .. } => {
                server.notify(client, bits << 1);
            }
            Event::Connected { client, .. } => {
                server.set_badge(client, Badge(state.next_badge));
                state.next_badge += 1;
            }
            Event::Gone { reason, .. } => {
                state.gone += 1;
                state.last_reason = u64::from(reason.code());
            }
        }
    }
}

impl State {
    fn call(&mut self, request: Request<'_>) -> Option<ReadyReply> {
        Some(match request.op() {
            KEEP => {
                self.kept.push(request.into_token());
                return None;
            }
            RELEASE => {
                for token in self.kept.drain(..) {
                    self.unheard += u64::from(answer(token, b"late", &[]).send().is_err());
                }
                echo(request)
            }
            FDS | GIVE | GIVE_TOO_MUCH => descriptors(request),
            GRANT => self.grant(request),
            KEEP_GRANT => {
                let kept = request.keep_grant(0);
                let has = u64::from(kept.is_some());
                kept.and_then(|kept| self.grants.insert(request.client().index, kept));
                numbers(request.into_token(), &[has])
            }
            KEPT => {
                let span = self.grants.get(&request.client().index).and_then(KeptGrant::span);
                let mut bytes = vec![0; span.map_or(0, |span| span.len())];
                span.map(|span| span.copy_to(&mut bytes));
                answer(request.into_token(), &bytes, &[])
            }
            WHO => {
                let (who, client) = (request.credentials(), request.client());
                let ids = [who.uid, who.gid, client.index, client.generation].map(u64::from);
                let all = [&[request.badge().0, who.pid as u64], &ids[..]].concat();
                numbers(request.into_token(), &all)
            }
            DROP => {
                drop(request.into_token());
                return None;
            }
            UNSENT => {
                drop(answer(request.into_token(), b"unsent", &[]));
                return None;
            }
            COUNTED => {
                let (count, order) = (u64::from(self.count), u64::from(self.in_order));
                numbers(request.into_token(), &[count, order])
            }
            SIZED => {
                let body: Vec<u8> = (0..number(&request)).map(|n| n as u8).collect();
                answer(request.into_token(), &body, &[])
            }
            WHERE => {
                let at = [request.body().as_ptr(), request.item(0).unwrap_or(&[]).as_ptr()];
                numbers(request.into_token(), &at.map(|at| at as u64))
            }
            UNHEARD => numbers(request.into_token(), &[self.unheard]),
            GONE => numbers(request.into_token(), &[self.gone, self.last_reason]),
            _ => echo(request),
        })
    }

    fn grant(&self, request: Request<'_>) -> ReadyReply {
        let Some(span) = request.grant(0) else {
            return request.into_token().fault(Fault(77));
        };
        let mut bytes = vec![0; span.len()];
        span.copy_to(&mut bytes);
        if request.body() == b"w" {
            span.copy_from(b"!");
        }
        answer(request.into_token(), &bytes, &[])
    }
}

fn number(request: &Request<'_>) -> u64 {
    let body: Option<[u8; 8]> = request.body().try_into().ok();
    body.map_or(0, u64::from_ne_bytes)
}

fn descriptors(mut request: Request<'_>) -> ReadyReply {
    let fd: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
    let number = number(&request);
    match request.op() {
        FDS => {
            let fds: Vec<_> = (0..16).map_while(|index| request.take_fd(index)).collect();
            give(request.into_token(), &fds, 0)
        }
        GIVE => {
            let fds: Vec<_> = (0..number).map(|_| fd.try_clone().unwrap()).collect();
            give(request.into_token(), &fds, 0)
        }
        _ => give(request.into_token(), &[fd], number as usize),
    }
}

fn echo(request: Request<'_>) -> ReadyReply {
    let body = request.body().to_vec();
    let items: Vec<Vec<u8>> = (0..).map_while(|index| item(&request, index)).collect();
    answer(request.into_token(), &body, &items)
}

/// A copy of an item, wherever it is.
fn item(request: &Request<'_>, index: usize) -> Option<Vec<u8>> {
    let mut copy = vec![0; request.item_len(index)?];
    match (request.item(index), request.item_span(index)) {
        (Some(bytes), None) => copy.copy_from_slice(bytes),
        (None, Some(span)) => assert_eq!(span.copy_to(&mut copy), copy.len()),
        either => panic!("{either:?}"),
    }
    Some(copy)
}

fn give(token: ReplyToken, fds: &[OwnedFd], len: usize) -> ReadyReply {
    let body = vec![0; len];
    let mut draft = token.start(len);
    draft.encoder().put_bytes(&body).unwrap();
    for fd in fds {
        draft.encoder().put_fd(fd.as_fd()).unwrap();
    }
    draft.finish()
}

fn numbers(token: ReplyToken, numbers: &[u64]) -> ReadyReply {
    let body: Vec<u8> = numbers.iter().flat_map(|n| n.to_ne_bytes()).collect();
    answer(token, &body, &[])
}

pub fn answer(token: ReplyToken, body: &[u8], items: &[Vec<u8>]) -> ReadyReply {
    let mut draft = token.start(body.len());
    draft.encoder().put_bytes(body).unwrap();
    for item in items {
        draft.encoder().put_item(item).unwrap();
    }
    draft.finish()
}

/// Options as the words that a child reads.
pub fn words(options: &ServerOptions) -> Vec<String> {
    let wait = match options.wait {
        Wait::Adaptive => "adaptive",
        Wait::Park => "park",
        Wait::Spin(None) => "spin",
        Wait::Spin(Some(_)) => "bounded",
        Wait::Yield => "yield",
    };
    let numbers = [
        options.area,
        options.max_message,
        u64::from(options.max_inflight),
        u64::from(options.max_clients),
        options.max_granted,
        u64::from(options.clients_per_user_max),
        u64::from(options.items_in_place),
    ];
    std::iter::once(wait.into()).chain(numbers.map(|n| n.to_string())).collect()
}

fn options(words: &[&str]) -> ServerOptions {
    let number = |at: usize| words[at].parse::<u64>().unwrap();
    ServerOptions {
        wait: match words[0] {
            "park" => Wait::Park,
            "spin" => Wait::Spin(None),
            "yield" => Wait::Yield,
            "bounded" => Wait::Spin(Some(std::time::Duration::from_micros(50))),
            _ => Wait::Adaptive,
        },
        area: number(1),
        max_message: number(2),
        max_inflight: number(3) as u32,
        max_clients: number(4) as u32,
        max_granted: number(5),
        clients_per_user_max: number(6) as u32,
        items_in_place: number(7) == 1,
        own_user: None,
    }
}

/// The role `serve ADDRESS THREADS OPTIONS...`.
pub fn serve_as_child(words: &[&str]) {
    let endpoint = Endpoint::bind(Address::parse(words[0]).unwrap(), options(&words[2..]));
    let endpoint = match endpoint {
        Ok(endpoint) => endpoint,
        Err(error) => return say("failed", format!("{error:?}")),
    };
    let threads: Vec<_> = (0..words[1].parse::<usize>().unwrap())
        .map(|_| {
            let server = endpoint.server();
            std::thread::spawn(move || serve(server))
        })
        .collect();
    say("ready", std::process::id());
    wait_for_parent();
    drop(endpoint);
    for thread in threads {
        thread.join().unwrap();
    }
}
