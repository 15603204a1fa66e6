//! Seven pipes in one run: *µ-kernel meets Unix pipes* (1997), table 1.

use super::emulation::{CallPath, Emulation, Visit, Work};
use super::model::{Line, Measure, Section, Side, Summary, Today, Unit, times};
use super::progress::Progress;
use super::published::{PIPES_1997, read};
use super::turns::{Cell, Length, alternate, best, notes, placements};
use crate::udp::world::Waiting;

/// Today's paths in the order of the paper's rows.
const WAYS: [CallPath; 7] = [
    CallPath::Kernel,
    CallPath::Trampoline,
    CallPath::Library,
    CallPath::Stream,
    CallPath::Call,
    CallPath::Thread,
    CallPath::Process,
];

const SAYS: [&str; 7] = [
    "The kernel’s pipes; spinning: non-blocking calls in a loop.",
    "Pipes in a server process, reached by Sojourn IPC: a static program in Sojourn’s loader, whose rewritten system calls end in a library that calls the server (ABI).",
    "The same pipes and the same library, preloaded into the dynamic program: the C library’s functions are taken over (n-ABI).",
    "Sojourn’s stream between the two programs, unmodified, by sojourn run; no server takes part.",
    "One Sojourn IPC call for a transfer there and back: request and answer carry the bytes; a program written for it.",
    "In the place of MkLinux in the kernel: pipes of a thread, reached over Unix sockets by two other threads of the same process.",
    "In the place of MkLinux as a server: the same library as above, over a Unix socket to a server process.",
];

const HOW: &str = "One C program makes two pipes and a child and plays ping-pong with it: 1 byte for the \
    latency (there and back), 64 KiB for the throughput (bytes both ways by time). It is the same \
    program in all rows but the fifth and sixth. Each visit is measured with both ends on one \
    processor and the server on another, with the ends apart, and with everything on one; a row is \
    judged by its best; a stream that spins is measured with its ends apart alone. Sleeping: everybody sleeps at once. Spinning: nobody sleeps; where three \
    processes share two processors they let others go first (sched_yield). That Sojourn’s streams \
    were really used is asked of the session server after each visit.";

const LARGE: usize = 64 << 10;

pub(crate) fn section(emulation: &Emulation, quick: bool, progress: &Progress) -> Section {
    let length = Length::of(quick);
    let mut visits = Vec::new();
    for way in WAYS {
        for waiting in Waiting::ALL {
            for &placement in placements(way, waiting) {
                for size in [1, LARGE] {
                    // A stream has to move out of the kernel first, so it needs more time to warm
                    // up.
                    let ms = if way == CallPath::Stream { length.ms.max(200) } else { length.ms };
                    visits.push(Visit { way, waiting, placement, work: Work::Pipe(size), ms });
                }
            }
        }
    }
    made(&alternate(emulation, visits, length.rounds, progress))
}

/// Makes the section from its figures.
fn made(cells: &[Cell]) -> Section {
    let table = read(PIPES_1997);
    let today = |way: CallPath| {
        let figures = |waiting| {
            let small = best(cells, way, waiting, Work::Pipe(1));
            let large = best(cells, way, waiting, Work::Pipe(LARGE));
            vec![small, large.map(|ns| 2.0 * LARGE as f64 * 1e9 / ns)]
        };
        Today { sleeping: figures(Waiting::Sleeping), spinning: figures(Waiting::Spinning) }
    };
    let line = |(row, way): (usize, CallPath)| Line {
        name: table.word(row, "system").to_owned(),
        published: vec![table.number(row, "latency_us"), table.number(row, "throughput_mb_per_s")],
        today: Some(today(way)),
        says: SAYS[row].to_owned(),
        base: 0,
    };
    let section = Section {
        key: "pipes",
        title: "Pipes 1997: seven pipes",
        paper: "Härtig, Hohmuth, Schönberg, Wolter: µ-kernel meets Unix pipes (1997), table 1; 133 MHz Pentium.",
        how: HOW.to_owned(),
        measures: vec![
            Measure::new("1 byte, there and back", "µs", Unit::Ns),
            Measure::new("64 KiB, there and back", "MB/s", Unit::BytesPerS),
        ],
        lines: WAYS.into_iter().enumerate().map(line).collect(),
        notes: notes(cells),
        ..Section::default()
    };
    section.summarised(summary)
}

fn summary(section: &Section) -> Summary {
    let of = |line, side, measure| times(section.ratio_at(line, side, measure));
    let gist = format!(
        "a pipe in user space has {} times the kernel’s latency spinning, {} sleeping (L4 {})",
        of(3, Side::Spinning, 0),
        of(3, Side::Sleeping, 0),
        of(3, Side::Published, 0),
    );
    let answer = format!(
        "An unmodified program’s pipe in user space takes {} times the kernel’s latency asleep and {} \
         spinning (1997: {}), with {} and {} times its throughput ({}); one in an emulation server \
         takes {} times by the library and {} by the trampoline asleep, {} and {} spinning ({} and {}).",
        of(3, Side::Sleeping, 0),
        of(3, Side::Spinning, 0),
        of(3, Side::Published, 0),
        of(3, Side::Sleeping, 1),
        of(3, Side::Spinning, 1),
        of(3, Side::Published, 1),
        of(2, Side::Sleeping, 0),
        of(1, Side::Sleeping, 0),
        of(2, Side::Spinning, 0),
        of(1, Side::Spinning, 0),
        of(2, Side::Published, 0),
        of(1, Side::Published, 0),
    );
    Summary { answer, gist }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::udp::world::Placement;

    #[test]
    fn throughput_counts_both_ways() {
        let cell = |way, size, ns| Cell {
            visit: Visit {
                way,
                waiting: Waiting::Sleeping,
                placement: Placement::Apart,
                work: Work::Pipe(size),
                ms: 1,
            },
            rounds: vec![ns],
            error: None,
        };
        let cells = [cell(CallPath::Kernel, LARGE, 1e9), cell(CallPath::Stream, LARGE, 5e8)];
        let section = made(&cells);
        assert_eq!(section.lines[0].figure(Side::Sleeping, 1), Some(131_072.0));
        assert_eq!(section.ratio_at(3, Side::Sleeping, 1), Some(2.0));
        assert_eq!(section.ratio_at(3, Side::Sleeping, 0), None);
        assert_eq!(section.lines[4].name, "Native synchronous L4 IPC");
    }
}
