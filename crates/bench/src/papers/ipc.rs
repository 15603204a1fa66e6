//! A call between address spaces, compared with systems of the 1990s.

use super::model::{Line, Measure, Section, Side, Summary, Today, Unit, times};
use super::published::{IPC_1990S, read};
use crate::ipc::measure::Cell;
use crate::ipc::row::Mode;
use crate::os;

/// The published row that ratios refer to: L4 on the processor of the other tables.
const BASE: (&str, &str) = ("L4", "Pentium");

/// Today's rows: the name in the benchmark `ipc`, the name on the page, and a sentence.
const TODAY: [(&str, &str, &str); 6] = [
    (
        "sojourn",
        "Sojourn IPC (today)",
        "A call with 8 bytes between two processes. Full: either side distrusts the other, deadlines, every message copied before it is looked at.",
    ),
    ("pipe", "pipe (today)", "Two of the kernel’s pipes, 8 bytes there, one back."),
    ("unix stream socket", "Unix socket (today)", "A stream socket, 8 bytes there, one back."),
    (
        "eventfd + shared memory",
        "eventfd (today)",
        "Restricted: two event counters as bells, the bytes in shared memory; neither side is safe from the other.",
    ),
    (
        "futex + shared memory",
        "futex (today)",
        "Restricted: a futex as the bell, the bytes in shared memory.",
    ),
    (
        "floor: ping-pong",
        "nothing but the hardware (today)",
        "Restricted: a cache line there and back (spinning), a bare futex hand-over there and back (sleeping). What every message costs at least.",
    ),
];

const HOW: &str = "The benchmark ipc: server and client are processes of their own, all rows take turns. \
    Spinning: two processors, both sides poll. Sleeping: both sides sleep at once, on one processor \
    or on two, whichever is faster. A transfer is half a call there and back; cycles are those of \
    the time-stamp counter. The 1990s’ machines had one processor, where each transfer changes the \
    address space: sleeping on one processor is the nearest to that.";

pub(crate) fn section(quick: bool) -> anyhow::Result<Section> {
    let names = TODAY.map(|(row, ..)| row);
    Ok(made(&crate::ipc::short_calls(quick, &names)?, os::cycles_per_ns()))
}

/// Makes the section from its figures.
fn made(cells: &[Cell], cycles_per_ns: f64) -> Section {
    let table = read(IPC_1990S);
    let mut lines = Vec::new();
    let is_base = |row: &usize| (table.word(*row, "system"), table.word(*row, "cpu")) == BASE;
    let base = (0..table.len()).find(is_base).unwrap_or(0);
    for row in 0..table.len() {
        let word = |column| table.word(row, column);
        lines.push(Line {
            name: format!("{}, {} {} MHz", word("system"), word("cpu"), word("mhz")),
            published: vec![table.number(row, "cycles_per_ipc"), table.number(row, "rpc_us")],
            today: None,
            says: format!("Semantics: {}. Not run today; its place is below.", word("semantics")),
            base,
        });
    }
    let own = lines.len();
    let today = |name: &str| {
        let figures = |modes: &[Mode]| {
            let fits =
                |cell: &&Cell| cell.row == name && cell.ns > 0.0 && modes.contains(&cell.mode);
            let ns = cells.iter().filter(fits).map(|cell| cell.ns).min_by(f64::total_cmp);
            vec![ns.map(|ns| ns / 2.0 * cycles_per_ns), ns]
        };
        let sleeping = figures(&[Mode::BlockOne, Mode::BlockTwo]);
        Today { sleeping, spinning: figures(&[Mode::SpinTwo]) }
    };
    lines.extend(TODAY.map(|(row, name, says)| Line {
        name: name.to_owned(),
        published: Vec::new(),
        today: Some(today(row)),
        says: says.to_owned(),
        base: own,
    }));
    let section = Section {
        key: "ipc",
        title: "L4: IPC between address spaces",
        paper: "lecture slides on the critique of microkernels (systems of the 1990s); base row L4 on a Pentium. Of today’s rows the base is Sojourn’s.",
        how: HOW.to_owned(),
        measures: vec![
            Measure::new("one transfer", "cycles", Unit::Cycles),
            Measure::new("a call there and back", "µs", Unit::Ns),
        ],
        lines,
        notes: errors(cells),
        ..Section::default()
    };
    section.summarised(summary)
}

fn summary(section: &Section) -> Summary {
    let own = section.lines.last().map_or(0, |line| line.base);
    let cycles = |side| section.lines[own].figure(side, 0).map_or("(not measured)".into(), whole);
    let gist = format!(
        "an IPC transfer takes {} cycles spinning, {} sleeping (L4 on a Pentium 121, Mach on a 486 5750)",
        cycles(Side::Spinning),
        cycles(Side::Sleeping),
    );
    let answer = format!(
        "One transfer by Sojourn IPC takes {} cycles spinning and {} asleep (L4 on a Pentium 121, Mach on \
         a 486 5750); a pipe takes {} times as long asleep, a Unix socket {} times.",
        cycles(Side::Spinning),
        cycles(Side::Sleeping),
        times(section.ratio_at(own + 1, Side::Sleeping, 0)),
        times(section.ratio_at(own + 2, Side::Sleeping, 0)),
    );
    Summary { answer, gist }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn errors(cells: &[Cell]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for cell in cells {
        if let Some(error) = &cell.error
            && !notes.iter().any(|note| note.starts_with(&cell.row))
        {
            notes.push(format!("{}: {error}", cell.row));
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::row::Kind;

    #[test]
    fn cycles_are_of_one_way_and_ratios_of_the_own_base() {
        let cell = |row: &str, mode, ns| Cell {
            row: row.into(),
            kind: Kind::Ours,
            mode,
            size: 8,
            one_way: false,
            ns,
            p50_ns: ns,
            p99_ns: ns,
            cpu_ns: ns,
            rounds: 1,
            error: None,
        };
        let cells = [
            cell("sojourn", Mode::SpinTwo, 100.0),
            cell("sojourn", Mode::BlockOne, 4000.0),
            cell("sojourn", Mode::BlockTwo, 3000.0),
            cell("pipe", Mode::BlockOne, 6000.0),
        ];
        let section = made(&cells, 2.0);
        let own = &section.lines[15];
        assert_eq!(own.figure(Side::Spinning, 0), Some(100.0));
        assert_eq!(own.figure(Side::Sleeping, 1), Some(3000.0));
        assert_eq!(section.ratio_at(16, Side::Sleeping, 0), Some(2.0));
        let mach =
            section.lines.iter().position(|line| line.name.starts_with("Mach, 486")).unwrap();
        assert!(
            (section.ratio_at(mach, Side::Published, 0).unwrap() - 5750.0 / 121.0).abs() < 1e-9
        );
        assert!(section.answer.contains("100 cycles spinning"), "{}", section.answer);
    }
}
