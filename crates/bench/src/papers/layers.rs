//! The time of each layer: *Protocol Service Decomposition for High-Performance Networking* (1993),
//! table 4, beside the stamps of `sojourn_time`.
//!
//! The two hosts are network namespaces with a veth pair as link; one thread sends requests and
//! another answers. Not here: the rows made of stamps (`sojourn_time`), tables 2 and 3
//! (`decomposition`).

mod library;

use super::model::{Line, Measure, Section, Today, Unit};
use super::published::{DECOMPOSITION_4, Published, read};
use crate::net::way::Stacks;
use crate::net::world::World;
use anyhow::{Context, Result};
use sojourn_lab::net::{End, Host, Link};
use sojourn_time::{Cell, Distribution, Home, Ledger, Programs, Row, Session};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

const PAPER: &str = "Maeda, Bershad: Protocol Service Decomposition for High-Performance Networking (SOSP 1993), table 4: microseconds by layer; x marks a protection boundary. Base: the total.";

const HOW: &str = "Two hosts are network namespaces of one machine, the link is a veth pair. A program's blocking calls, its \
    messages there and back; the client's side is stamped: in the kernel by eBPF, as `sojourn time` does, on any program. The \
    stamps' own time is taken off. A figure is the median of its row, so that the rows' sum may differ from the total's median. \
    veth has no interrupt: the device row begins with the soft interrupt. The library’s client runs under Sojourn and stamps its own layers: means, without the clock’s cost, of TCP \
    (UDP’s datagrams are not stamped there); its way in begins with the kernel’s stamp of the packet, so that device, filter and the kernel’s copy are not in its total; its link output is the whole system call, in which on one machine the other host’s soft interrupt runs, too (the kernel’s ends when the driver has the packet). The server’s client is the same program with home = server, and sojourn-protocol stamps the same layers. A row without a figure is a part of the next one that has one, if this kernel does not let \
    programs look at its functions.";

const SERVER: &str = "The server’s columns begin and end with sojourn-protocol’s own work: the calls to it are not in them, and it has no UDP.";

/// Messages of a run.
const MESSAGES: usize = 4000;
const QUICK: usize = 300;
/// Messages before the measurement, to warm up.
const WARM: usize = 100;
/// The time after which a silent peer counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);
const PORT: u16 = 7300;

/// The kernel's columns of the table: name, true for TCP, size.
const CASES: [(&str, bool, usize); 4] = [
    ("tcp_kern_1", true, 1),
    ("tcp_kern_1460", true, 1460),
    ("udp_kern_1", false, 1),
    ("udp_kern_1472", false, 1472),
];

/// The library's and the server's columns of the table: name, where the protocols are, and size.
const LIBRARY_CASES: [(&str, Stacks, usize); 4] = [
    ("tcp_lib_1", Stacks::Client, 1),
    ("tcp_lib_1460", Stacks::Client, 1460),
    ("tcp_serv_1", Stacks::HomeServer, 1),
    ("tcp_serv_1460", Stacks::HomeServer, 1460),
];

/// Returns today's row for a line of the paper.
fn row_of(path: &str, layer: &str) -> Option<Row> {
    Some(match (path, layer) {
        ("send", "entry/copyin") => Row::EntryCopyIn,
        ("send", "tcp,udp_output") => Row::ProtocolOutput,
        ("send", "ip_output") => Row::IpOutput,
        ("send", "ether_output") => Row::LinkOutput,
        ("receive", "device intr/read") => Row::Device,
        ("receive", "netisr/packet filter") => Row::Filter,
        ("receive", "kernel copyout") => Row::KernelCopyOut,
        ("receive", "mbuf/queue") => Row::Queue,
        ("receive", "ipintr") => Row::IpInput,
        ("receive", "tcp,udp_input") => Row::ProtocolInput,
        ("receive", "wakeup user thread") => Row::WakeUp,
        ("receive", "copyout/exit") => Row::CopyOutExit,
        _ => return None,
    })
}

/// Returns a session's figure for a line of the paper (ns).
fn figure(session: &Session, path: &str, layer: &str) -> Option<f64> {
    // A program that stamps its own layers keeps only sums, so the mean stands for the median.
    let median = |times: &Distribution| match session.home {
        Home::Kernel => times.quantile_ns(0.5).map(|ns| ns as f64),
        Home::Library => times.mean_ns(),
    };
    let (send, receive) = (median(&session.send.total), median(&session.receive.total));
    // A session in a library has no stamp at the beginning of its way in, so its total is
    // incomplete.
    let is_whole = session.home == Home::Kernel;
    match (path, layer) {
        ("send", "total") => send,
        ("receive", "total") => receive,
        ("wire", _) => median(&session.transit),
        ("all", _) => Some(send? + receive? + median(&session.transit)?).filter(|_| is_whole),
        _ => {
            let row = row_of(path, layer)?;
            match session.cell(row) {
                Cell::Timed => median(session.row(row)),
                Cell::InNext => None,
                // The kernel's copy is part of the last row, and no data waits in a queue of its
                // own.
                Cell::Absent if session.home == Home::Kernel => Some(0.0),
                Cell::Absent => None,
            }
        }
    }
}

/// One end of the conversation.
enum Talk {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Talk {
    fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Udp(socket) => socket.send(bytes).map(drop),
        }
    }

    fn receive(&mut self, bytes: &mut [u8]) -> std::io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.read_exact(bytes),
            Self::Udp(socket) => socket.recv(bytes).map(drop),
        }
    }

    fn local(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
        }
    }
}

/// Connects two ends, each on its host.
fn pair(link: &Link, is_tcp: bool) -> Result<[Talk; 2]> {
    let [client, server] = [End::A, End::B].map(|end| SocketAddr::new(link.v4(end).into(), PORT));
    if is_tcp {
        let listener = link.host(End::B).enter(|| TcpListener::bind(server))??;
        let asking = link.host(End::A).enter(|| TcpStream::connect(server))??;
        let (answering, _) = listener.accept()?;
        for stream in [&asking, &answering] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(PATIENCE))?;
        }
        return Ok([Talk::Tcp(asking), Talk::Tcp(answering)]);
    }
    let answering = link.host(End::B).enter(|| UdpSocket::bind(server))??;
    let asking = link.host(End::A).enter(|| UdpSocket::bind(client))??;
    asking.connect(server)?;
    answering.connect(client)?;
    for socket in [&asking, &answering] {
        socket.set_read_timeout(Some(PATIENCE))?;
    }
    Ok([Talk::Udp(asking), Talk::Udp(answering)])
}

/// Sends messages back and forth, stamped at both ends. Returns the client's session.
fn measure(
    programs: &mut Programs,
    link: &Link,
    is_tcp: bool,
    size: usize,
    count: usize,
) -> Result<Session> {
    let [mut asking, mut answering] = pair(link, is_tcp)?;
    let own = asking.local()?;
    let mut ledger = Ledger::default();
    std::thread::scope(|scope| -> Result<()> {
        let answers = scope.spawn(move || -> std::io::Result<()> {
            let mut bytes = vec![0; size];
            for _ in 0..WARM + count {
                answering.receive(&mut bytes)?;
                answering.send(&bytes)?;
            }
            Ok(())
        });
        let mut bytes = vec![0; size];
        for number in 0..WARM + count {
            if number == WARM {
                programs.watch(std::process::id())?;
            }
            asking.send(&bytes)?;
            asking.receive(&mut bytes)?;
            // Events are taken between two messages, so that it costs no message time, and before
            // their ring is full.
            if number % 100 == 0 {
                programs.read(|event| ledger.add(&event));
            }
        }
        answers.join().map_err(|_| anyhow::anyhow!("the peer has failed"))??;
        Ok(())
    })?;
    programs.forget(std::process::id());
    programs.read(|event| ledger.add(&event));
    let sessions = ledger.sessions();
    let found = sessions.into_iter().find(|session| session.local == Some(own));
    found.cloned().context("the session was not stamped")
}

/// The measured sessions, by column, and the reasons for those that are missing.
#[derive(Default)]
struct Found {
    sessions: Vec<ColumnSession>,
    notes: Vec<String>,
}

/// The measured session of a column.
struct ColumnSession {
    column: &'static str,
    session: Session,
}

impl Found {
    fn of(&self, column: &str) -> Option<&Session> {
        self.sessions.iter().find(|one| one.column == column).map(|one| &one.session)
    }

    fn add(&mut self, column: &'static str, found: Result<Session>) {
        match found {
            Ok(session) => self.sessions.push(ColumnSession { column, session }),
            Err(error) => self.notes.push(format!("{}: {error:#}", column.replace('_', " "))),
        }
    }

    fn kernel(&mut self, quick: bool) -> Result<()> {
        let count = if quick { QUICK } else { MESSAGES };
        let mut programs = Programs::load()?;
        let (a, b) = (Host::new()?, Host::new()?);
        let link = Link::direct(&a, &b, 1500)?;
        for (column, is_tcp, size) in CASES {
            self.add(column, measure(&mut programs, &link, is_tcp, size, count));
        }
        if let Some(refusal) = programs.refusal() {
            let note = format!("not every layer’s border is stamped on this kernel: {refusal}");
            self.notes.push(note);
        }
        self.notes.push(format!("a stamp in the kernel takes {} ns", programs.cost().whole_ns));
        Ok(())
    }

    fn library(&mut self, quick: bool) -> Result<()> {
        let world = World::new(quick)?;
        for (column, way, size) in LIBRARY_CASES {
            self.add(column, library::measure(&world, way, size, quick));
        }
        Ok(())
    }
}

fn find(quick: bool) -> Found {
    let mut found = Found::default();
    if let Err(error) = found.kernel(quick) {
        found.notes.push(format!("kernel: {error:#}"));
    }
    if let Err(error) = found.library(quick) {
        found.notes.push(format!("library: {error:#}"));
    }
    found
}

/// Measures and makes table 4.
pub(crate) fn section(quick: bool) -> Section {
    of(&find(quick))
}

fn of(found: &Found) -> Section {
    let table = read(DECOMPOSITION_4);
    let first = table.columns_from("tcp_lib_1");
    let columns: Vec<&str> =
        first.iter().copied().filter(|name| !name.starts_with("cros")).collect();
    let lines = (0..table.len()).map(|row| line(&table, row, &columns, found)).collect();
    let total = |column: &str, path: &str, layer: &str| {
        figure(found.of(column)?, path, layer).map(|ns| ns / 1e3)
    };
    let said = |value: Option<f64>| value.map_or("–".to_owned(), |us| format!("{us:.1} µs"));
    let kernel = CASES[0].0;
    let (send, receive) = (total(kernel, "send", "total"), total(kernel, "receive", "total"));
    let wake = total(kernel, "receive", "wakeup user thread");
    let library = LIBRARY_CASES[0].0;
    let away = (total(library, "send", "total"), total(library, "receive", "total"));
    Section {
        key: "decomposition4",
        title: "1993: where each microsecond goes",
        paper: PAPER,
        answer: format!(
            "One byte of TCP in the kernel: {} to send, {} to receive, of which {} pass until the reader has a processor; \
             in 1993 these were 214, 348 and 54 µs. In the library: {} to send, {} from the kernel’s stamp of the packet to the end of the call (225 and 658 µs from the interrupt on).",
            said(send),
            said(receive),
            said(wake),
            said(away.0),
            said(away.1)
        ),
        gist: format!(
            "one byte of TCP takes the kernel {} to send and {} to receive",
            said(send),
            said(receive)
        ),
        how: HOW.to_owned(),
        measures: columns
            .iter()
            .map(|name| Measure::new(name.replace('_', " "), "µs", Unit::Ns))
            .collect(),
        lines,
        notes: found.notes.clone(),
        ..Section::default()
    }
}

fn line(table: &Published, row: usize, columns: &[&str], found: &Found) -> Line {
    let (path, layer) = (table.word(row, "path"), table.word(row, "layer"));
    let crossing: Vec<&str> = ["lib", "kern", "serv"]
        .into_iter()
        .filter(|place| table.word(row, &format!("crossing_{place}")) == "x")
        .collect();
    let mark = match crossing.is_empty() {
        true => String::new(),
        false => format!(" Crosses a boundary: {}.", crossing.join(", ")),
    };
    let today = |column: &&str| figure(found.of(column)?, path, layer);
    let sleeping: Vec<Option<f64>> = columns.iter().map(today).collect();
    let is_measured = sleeping.iter().any(Option::is_some);
    let says = match is_measured {
        true => format!("{SERVER}{mark}"),
        false => format!(
            "No figure: this border is not stamped on this kernel, or nothing was measured.{mark}"
        ),
    };
    Line {
        name: format!("{path}: {layer}"),
        published: columns.iter().map(|column| table.number(row, column)).collect(),
        today: is_measured.then_some(Today { sleeping, spinning: Vec::new() }),
        says,
        base: table.len().saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let mut session = Session::default();
        let mut times = Distribution::default();
        times.add(16);
        session.set_row(Row::IpOutput, times.clone());
        session.send.total = times.clone();
        session.receive.total = times.clone();
        session.transit = times;
        session
    }

    #[test]
    fn every_line_of_the_paper_is_a_row_or_a_sum() {
        let table = read(DECOMPOSITION_4);
        for row in 0..table.len() {
            let (path, layer) = (table.word(row, "path"), table.word(row, "layer"));
            let is_sum = layer == "total" || path == "wire";
            assert_eq!(row_of(path, layer).is_some(), !is_sum, "{path} {layer}");
        }
    }

    #[test]
    fn figures_stand_in_the_kernel_s_columns_and_borders_without_stamps_have_none() {
        let found = Found {
            sessions: vec![ColumnSession { column: "tcp_kern_1", session: session() }],
            notes: vec!["x".into()],
        };
        let section = of(&found);
        let at = section.measures.iter().position(|one| one.name == "tcp kern 1").unwrap();
        let today = |line: usize| section.lines[line].today.as_ref()?.sleeping[at];
        assert_eq!((today(0), today(2), today(4)), (None, Some(16.0), Some(16.0)));
        assert_eq!(today(section.lines.len() - 1), Some(48.0));
        let others = section.lines.iter().filter_map(|line| line.today.as_ref());
        let filled = |today: &Today| today.sleeping.iter().filter(|cell| cell.is_some()).count();
        assert!(others.into_iter().all(|today| filled(today) <= 1));
    }

    #[test]
    fn the_library_s_way_in_is_not_taken_for_the_whole() {
        let mut away = Session::in_library(1);
        (away.send.total, away.receive.total) = (session().send.total, session().receive.total);
        away.transit = session().transit;
        assert_eq!(figure(&away, "receive", "total"), Some(16.0));
        assert_eq!(figure(&away, "receive", "device intr/read"), None);
        assert_eq!(figure(&away, "all", "total"), None);
    }

    #[test]
    fn what_is_not_measured_has_no_figure() {
        let found = Found { sessions: Vec::new(), notes: vec!["no rights".into()] };
        let section = of(&found);
        assert!(section.lines.iter().all(|line| line.today.is_none()));
        assert_eq!(section.notes, ["no rights"]);
    }
}
