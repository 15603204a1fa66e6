//! A UDP server in user space: *Networking Performance for Microkernels* (1992).

use super::model::{Line, Measure, Section, Side, Today, Unit, times};
use super::published::{UDP_1992, read};
use crate::udp::world::{UdpStacks, Waiting};
use crate::udp::{self, Cell};

/// Today's row of each published one, and its sentence.
const ROWS: [(Option<UdpStacks>, &str); 7] = [
    (Some(UdpStacks::Kernel), "The kernel’s UDP sockets."),
    (None, UNIX),
    (None, UNIX),
    (None, UNIX),
    (None, UNIX),
    (
        Some(UdpStacks::TwoServers),
        "Two sojourn-udpd, each with one client, by Sojourn IPC with generated stubs; the servers reach one another by the network (a raw socket).",
    ),
    (
        Some(UdpStacks::ServerToServer),
        "The programs are in the two servers’ own processes: no IPC.",
    ),
];

const UNIX: &str = "Not built yet: there is no protocol server for unmodified programs whose device is reached by messages, mapped memory or calls.";

const HOW: &str = "The benchmark udp: round trips over the loopback interface of one host, where the paper \
    had two hosts and an Ethernet. Spinning: nobody sleeps, and lets others go first. Sleeping: \
    everybody sleeps at once. Each way is measured with its ends on one processor, on two, and with \
    all of it on one, and judged by its best.";

pub(crate) fn section(quick: bool) -> Section {
    made(&udp::cells(quick))
}

/// Makes the section from its figures.
fn made(cells: &[Cell]) -> Section {
    let table = read(UDP_1992);
    let today = |way: UdpStacks| {
        let figures = |waiting: Waiting| {
            let of = |bytes| {
                udp::best(cells.iter().filter(|it| it.waiting == waiting && it.bytes == bytes), way)
            };
            udp::SIZES.map(of).to_vec()
        };
        Today { sleeping: figures(Waiting::Sleeping), spinning: figures(Waiting::Spinning) }
    };
    let line = |(row, (way, says)): (usize, (Option<UdpStacks>, &str))| Line {
        name: table.word(row, "system").to_owned(),
        published: vec![table.number(row, "rtt_ms"), None],
        today: way.map(today),
        says: says.to_owned(),
        base: 0,
    };
    let mut lines: Vec<Line> = ROWS.into_iter().enumerate().map(line).collect();
    lines.push(Line {
        name: "user to user, one server (today only)".to_owned(),
        published: Vec::new(),
        today: Some(today(UdpStacks::UserToUser)),
        says: "Both clients have the same sojourn-udpd: nothing goes by the network.".to_owned(),
        base: 0,
    });
    let mut section = Section {
        key: "udp1992",
        title: "1992: a UDP server",
        paper: "Maeda, Bershad: Networking Performance for Microkernels (WWOS 1992), tables 1 to 3; two DECstation 2100 on 10 Mb/s Ethernet.",
        how: HOW.to_owned(),
        measures: vec![
            Measure::new("round trip, 1 byte", "ms", Unit::Ns),
            Measure::new("round trip, 1,024 bytes", "ms", Unit::Ns),
        ],
        lines,
        ..Section::default()
    };
    (section.answer, section.gist) = summary(&section);
    section
}

/// Returns the result in a sentence and in a clause.
fn summary(section: &Section) -> (String, String) {
    let one = section.lines.len() - 1;
    let of = |line, side| times(section.ratio_at(line, side, 0));
    let gist = format!(
        "a UDP round trip through servers takes {} times the kernel’s spinning, {} sleeping ({})",
        of(5, Side::Spinning),
        of(5, Side::Sleeping),
        of(5, Side::Published),
    );
    let answer = format!(
        "User to user through two UDP servers takes {} times the kernel’s round trip asleep and {} \
         spinning (1992: {}), server to server {} and {} ({}), user to user through one server {} and {}.",
        of(5, Side::Sleeping),
        of(5, Side::Spinning),
        of(5, Side::Published),
        of(6, Side::Sleeping),
        of(6, Side::Spinning),
        of(6, Side::Published),
        of(one, Side::Sleeping),
        of(one, Side::Spinning),
    );
    (answer, gist)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::world::Placement;

    #[test]
    fn servers_that_are_not_built_have_no_figures() {
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
        let section = made(&cells);
        assert_eq!(section.ratio_at(5, Side::Sleeping, 0), Some(2.5));
        assert_eq!(section.ratio_at(7, Side::Sleeping, 0), Some(2.0));
        let unix = section.lines.iter().filter(|line| line.name.starts_with("Unix server"));
        assert_eq!(unix.filter(|line| line.today.is_none()).count(), 4);
    }
}
