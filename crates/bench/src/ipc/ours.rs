//! Sojourn's own rows: short calls within the lines of a message, larger ones as string items, as
//! bodies, and by grant.
#![allow(unsafe_code, reason = "a grant is filled and read in place, by raw pointers")]

use anyhow::{Context as _, Result, bail};
use sojourn_ipc::{
    Access, Address, ConnectOptions, Connection, Deadline, Endpoint, Event, Grant, GrantId,
    INLINE_MAX, Memory, ReadyReply, Request, Server as Serving, ServerOptions, Span, Wait,
};

use super::row::{
    Client, Crowd, Kind, Make, Many, Mode, Row, SIZE_MAX, Server, Sides, Sink, Source, Stamps,
    produce,
};

/// The way in which a message that is larger than the message's own lines travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// As a string item, which is copied once, by the side that can do so at the least cost.
    Item,
    /// As a string item that the server does not copy but reads where the client has copied it to.
    InPlace,
    /// In the body.
    Body,
    /// As a grant: a region registered beforehand, which the client fills and the server reads in
    /// place.
    Grant,
}

/// The row of one style with one way of waiting.
struct Sojourn {
    style: Style,
    /// True: spins for about the cost of a wake-up, then sleeps. False: spins or sleeps as the mode
    /// says.
    adaptive: bool,
}

/// Returns the rows of the table of round trips.
pub(super) fn all() -> Vec<Box<dyn Row>> {
    let row = |style, adaptive| -> Box<dyn Row> { Box::new(Sojourn { style, adaptive }) };
    vec![
        row(Style::Item, false),
        row(Style::Item, true),
        row(Style::InPlace, false),
        row(Style::Body, false),
        row(Style::Grant, false),
    ]
}

/// Returns the rows of the table of bandwidth.
pub(super) fn streaming() -> Vec<Box<dyn Row>> {
    let row = |style| -> Box<dyn Row> { Box::new(Sojourn { style, adaptive: false }) };
    vec![row(Style::Item), row(Style::InPlace)]
}

impl Row for Sojourn {
    fn name(&self) -> &str {
        match (self.style, self.adaptive) {
            (Style::Item, false) => "sojourn",
            (Style::Item, true) => "sojourn, adaptive",
            (Style::InPlace, _) => "sojourn, read in place",
            (Style::Body, _) => "sojourn, in the body",
            (Style::Grant, _) => "sojourn, grant (no copy)",
        }
    }

    fn kind(&self) -> Kind {
        if self.style == Style::Grant { Kind::OursInPlace } else { Kind::Ours }
    }

    fn supports(&self, mode: Mode, size: usize) -> bool {
        // Adaptive waiting on two processors spins: that row would be called blocking but is not.
        let sleeps = !(self.adaptive && mode == Mode::BlockTwo);
        let differs = size > INLINE_MAX || self.style == Style::Item;
        sleeps && (differs || self.style == Style::Grant)
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let wait = match (self.adaptive, mode.spins()) {
            (true, _) => Wait::Adaptive,
            (false, true) => Wait::Spin(None),
            (false, false) => Wait::Park,
        };
        let name = unique_name();
        let (far, style) = (name.clone(), self.style);
        let in_place = style == Style::InPlace;
        Ok(Sides::new(
            move || Answerer::new(&name, wait, in_place),
            move || Caller::new(&far, wait, style),
        ))
    }
}

/// Returns the row of grants alone.
pub(crate) fn granted() -> Box<dyn Row> {
    Box::new(Sojourn { style: Style::Grant, adaptive: false })
}

/// Returns an endpoint name that nothing else uses. The coordinator makes it, so that server and
/// client know it.
pub(crate) fn unique_name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("sojourn-bench-{}-own-{number}", std::process::id())
}

/// The server of the rows.
struct Answerer {
    server: Serving,
    sink: Sink,
    /// Number of connected clients. Messages of several clients interleave, so that their numbers
    /// form no single sequence and are not checked as one.
    clients: usize,
    _endpoint: Endpoint,
}

impl Answerer {
    fn new(name: &str, wait: Wait, items_in_place: bool) -> Result<Self> {
        let options = ServerOptions { wait, items_in_place, ..ServerOptions::default() };
        let endpoint = Endpoint::bind(Address::abstract_name(name), options)?;
        let server = endpoint.server();
        Ok(Self { server, sink: Sink::default(), clients: 0, _endpoint: endpoint })
    }
}

/// Checks a message that arrived, in any of the ways of transfer.
fn receive(request: &Request<'_>, sink: &mut Sink, size: usize, one: bool) -> Result<()> {
    if let Some(span) = request.grant(0) {
        return sink.take_in_place(lent(&span), size);
    }
    if let Some(span) = request.item_span(0) {
        // Loads one word of every cache line and the words at both ends. The client can write to
        // this memory, so each word is loaded once.
        for at in (8..size).step_by(64) {
            std::hint::black_box(span.load(at));
        }
        let last = || size.checked_sub(8).and_then(|last| span.load(last));
        let ends = span.load(0).and_then(|first| Some(Stamps { first, last: last()? }));
        return sink.take_ends(ends, span.len(), size);
    }
    let message = match request.item(0) {
        Some(item) => item,
        None => request.body(),
    };
    if one { sink.take(message, size) } else { Sink::take_any(message, size) }
}

/// Returns the bytes of a grant.
fn lent<'a>(span: &'a Span<'_>) -> &'a [u8] {
    // SAFETY: mapped as long as `span` lives. Only this benchmark's client could write there, and
    // the client waits for the reply meanwhile; a real server would copy or use volatile loads.
    unsafe { std::slice::from_raw_parts(span.as_ptr(), span.len()) }
}

impl Server for Answerer {
    fn admit(&mut self, clients: usize) -> Result<()> {
        while self.clients < clients {
            match self.server.recv(Deadline::NEVER)? {
                Event::Connected { .. } => self.clients += 1,
                other => bail!("before everybody was there: {other:?}"),
            }
        }
        Ok(())
    }

    fn serve(&mut self, size: usize, count: u64) -> Result<()> {
        let mut ready: Option<ReadyReply> = None;
        let mut left = count;
        let one = self.clients == 1;
        while left > 0 {
            if let Event::Call(request) = self.server.reply_wait(ready.take(), Deadline::NEVER)? {
                receive(&request, &mut self.sink, size, one)?;
                ready = Some(request.into_token().start(0).finish());
                left -= 1;
            }
        }
        ready.context("no reply to send")?.send()?;
        Ok(())
    }

    fn absorb(&mut self, size: usize, count: u64) -> Result<()> {
        let mut left = count;
        loop {
            match self.server.recv(Deadline::NEVER)? {
                Event::Send(request) => {
                    receive(&request, &mut self.sink, size, true)?;
                    left -= 1;
                }
                Event::Call(request) if left == 0 => {
                    request.into_token().start(0).finish().send()?;
                    return Ok(());
                }
                other => bail!("in a stream: {other:?}"),
            }
        }
    }
}

/// The client of the rows.
struct Caller {
    connection: Connection,
    style: Style,
    source: Source,
    memory: Option<Granted>,
}

/// Memory that the server may read.
struct Granted {
    memory: Memory,
    /// The number by which the connection knows it.
    id: GrantId,
}

impl Caller {
    fn new(name: &str, wait: Wait, style: Style) -> Result<Self> {
        let options = ConnectOptions { wait, ..ConnectOptions::default() };
        let mut connection = Connection::connect(Address::abstract_name(name), &options)?;
        let memory = match style {
            Style::Grant => {
                let memory = Memory::new(SIZE_MAX, Access::Read)?;
                let id = connection.register(&memory, Deadline::NEVER)?;
                Some(Granted { memory, id })
            }
            _ => None,
        };
        Ok(Self { connection, style, source: Source::new(), memory })
    }

    /// Makes the next message in the granted memory.
    fn lend(&mut self, size: usize) -> Result<Grant> {
        let Granted { memory, id } = self.memory.as_ref().context("no memory to lend")?;
        let span = memory.span(0, size).context("larger than what is lent")?;
        // SAFETY: this process's own mapping, to which nothing else writes; the server reads it
        // only during a call.
        let bytes = unsafe { std::slice::from_raw_parts_mut(span.as_ptr(), size) };
        produce(bytes, self.source.next_number());
        Ok(Grant { id: *id, flags: 0, offset: 0, len: size as u64 })
    }

    fn by_item(&mut self, size: usize) -> Result<()> {
        let message = self.source.next(size);
        let mut draft = self.connection.start(1, 0);
        draft.encoder().put_item(message)?;
        draft.call(Deadline::NEVER)?;
        Ok(())
    }

    fn by_body(&mut self, size: usize) -> Result<()> {
        let message = self.source.next(size);
        let mut draft = self.connection.start(1, size);
        draft.encoder().put_bytes(message)?;
        draft.call(Deadline::NEVER)?;
        Ok(())
    }

    fn by_grant(&mut self, size: usize) -> Result<()> {
        let grant = self.lend(size)?;
        let mut draft = self.connection.start(1, 0);
        draft.encoder().grant(grant)?;
        draft.call(Deadline::NEVER)?;
        Ok(())
    }
}

impl Client for Caller {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        let short = size <= INLINE_MAX;
        for _ in 0..count {
            match self.style {
                Style::Grant if size > 0 => self.by_grant(size)?,
                Style::Item | Style::InPlace if !short => self.by_item(size)?,
                _ => self.by_body(size)?,
            }
        }
        Ok(())
    }

    fn stream(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            let message = self.source.next(size);
            let mut draft = self.connection.start(1, 0);
            draft.encoder().put_item(message)?;
            draft.send(Deadline::NEVER)?;
        }
        self.connection.start(2, 0).call(Deadline::NEVER)?;
        Ok(())
    }
}

/// Returns the servers of many clients.
pub(super) fn crowds() -> Vec<Crowd> {
    vec![
        Crowd { name: "sojourn, adaptive", make: |count| crowd(count, Wait::Adaptive) },
        Crowd { name: "sojourn, park", make: |count| crowd(count, Wait::Park) },
    ]
}

fn crowd(count: usize, wait: Wait) -> Result<Many> {
    let name = unique_name();
    let clients = (0..count).map(|_| {
        let name = name.clone();
        let make: Make<Box<dyn Client>> =
            Box::new(move || Ok(Box::new(Caller::new(&name, wait, Style::Item)?)));
        make
    });
    let clients = clients.collect();
    let server: Make<Box<dyn Server>> =
        Box::new(move || Ok(Box::new(Answerer::new(&name, wait, false)?)));
    Ok(Many { server, clients })
}
