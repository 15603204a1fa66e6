//! The whole call by argument size: stubs that copy the argument into the message, stubs that refer
//! to the argument (string item, grant), and stubs within one process. Corresponds to figure 5 of
//! the paper in `published.rs`.

use std::cell::RefCell;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::Serialize;
use sojourn_ipc::rt::{self, Arrival, Caller, Served, ServerTransport as _};
use sojourn_ipc::{Deadline, Endpoint, Fault, Server as Serving, Wait};

use super::link::{bind, connect, waiting};
use super::looped::Looped;
use super::settings::Settings;
use crate::ipc::measure::{self, Settings as Rounds};
use crate::ipc::ours;
use crate::ipc::row::{Client, Kind, Mode, Row, Server, Sides, Sink, Source};
use crate::ipc::worker::Task;
use crate::os;

/// The stubs that `sojourn-idl` generates from `idl/blob.idl`.
#[allow(unreachable_pub, reason = "generated for any place")]
mod stubs {
    include!(concat!(env!("OUT_DIR"), "/own/blob.rs"));
}

use stubs::{BlobClient, BlobServer, BlobService, NearClient, NearLocal, NearServer, NearService};

/// One cell of the figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CallCell {
    /// The way in which the argument travels: the name of the row.
    pub(crate) style: String,
    /// Bytes of the argument.
    pub(crate) size: usize,
    /// Nanoseconds per call: median over rounds.
    pub(crate) ns: f64,
    /// The reason why there is no measured time.
    pub(crate) error: Option<String>,
}

/// Measures all styles at all sizes. Both sides spin if there are two processors; on one processor
/// they block, since a spinning side would keep the other from running.
pub(super) fn measure(settings: &Settings) -> Result<Vec<CallCell>> {
    let processors = os::processors();
    let first = *processors.first().context("no processor to run on")?;
    let last = *processors.last().context("no processor to run on")?;
    let rounds = Rounds {
        rounds: settings.rounds.div_ceil(4),
        batch_ns: settings.batch_ns,
        sizes: settings.sizes.clone(),
        clients: vec![1],
        processors: [last, first],
        quick: settings.quick,
    };
    let mode = if first == last { Mode::BlockOne } else { Mode::SpinTwo };
    let mut rows: Vec<Box<dyn Row>> = Vec::new();
    rows.push(Box::new(Looped));
    for style in [Style::Copied, Style::Referred, Style::Automatic] {
        rows.push(Box::new(Remote(style)));
    }
    rows.push(ours::granted());
    for direct in [false, true] {
        rows.push(Box::new(Local { direct, server_cpu: last }));
    }
    let cells = measure::alternate(&rows, mode, &[Task::Call], &settings.sizes, &rounds);
    let cell = |cell: measure::Cell| CallCell {
        style: cell.row,
        size: cell.size,
        ns: cell.ns,
        error: cell.error,
    };
    Ok(cells.into_iter().map(cell).collect())
}

/// Returns the bytes from which stubs with `reference_above(auto)` refer on this machine.
pub(super) fn reference_threshold() -> usize {
    rt::reference_threshold()
}

/// Names of the two rows between which [`crossover`] is sought.
pub(crate) const COPIED: &str = "copied (body)";
pub(crate) const REFERRED: &str = "referred (item)";

/// Returns the smallest size from which referring was never slower than copying.
pub(super) fn crossover(cells: &[CallCell]) -> Option<usize> {
    let find = |style: &str, size| {
        cells.iter().find(|c| c.style == style && c.size == size && c.ns > 0.0).map(|c| c.ns)
    };
    let mut sizes: Vec<usize> = cells.iter().map(|cell| cell.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let wins = |size: &&usize| Some(find(REFERRED, **size)? <= find(COPIED, **size)?);
    sizes.iter().rev().take_while(|size| wins(size).unwrap_or(false)).last().copied()
}

#[derive(Clone, Copy)]
enum Style {
    Copied,
    Referred,
    Automatic,
}

/// A row whose client and server are two processes.
struct Remote(Style);

impl Row for Remote {
    fn name(&self) -> &str {
        match self.0 {
            Style::Copied => COPIED,
            Style::Referred => REFERRED,
            Style::Automatic => "automatic",
        }
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (name, wait, style) = (ours::unique_name(), waiting(mode), self.0);
        let far = name.clone();
        Ok(Sides::new(
            move || {
                let endpoint = bind(&name, wait)?;
                let server = endpoint.server();
                let service = BlobService::new(Receiver::default());
                Ok(Answerer { server, service, _endpoint: endpoint })
            },
            move || {
                let client = BlobClient::bind(connect(&far, wait)?)?;
                Ok(Far { client, style, source: Source::new() })
            },
        ))
    }
}

/// The server object: checks the bytes that arrive.
#[derive(Default)]
struct Receiver(RefCell<Sink>);

impl Receiver {
    fn take(&self, bytes: &[u8]) -> Result<(), Fault> {
        let taken = self.0.borrow_mut().take(bytes, bytes.len());
        taken.map_err(|_| Fault::BAD_MESSAGE)
    }
}

impl BlobServer for Receiver {
    fn copied(&self, _: &Caller, bytes: &[u8]) -> Result<(), Fault> {
        self.take(bytes)
    }

    fn referred(&self, _: &Caller, bytes: &[u8]) -> Result<(), Fault> {
        self.take(bytes)
    }

    fn automatic(&self, _: &Caller, bytes: &[u8]) -> Result<(), Fault> {
        self.take(bytes)
    }
}

struct Answerer {
    server: Serving,
    service: BlobService<Receiver>,
    _endpoint: Endpoint,
}

impl Answerer {
    /// Answers `count` calls; the call that binds the client counts too.
    fn answer(&mut self, count: u64) -> Result<()> {
        let (mut left, mut ready) = (count, None);
        while left > 0 {
            if let Arrival::Call(request) = self.server.next(ready.take(), Deadline::NEVER)? {
                match rt::answer::<Serving>(&mut self.service, false, request) {
                    Served::Reply(reply) => ready = Some(reply),
                    Served::Done => bail!("an answer went missing"),
                    Served::Violation(_, error) => bail!("refused a request: {error}"),
                }
                left -= 1;
            }
        }
        ready.map_or(Ok(()), rt::Ready::send)?;
        Ok(())
    }
}

impl Server for Answerer {
    fn admit(&mut self, clients: usize) -> Result<()> {
        self.answer(clients as u64)
    }

    fn serve(&mut self, _: usize, count: u64) -> Result<()> {
        self.answer(count)
    }
}

struct Far {
    client: BlobClient,
    style: Style,
    source: Source,
}

impl Client for Far {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            let bytes = self.source.next(size);
            match self.style {
                Style::Copied => self.client.copied(bytes)?,
                Style::Referred => self.client.referred(bytes)?,
                Style::Automatic => self.client.automatic(bytes)?,
            }
        }
        Ok(())
    }
}

/// A row whose client and server are in one process: two threads, or a single one where the call is
/// direct.
struct Local {
    direct: bool,
    server_cpu: usize,
}

impl Row for Local {
    fn name(&self) -> &str {
        if self.direct { "in process, by reference" } else { "in process, marshalled" }
    }

    fn kind(&self) -> Kind {
        Kind::Ours
    }

    fn link(&self, mode: Mode) -> Result<Sides> {
        let (name, wait) = (ours::unique_name(), waiting(mode));
        let (direct, server_cpu) = (self.direct, self.server_cpu);
        Ok(Sides::new(|| Ok(Absent), move || Near::new(&name, wait, direct, server_cpu)))
    }
}

struct Absent;

impl Server for Absent {
    fn serve(&mut self, _: usize, _: u64) -> Result<()> {
        Ok(())
    }
}

/// The server object of the in-process rows. Two threads call it, so it keeps no state.
struct Shared;

impl NearServer for Shared {
    fn direct(&self, _: &Caller, bytes: &[u8]) -> Result<(), Fault> {
        Sink::take_any(bytes, bytes.len()).map_err(|_| Fault::BAD_MESSAGE)
    }

    fn marshalled(&self, _: &Caller, bytes: &[u8]) -> Result<(), Fault> {
        Sink::take_any(bytes, bytes.len()).map_err(|_| Fault::BAD_MESSAGE)
    }
}

struct Near {
    client: NearClient,
    direct: bool,
    source: Source,
    _endpoint: Endpoint,
}

impl Near {
    fn new(name: &str, wait: Wait, direct: bool, server_cpu: usize) -> Result<Self> {
        // The server thread of the marshalled row parks, because it must not take a processor while
        // other rows are measured: only the client spins.
        let endpoint = bind(name, if direct { wait } else { Wait::Adaptive })?;
        let object = Arc::new(Shared);
        let mut service = NearService::<Shared>::new(Arc::clone(&object));
        endpoint.set_local(Arc::new(NearLocal(object)));
        let mut server = endpoint.server();
        std::thread::Builder::new().spawn(move || {
            os::pin(server_cpu)?;
            service.serve(&mut server, Deadline::NEVER).map_err(|error| anyhow!("{error}"))
        })?;
        let client = NearClient::bind(connect(name, wait)?)?;
        Ok(Self { client, direct, source: Source::new(), _endpoint: endpoint })
    }
}

impl Client for Near {
    fn call(&mut self, size: usize, count: u64) -> Result<()> {
        for _ in 0..count {
            let bytes = self.source.next(size);
            if self.direct {
                self.client.direct(bytes)?;
            } else {
                self.client.marshalled(bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(style: &str, size: usize, ns: f64) -> CallCell {
        CallCell { style: style.into(), size, ns, error: None }
    }

    #[test]
    fn the_crossover_is_where_referring_wins_for_good() {
        let mut cells = Vec::new();
        for (size, copied, referred) in
            [(64, 1.0, 2.0), (128, 3.0, 2.0), (256, 3.0, 4.0), (512, 9.0, 5.0), (1024, 18.0, 6.0)]
        {
            cells.push(cell(COPIED, size, copied));
            cells.push(cell(REFERRED, size, referred));
        }
        assert_eq!(crossover(&cells), Some(512));
        assert_eq!(crossover(&cells[..2]), None);
    }
}
