//! Protocols in a library: *Protocol Service Decomposition for High-Performance Networking* (1993),
//! tables 2 and 3.
//!
//! Both tables use one measurement. A row that has no equal says why. Not here: table 4 (`layers`).

use super::model::{Line, Measure, Section, Side, Summary, Today, Unit, times};
use super::published::{DECOMPOSITION_2, DECOMPOSITION_3, Published, read};
use crate::net::measure::Cell;
use crate::net::way::{Stacks, Wait};

const PAPER_2: &str = "Maeda, Bershad: Protocol Service Decomposition for High-Performance Networking (SOSP 1993), table 2.";
const PAPER_3: &str = "The same paper, table 3: the interface that shares buffers (NEWAPI).";

const HOW: &str = "The benchmark net: two hosts are network namespaces of one machine, the link is a veth \
    pair with its offloads, congestion control is CUBIC, both programs are pinned. The client (which \
    measures) runs under Sojourn and the server’s host has only its kernel, unless the row says \
    otherwise; the paper’s both ends were alike. Sleeping: blocking calls, SOJOURN_SPIN=never. \
    Spinning: SOJOURN_SPIN=always, the kernel’s calls in a loop. Throughput is bytes from memory to \
    memory for about half a second instead of 16 MB, measured once, with default (adaptive) waiting, \
    and stands in the sleeping line. A way whose sessions were not away from the kernel has no figure.";

/// Today's counterpart of a published system.
struct Counterpart {
    /// `None` if there is no equal.
    way: Option<Stacks>,
    /// A sentence on it.
    says: &'static str,
}

fn today_of(system: &str) -> Counterpart {
    let (way, says) = match system {
        "Mach 2.5 In-Kernel" => (Some(Stacks::Kernel), "The kernel’s sockets at both ends."),
        "Ultrix 4.2A In-Kernel" | "386BSD In-Kernel" => {
            (None, "No equal: another kernel’s stack is not run today.")
        }
        "Mach 3.0+UX Server" | "Mach 3.0+BNR2SS Server" => (
            Some(Stacks::HomeServer),
            "An unmodified program under Sojourn with home = server: its socket calls become calls of Sojourn IPC to sojourn-protocol, which has the engine. The server’s own threads wait adaptively, in both columns.",
        ),
        "Library-IPC" => (
            Some(Stacks::Driver),
            "The engine in the program; its packets come and go by sojourn-driver, a message of Sojourn IPC for each.",
        ),
        "Library-SHM" => (
            Some(Stacks::Port),
            "The engine in the program; its packets come and go by a port (a veth of its own) with a mapped ring: copied once more.",
        ),
        "Library-SHM-IPF" => (
            Some(Stacks::Client),
            "The engine in the program; the packet filter puts packets straight into the mapped ring on the interface.",
        ),
        _ => (
            None,
            "No equal between hosts: sojourn-buffers shares its buffers with a peer on the same host, but with other hosts its calls copy, as read and write do.",
        ),
    };
    Counterpart { way, says }
}

/// Rows that the paper does not have. The last one is that of the summary.
const TODAY_ONLY: [(&str, Stacks, &str); 4] = [
    (
        "server, called by its client",
        Stacks::ProtocolServer,
        "As the server’s row, with a client written for it: no library between program and IPC.",
    ),
    (
        "library, memory mapped for each packet",
        Stacks::DriverMemory,
        "As Library-IPC, with each packet in memory of its own, which the receiver maps: (IPC, VM) of 1992.",
    ),
    (
        "library, a system call a packet",
        Stacks::Message,
        "The engine in the program; a packet socket without a mapped ring.",
    ),
    (
        "ring at both ends",
        Stacks::Both,
        "As Library-SHM-IPF, with both programs under Sojourn, each on its host.",
    ),
];

/// The columns of figures: the name in the paper's table, the heading, and today's case.
const COLUMNS: [(&str, &str, &str); 11] = [
    ("tcp_kb_per_s", "TCP throughput", "bulk-out"),
    ("tcp_1", "TCP 1 B", "tcp-rtt-pinned 1 B"),
    ("tcp_100", "100 B", "tcp-rtt-pinned 100 B"),
    ("tcp_512", "512 B", "tcp-rtt-pinned 512 B"),
    ("tcp_1024", "1024 B", "tcp-rtt-pinned 1024 B"),
    ("tcp_1460", "1460 B", "tcp-rtt-pinned 1460 B"),
    ("udp_1", "UDP 1 B", "udp-rtt-pinned 1 B"),
    ("udp_100", "100 B", "udp-rtt-pinned 100 B"),
    ("udp_512", "512 B", "udp-rtt-pinned 512 B"),
    ("udp_1024", "1024 B", "udp-rtt-pinned 1024 B"),
    ("udp_1472", "1472 B", "udp-rtt-pinned 1472 B"),
];

fn measures() -> Vec<Measure> {
    let of = |(at, (_, name, _)): (usize, &(&str, &str, &str))| match at {
        0 => Measure::new(*name, "KB/s", Unit::BytesPerS),
        _ => Measure::new(*name, "ms", Unit::Ns),
    };
    COLUMNS.iter().enumerate().map(of).collect()
}

/// Returns today's figures of an implementation.
fn today(cells: &[Cell], way: Stacks) -> Today {
    let figure = |case: &str, waits: &[Wait]| {
        let fits =
            |cell: &&Cell| cell.case == case && cell.way == way && waits.contains(&cell.wait);
        cells.iter().find(fits).filter(|cell| cell.counts()).map(|cell| cell.value)
    };
    let all = |waits: &[Wait]| COLUMNS.map(|(_, _, case)| figure(case, waits)).to_vec();
    Today { sleeping: all(&[Wait::Blocking, Wait::Default]), spinning: all(&[Wait::Spinning]) }
}

/// Returns the lines of a published table. The first in-kernel row of each machine is the base of
/// its other rows.
fn lines(table: &Published, cells: &[Cell]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut base = (0, "");
    for row in 0..table.len() {
        let (machine, system) = (table.word(row, "machine"), table.word(row, "system"));
        if machine != base.1 {
            base = (row, machine);
        }
        let Counterpart { way, says } = today_of(system);
        lines.push(Line {
            name: format!("{system}, {machine}"),
            published: COLUMNS.map(|(column, ..)| table.number(row, column)).to_vec(),
            today: way.map(|way| today(cells, way)),
            says: says.to_owned(),
            base: base.0,
        });
    }
    lines
}

/// Returns the reasons for missing figures, each once.
fn notes(cells: &[Cell]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for cell in cells {
        let what = format!("{}, {}", cell.case, cell.way.title());
        let note = match &cell.error {
            Some(error) => format!("{what}: {}", error.lines().next().unwrap_or_default()),
            None if !cell.was_away() => format!("{what}: not away from the kernel; no figure"),
            None => continue,
        };
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

/// Table 2.
pub(crate) fn placements(cells: &[Cell]) -> Section {
    let mut lines = lines(&read(DECOMPOSITION_2), cells);
    lines.extend(TODAY_ONLY.map(|(name, way, says)| Line {
        name: format!("{name} (today only)"),
        published: Vec::new(),
        today: Some(today(cells, way)),
        says: says.to_owned(),
        base: 0,
    }));
    let section = Section {
        key: "decomposition2",
        title: "1993: protocols in kernel, server and library",
        paper: PAPER_2,
        how: HOW.to_owned(),
        measures: measures(),
        lines,
        notes: notes(cells),
        ..Section::default()
    };
    section.summarised(summary)
}

fn summary(section: &Section) -> Summary {
    let both = section.lines.len() - 1;
    let of = |line, side, measure| times(section.ratio_at(line, side, measure));
    let gist = format!(
        "one of TCP from a library {} spinning, {} sleeping ({}), with {} times the throughput ({})",
        of(5, Side::Spinning, 1),
        of(5, Side::Sleeping, 1),
        of(5, Side::Published, 1),
        of(5, Side::Sleeping, 0),
        of(5, Side::Published, 0),
    );
    let answer = format!(
        "With the protocols in a library and a packet ring, TCP throughput is {} times the kernel’s \
         (1993: {}), a TCP round trip of 1 byte takes {} times as long asleep and {} spinning ({}), one \
         of UDP {} and {} ({}); with the ring at both ends TCP takes {} and {}, with the protocols in a server {} \
         and {} ({}).",
        of(5, Side::Sleeping, 0),
        of(5, Side::Published, 0),
        of(5, Side::Sleeping, 1),
        of(5, Side::Spinning, 1),
        of(5, Side::Published, 1),
        of(5, Side::Sleeping, 6),
        of(5, Side::Spinning, 6),
        of(5, Side::Published, 6),
        of(both, Side::Sleeping, 1),
        of(both, Side::Spinning, 1),
        of(2, Side::Sleeping, 1),
        of(2, Side::Spinning, 1),
        of(2, Side::Published, 1),
    );
    Summary { answer, gist }
}

/// Table 3.
pub(crate) fn new_interface(cells: &[Cell]) -> Section {
    Section {
        key: "decomposition3",
        title: "1993: buffers shared with the program",
        paper: PAPER_3,
        answer:
            "Buffers are shared with peers of the same host only (sojourn-buffers); between hosts \
                 only the kernel’s row has an equal today."
                .to_owned(),
        how: HOW.to_owned(),
        measures: measures(),
        lines: lines(&read(DECOMPOSITION_3), cells),
        ..Section::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::row::Unit as Of;
    use crate::local::server::Returns;

    fn cell(case: &str, way: Stacks, wait: Wait, value: f64, away: Option<f64>) -> Cell {
        Cell {
            group: String::new(),
            row: String::new(),
            case: case.into(),
            way,
            wait,
            unit: Of::Ns,
            value,
            values: vec![value],
            times: None,
            rate: None,
            cpu_ns: None,
            away,
            returned: Returns::new(),
            error: None,
        }
    }

    #[test]
    fn rows_find_their_equals_and_those_not_away_have_no_figure() {
        let case = "tcp-rtt-pinned 1 B";
        let cells = [
            cell(case, Stacks::Kernel, Wait::Blocking, 40.0, None),
            cell(case, Stacks::Client, Wait::Blocking, 50.0, Some(1.0)),
            cell(case, Stacks::Port, Wait::Blocking, 60.0, Some(0.2)),
            cell(case, Stacks::HomeServer, Wait::Blocking, 70.0, Some(1.0)),
        ];
        let section = placements(&cells);
        assert_eq!(section.ratio_at(5, Side::Sleeping, 1), Some(1.25));
        assert_eq!(section.ratio_at(4, Side::Sleeping, 1), None);
        assert!(section.notes[0].contains("not away"), "{:?}", section.notes);
        let gateway = &section.lines[6];
        assert_eq!((gateway.base, gateway.name.contains("Gateway")), (6, true));
        assert_eq!(section.ratio_at(2, Side::Sleeping, 1), Some(1.75));
        assert_eq!(section.ratio_at(2, Side::Sleeping, 6), None, "no UDP there");
    }

    #[test]
    fn what_has_no_equal_is_never_measured() {
        let section = new_interface(&[]);
        let newapi = section.lines.iter().filter(|line| line.name.contains("NEWAPI"));
        assert!(newapi.clone().all(|line| line.today.is_none()));
        assert_eq!(newapi.count(), 3);
    }
}
