//! The null system call, emulated: *The Performance of µ-Kernel-Based Systems* (1997).

use super::emulation::{CallPath, Emulation, Visit, Work};
use super::model::{Line, Measure, Section, Side, Summary, Today, Unit, times};
use super::progress::Progress;
use super::published::{GETPID_1997, read};
use super::turns::{Cell, Length, alternate, best, notes};
use crate::os;
use crate::udp::world::{Placement, Waiting};

/// Today's paths in the order of the paper's rows, then paths without a published row.
const WAYS: [CallPath; 6] = [
    CallPath::Kernel,
    CallPath::Library,
    CallPath::Trampoline,
    CallPath::Thread,
    CallPath::Process,
    CallPath::Ptrace,
];

const SAYS: [&str; 6] = [
    "getpid(2) of the kernel.",
    "A preloaded library takes the C library’s getpid over and calls a server process by Sojourn IPC (n-ABI); the program is unmodified.",
    "A static program in Sojourn’s loader: its rewritten system call jumps to a trampoline, and the same library calls the same server (ABI).",
    "In MkLinux’s place, without another address space: question and answer over a Unix socket to a thread of the same process; a program written for it.",
    "In MkLinux’s place: the same library over a Unix socket to a server process; the program is unmodified.",
    "A tracer stops the program twice a call and writes its registers (ptrace).",
];

const HOW: &str = "One C program asks for its process number again and again and checks the answer, \
    which only the server gives. Spinning: both sides ask again and again, on two processors. \
    Sleeping: both sleep in the kernel at once; on one processor or on two, whichever is faster. The \
    server answers nothing else meanwhile. Cycles are those of the time-stamp counter. The library \
    and the loader’s door are those of a benchmark (crates/emulation): Sojourn itself leaves \
    getpid to the kernel.";

pub(crate) fn section(emulation: &Emulation, quick: bool, progress: &Progress) -> Section {
    let length = Length::of(quick);
    let mut visits = Vec::new();
    for way in WAYS {
        for waiting in Waiting::ALL {
            for placement in [Placement::Together, Placement::Single] {
                visits.push(Visit { way, waiting, placement, work: Work::Pid, ms: length.ms });
            }
        }
    }
    let cells = alternate(emulation, visits, length.rounds, progress);
    made(&cells, os::cycles_per_ns())
}

/// Makes the section from its figures.
fn made(cells: &[Cell], cycles_per_ns: f64) -> Section {
    let table = read(GETPID_1997);
    let today = |way: CallPath| {
        let figures = |waiting| {
            let ns = best(cells, way, waiting, Work::Pid);
            vec![ns, ns.map(|ns| ns * cycles_per_ns)]
        };
        // The kernel's own call does not wait, and a tracer can only sleep: both have one figure.
        let spinning = match way {
            CallPath::Ptrace => Vec::new(),
            _ => figures(Waiting::Spinning),
        };
        Today { sleeping: figures(Waiting::Sleeping), spinning }
    };
    let line = |(row, way): (usize, CallPath)| {
        let is_published = row < table.len();
        let name = if is_published { table.word(row, "system") } else { "ptrace (today only)" };
        let published = ["us", "cycles"].map(|column| table.number(row, column));
        Line {
            name: name.to_owned(),
            published: if is_published { published.into() } else { Vec::new() },
            today: Some(today(way)),
            says: SAYS[row].to_owned(),
            base: 0,
        }
    };
    let section = Section {
        key: "getpid",
        title: "L4 1997: the null system call, emulated",
        paper: "Härtig, Hohmuth, Liedtke, Schönberg, Wolter: The Performance of µ-Kernel-Based Systems (SOSP 1997), as quoted in lecture slides on the critique of microkernels.",
        how: HOW.to_owned(),
        measures: vec![
            Measure::new("getpid", "µs", Unit::Ns),
            Measure::new("the same in cycles", "cycles", Unit::Cycles),
        ],
        lines: WAYS.into_iter().enumerate().map(line).collect(),
        notes: notes(cells),
        ..Section::default()
    };
    section.summarised(summary)
}

fn summary(section: &Section) -> Summary {
    let of = |line, side| times(section.ratio_at(line, side, 0));
    let gist = format!(
        "a system call answered by a server takes {} times the kernel’s spinning, {} sleeping (L4Linux {})",
        of(1, Side::Spinning),
        of(1, Side::Sleeping),
        of(1, Side::Published),
    );
    let answer = format!(
        "An emulated getpid costs {} times the kernel’s by the library and {} times by the trampoline \
         while both sides spin (L4Linux: {} and {}), {} and {} times asleep; a Unix socket to a \
         server process asleep {} times (MkLinux: {}).",
        of(1, Side::Spinning),
        of(2, Side::Spinning),
        of(1, Side::Published),
        of(2, Side::Published),
        of(1, Side::Sleeping),
        of(2, Side::Sleeping),
        of(4, Side::Sleeping),
        of(4, Side::Published),
    );
    Summary { answer, gist }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_published_row_has_its_own_way() {
        let cell = |way, waiting, ns| Cell {
            visit: Visit { way, waiting, placement: Placement::Together, work: Work::Pid, ms: 1 },
            rounds: vec![ns],
            error: None,
        };
        let mut cells = Vec::new();
        for (at, way) in WAYS.into_iter().enumerate() {
            for (waiting, more) in [(Waiting::Sleeping, 10.0), (Waiting::Spinning, 1.0)] {
                let ns = if at == 0 { 100.0 } else { 100.0 * (at as f64 + 1.0) * more };
                cells.push(cell(way, waiting, ns));
            }
        }
        let section = made(&cells, 2.0);
        assert_eq!(section.ratio_at(2, Side::Spinning, 0), Some(3.0));
        assert_eq!(section.ratio_at(4, Side::Sleeping, 0), Some(50.0));
        assert_eq!(section.lines[0].figure(Side::Sleeping, 1), Some(200.0));
        assert_eq!(section.ratio_at(5, Side::Published, 0), None);
        assert!(
            section.answer.contains("2.00 times the kernel’s by the library"),
            "{}",
            section.answer
        );
    }
}
