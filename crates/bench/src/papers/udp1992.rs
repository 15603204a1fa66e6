//! A UDP server in user space: *Networking Performance for Microkernels* (1992).

use super::model::{Line, Measure, Section, Side, Summary, Today, Unit, times};
use super::progress::Progress;
use super::published::{UDP_1992, read};
use super::unix::{Hosts, Mistake, UnixWay, Visit};
use crate::stats::median;
use crate::udp::world::{UdpStacks, Waiting};
use crate::udp::{self, Cell};

/// Today's counterpart of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counterpart {
    /// Over loopback, by the benchmark `udp`.
    Loopback(UdpStacks),
    /// Between two hosts.
    Hosts(UnixWay),
}

/// Today's row of each published one, and its sentence.
const ROWS: [(Counterpart, &str); 7] = [
    (Counterpart::Loopback(UdpStacks::Kernel), "The kernel’s UDP sockets, over loopback."),
    (
        Counterpart::Hosts(UnixWay::IpcVm),
        "An unmodified program’s socket calls become calls to a server (a preloaded library, Sojourn IPC); the server has sojourn-driver send and receive each packet in memory of its own, mapped for the message. Base: the kernel between the same two hosts.",
    ),
    (
        Counterpart::Hosts(UnixWay::Ipc),
        "The same, with each packet in the message to and from sojourn-driver. Base: the kernel between the same two hosts.",
    ),
    (
        Counterpart::Hosts(UnixWay::SystemCall),
        "The same server with a packet socket of its own: a system call a packet. Base: the kernel between the same two hosts.",
    ),
    (
        Counterpart::Hosts(UnixWay::Mapped),
        "The same server with a mapped ring of packets. Base: the kernel between the same two hosts.",
    ),
    (
        Counterpart::Loopback(UdpStacks::TwoServers),
        "Two sojourn-udpd, each with one client, by Sojourn IPC with generated stubs; the servers reach one another by the network (a raw socket).",
    ),
    (
        Counterpart::Loopback(UdpStacks::ServerToServer),
        "The programs are in the two servers’ own processes: no IPC.",
    ),
];

/// The place of the kernel between two hosts among the lines.
const BETWEEN_HOSTS: usize = ROWS.len() + 1;

/// Rows that the paper does not have.
const TODAY_ONLY: [(&str, Counterpart, &str); 4] = [
    (
        "user to user, one server (today only)",
        Counterpart::Loopback(UdpStacks::UserToUser),
        "Both clients have the same sojourn-udpd: nothing goes by the network.",
    ),
    (
        "kernel, between the two hosts",
        Counterpart::Hosts(UnixWay::Kernel),
        "The same program with the kernel’s UDP sockets; the base of the Unix servers.",
    ),
    (
        "Unix server (system call), priority levels (today only)",
        Counterpart::Hosts(UnixWay::Mistaken(Mistake::PriorityLevels)),
        "With a mistake that the paper names: about 50 operations of simulated priority levels in a round trip, each a lock and a look for what waited. An uncontended lock takes no system call today.",
    ),
    (
        "Unix server (system call), wired threads (today only)",
        Counterpart::Hosts(UnixWay::Mistaken(Mistake::WiredThreads)),
        "With the other one: a frame is handed from the thread that takes it to another one, which the kernel has to run.",
    ),
];

const HOW: &str = "UDP servers: the benchmark udp, round trips over the loopback interface of one host, where the paper \
    had two hosts and an Ethernet. Each way is measured with its ends on one processor, on two, and with \
    all of it on one, and judged by its best. Unix servers: two hosts are network namespaces of one machine with a \
    veth pair, all processes of a host on one processor; the servers are part of the benchmark \
    (crates/bench/src/papers/unix). Spinning: nobody sleeps, and lets others go first; not for Unix \
    servers, of whose threads five and more would spin on a processor. Sleeping: everybody sleeps at once.";

/// The figures of a visit.
struct VisitTimes {
    visit: Visit,
    /// Nanoseconds of each round.
    values: Vec<f64>,
}

/// The figures between two hosts.
#[derive(Default)]
struct Between {
    cells: Vec<VisitTimes>,
    notes: Vec<String>,
}

impl Between {
    fn measure(quick: bool, progress: &Progress) -> Self {
        let (rounds, ms) = if quick { (1, 12) } else { (7, 60) };
        let mut found = Self::default();
        let hosts = match Hosts::new() {
            Ok(hosts) => hosts,
            Err(error) => {
                found.notes.push(format!("Unix servers: {error:#}"));
                return found;
            }
        };
        for way in UnixWay::ALL {
            let visits = udp::SIZES
                .map(|bytes| VisitTimes { visit: Visit { way, bytes, ms }, values: Vec::new() });
            found.cells.extend(visits);
        }
        let count = found.cells.len();
        for round in 0..rounds {
            for (at, VisitTimes { visit, values }) in found.cells.iter_mut().enumerate() {
                match hosts.measure(visit) {
                    Ok(ns) => values.push(ns),
                    Err(error) => {
                        let first = format!("{error:#}");
                        let first = first.lines().next().unwrap_or_default();
                        let note = format!("{:?}: {first}", visit.way);
                        found.notes.push(note);
                    }
                }
                progress.at((round * count + at + 1) as f64 / (rounds * count) as f64);
            }
        }
        found.notes.sort();
        found.notes.dedup();
        found
    }

    fn ns(&self, way: UnixWay, bytes: usize) -> Option<f64> {
        let fits = |visit: &Visit| (visit.way, visit.bytes) == (way, bytes);
        let VisitTimes { values, .. } = self.cells.iter().find(|one| fits(&one.visit))?;
        (!values.is_empty()).then(|| median(values))
    }
}

/// Measures over loopback; to be called while this process has one thread, since it forks.
pub(crate) fn loopback(quick: bool) -> Vec<Cell> {
    udp::cells(quick)
}

/// Measures between two hosts, and makes the table.
pub(crate) fn section(cells: &[Cell], quick: bool, progress: &Progress) -> Section {
    made(cells, &Between::measure(quick, progress))
}

/// Makes the section from its figures.
fn made(cells: &[Cell], between: &Between) -> Section {
    let table = read(UDP_1992);
    let figure = |way: Counterpart, waiting: Waiting, bytes: usize| match way {
        Counterpart::Loopback(way) => {
            udp::best(cells.iter().filter(|it| it.waiting == waiting && it.bytes == bytes), way)
        }
        // Everybody sleeps there.
        Counterpart::Hosts(_) if waiting == Waiting::Spinning => None,
        Counterpart::Hosts(way) => between.ns(way, bytes),
    };
    let today = |way: Counterpart| {
        let figures = |waiting| udp::SIZES.map(|bytes| figure(way, waiting, bytes)).to_vec();
        Today { sleeping: figures(Waiting::Sleeping), spinning: figures(Waiting::Spinning) }
    };
    let base =
        |way: Counterpart| if matches!(way, Counterpart::Hosts(_)) { BETWEEN_HOSTS } else { 0 };
    let line = |(row, (way, says)): (usize, (Counterpart, &str))| Line {
        name: table.word(row, "system").to_owned(),
        published: vec![table.number(row, "rtt_ms"), None],
        today: Some(today(way)),
        says: says.to_owned(),
        base: base(way),
    };
    let mut lines: Vec<Line> = ROWS.into_iter().enumerate().map(line).collect();
    lines.extend(TODAY_ONLY.map(|(name, way, says)| Line {
        name: name.to_owned(),
        // The paper's kernel was between two hosts, too.
        published: match way {
            Counterpart::Hosts(UnixWay::Kernel) => vec![table.number(0, "rtt_ms"), None],
            _ => Vec::new(),
        },
        today: Some(today(way)),
        says: says.to_owned(),
        base: base(way),
    }));
    let section = Section {
        key: "udp1992",
        title: "1992: a UDP server",
        paper: "Maeda, Bershad: Networking Performance for Microkernels (WWOS 1992), tables 1 to 3; two DECstation 2100 on 10 Mb/s Ethernet.",
        how: HOW.to_owned(),
        measures: vec![
            Measure::new("round trip, 1 byte", "ms", Unit::Ns),
            Measure::new("round trip, 1,024 bytes", "ms", Unit::Ns),
        ],
        lines,
        notes: between.notes.clone(),
        ..Section::default()
    };
    section.summarised(summary)
}

fn summary(section: &Section) -> Summary {
    let one = ROWS.len();
    let of = |line, side| times(section.ratio_at(line, side, 0));
    let gist = format!(
        "a UDP round trip through servers takes {} times the kernel’s spinning, {} sleeping ({})",
        of(5, Side::Spinning),
        of(5, Side::Sleeping),
        of(5, Side::Published),
    );
    let answer = format!(
        "User to user through two UDP servers takes {} times the kernel’s round trip asleep and {} \
         spinning (1992: {}), server to server {} and {} ({}), user to user through one server {} and {}; \
         through Unix servers whose packets are mapped for messages {} asleep ({}), in messages {} ({}), by \
         system calls {} ({}), with a mapped ring {} ({}).",
        of(5, Side::Sleeping),
        of(5, Side::Spinning),
        of(5, Side::Published),
        of(6, Side::Sleeping),
        of(6, Side::Spinning),
        of(6, Side::Published),
        of(one, Side::Sleeping),
        of(one, Side::Spinning),
        of(1, Side::Sleeping),
        of(1, Side::Published),
        of(2, Side::Sleeping),
        of(2, Side::Published),
        of(3, Side::Sleeping),
        of(3, Side::Published),
        of(4, Side::Sleeping),
        of(4, Side::Published),
    );
    Summary { answer, gist }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::world::Placement;

    #[test]
    fn each_row_is_beside_its_own_kernel() {
        let cell = |way, waiting, ns| Cell {
            way,
            placement: Placement::Apart,
            waiting,
            bytes: 1,
            ns: Some(ns),
            rounds: vec![ns],
        };
        let cells = [
            cell(UdpStacks::Kernel, Waiting::Sleeping, 10.0),
            cell(UdpStacks::TwoServers, Waiting::Sleeping, 25.0),
            cell(UdpStacks::UserToUser, Waiting::Sleeping, 20.0),
        ];
        let times_of = |way, values| VisitTimes { visit: Visit { way, bytes: 1, ms: 1 }, values };
        let between = Between {
            cells: vec![
                times_of(UnixWay::Kernel, vec![20.0]),
                times_of(UnixWay::Ipc, vec![50.0, 60.0, 70.0]),
                times_of(UnixWay::Mapped, vec![]),
            ],
            notes: Vec::new(),
        };
        let section = made(&cells, &between);
        let ratio = |line| section.ratio_at(line, Side::Sleeping, 0);
        assert_eq!((ratio(5), ratio(ROWS.len())), (Some(2.5), Some(2.0)));
        assert_eq!((ratio(2), ratio(4), ratio(BETWEEN_HOSTS)), (Some(3.0), None, Some(1.0)));
        let unix = |line: &Line| line.name.starts_with("Unix server");
        assert!(
            section.lines.iter().filter(|line| unix(line)).all(|line| line.base == BETWEEN_HOSTS)
        );
        let published = section.ratio_at(2, Side::Published, 0).unwrap();
        assert!(published > 1.0, "{published}");
    }
}
