//! The study of memory systems repeated: *The Impact of Operating System Structure on Memory System
//! Performance* (1993), with the protocol in the kernel, in the library and in a server.
//!
//! Every instruction and access of a virtual machine, kernel and programs, goes through models of
//! caches (`sojourn_memory`). Read `case` (what is run), then `machine` and `guest`. The page
//! docs/understand/memory-study.md tells how it is done. Not here: the models.

mod case;
mod guest;
mod image;
mod init;
mod machine;

use anyhow::{Context as _, Result, bail};
use sojourn_memory::{Mcpi, Report, Totals};

use self::case::{Case, Home, Work};
use self::machine::{HOW_TO_GET, Machine};
use super::model::{Line, Measure, Section, Side, Summary, Today, Unit, times};
use super::progress::Progress;
use super::published::{MEMORY_1993, Published, read};

const HOW: &str = "A virtual machine with one processor runs Debian’s kernel and the programs of a workload in QEMU’s \
    interpreter; a plugin gives each instruction and each access, with its physical address, to models of memory systems. \
    The first columns are the paper’s machine, a DECstation 5000/200: 64 KiB direct-mapped for instructions and as much for \
    data, write-through, a write buffer of six entries, 15 cycles for a miss. Cycles that the processor waits are divided by \
    all instructions, so that the columns of kernel and programs add up; the kernel is the upper half of the addresses. \
    Misses that a fully associative cache of the same size does not have are conflicts, the rest is capacity. Today’s \
    caches: 32 KiB with 8 ways twice, 1 MiB for both with 16, lines of 64 bytes, 14 cycles for a miss of the first and 200 of the second. \
    Both hosts of a round trip are in the one machine. All programs sleep while they wait. Base: of 1993 Ultrix, today the kernel. \
    x86 code is not MIPS code: shapes compare, numbers do not.";

/// The columns that the paper has, by the names in the file of published figures, then today's own.
const MEASURES: [(&str, &str, Unit); 17] = [
    ("cycles per instruction", "mcpi", Unit::PerInstruction),
    ("kernel: fetches", "system_fetch", Unit::PerInstruction),
    ("kernel: reads", "system_read", Unit::PerInstruction),
    ("kernel: stores", "system_store", Unit::PerInstruction),
    ("kernel: devices", "system_device", Unit::PerInstruction),
    ("programs: fetches", "user_fetch", Unit::PerInstruction),
    ("programs: reads", "user_read", Unit::PerInstruction),
    ("programs: stores", "user_store", Unit::PerInstruction),
    ("conflicts", "", Unit::PerInstruction),
    ("capacity", "", Unit::PerInstruction),
    ("all, two-way", "", Unit::PerInstruction),
    ("all, caches apart for kernel and programs", "", Unit::PerInstruction),
    ("all, today’s caches", "", Unit::PerInstruction),
    ("kernel: instructions an operation", "", Unit::Count),
    ("programs: instructions an operation", "", Unit::Count),
    ("memory cycles an operation", "", Unit::Count),
    ("working set", "", Unit::Bytes),
];
const CONFLICTS: usize = 8;
const CAPACITY: usize = 9;
/// Instructions of the kernel and of programs.
const EXECUTED: [usize; 2] = [13, 14];
const CYCLES: usize = 15;

/// Measures all cases; in a quick run only the first.
pub(crate) fn section(quick: bool, progress: &Progress) -> Section {
    let mut found = Vec::new();
    let machine = match Machine::new() {
        Ok(machine) => machine,
        Err(error) => return made(&found, vec![format!("Not measured: {error:#}. {HOW_TO_GET}")]),
    };
    crate::net::note(vec![machine.folder().to_owned()]);
    let cases: Vec<Case> = Case::all().take(if quick { 1 } else { usize::MAX }).collect();
    let mut notes = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        progress.at(number as f64 / cases.len() as f64);
        match machine.run(*case) {
            Ok(report) => found.push(CaseReport { case: *case, report }),
            Err(error) => notes.push(format!("{}: {error:#}", case.name())),
        }
    }
    made(&found, notes)
}

/// Runs one case: `machine CASE`, `init CASE` or `inside CASE`.
pub(crate) fn one(words: &[String]) -> Result<()> {
    let [what, name] = words else { bail!("machine, init or inside, and a case") };
    let case = Case::of(name).with_context(|| format!("no case {name}"))?;
    match what.as_str() {
        "machine" => {
            println!("{}", serde_json::to_string(&Machine::new()?.run(case)?)?);
            Ok(())
        }
        "init" => init::main(case),
        "inside" => guest::run(case),
        other => bail!("machine, init or inside: not {other}"),
    }
}

/// The figures of a case.
struct CaseReport {
    case: Case,
    report: Report,
}

/// Makes the section from its figures.
fn made(found: &[CaseReport], notes: Vec<String>) -> Section {
    let table = read(MEMORY_1993);
    let mut lines: Vec<Line> = (0..table.len()).map(|row| published(&table, row)).collect();
    let first = lines.len();
    for (number, case) in Case::all().enumerate() {
        let report = found.iter().find(|one| one.case == case).map(|one| &one.report);
        lines.push(Line {
            name: format!("{}, {}", case.work.title(), case.home.word()),
            published: Vec::new(),
            today: report.map(|report| Today {
                sleeping: figures(report, case.count()),
                spinning: Vec::new(),
            }),
            says: match report {
                Some(_) => case.says().to_owned(),
                None => format!("{} Not measured in this run: {HOW_TO_GET}", case.says()),
            },
            base: first + number / Home::ALL.len() * Home::ALL.len(),
        });
    }
    let section = Section {
        key: "memory",
        title: "1993: memory systems",
        paper: "Chen, Bershad: The Impact of Operating System Structure on Memory System Performance (SOSP 1993), figure 2-1; DECstation 5000/200, seven of the thirteen workloads.",
        how: HOW.to_owned(),
        measures: MEASURES.map(|(name, _, unit)| Measure::new(name, "MCPI", unit)).to_vec(),
        lines,
        notes,
        ..Section::default()
    };
    section.summarised(summary)
}

fn published(table: &Published, row: usize) -> Line {
    let (workload, system) = (table.word(row, "workload"), table.word(row, "system"));
    let says = match system {
        "Ultrix" => "Published only: everything in the kernel.",
        _ => "Published only: a microkernel, a Unix server, a library in each program.",
    };
    Line {
        name: format!("{workload}, {system}"),
        published: MEASURES.map(|(_, column, _)| table.number(row, column)).to_vec(),
        today: None,
        says: says.to_owned(),
        base: row / 2 * 2,
    }
}

/// Returns the cycles per instruction that misses cost.
fn of_misses(totals: &Totals) -> f64 {
    let Mcpi { system, user } = Mcpi::of(totals);
    system.fetch + system.read + user.fetch + user.read
}

fn figures(report: &Report, operations: u32) -> Vec<Option<f64>> {
    let direct = Mcpi::of(&report.direct_mapped);
    // Where the oldest line is replaced, more places may also mean more misses.
    let misses = of_misses(&report.direct_mapped);
    let capacity = of_misses(&report.fully_associative).min(misses);
    let each = |count: u64| count as f64 / f64::from(operations);
    let set = &report.working_set;
    let touched = set.user_instructions + set.user_data + set.system_instructions + set.system_data;
    let all: [f64; MEASURES.len()] = [
        direct.sum(),
        direct.system.fetch,
        direct.system.read,
        direct.system.store,
        direct.system.device,
        direct.user.fetch,
        direct.user.read,
        direct.user.store,
        misses - capacity,
        capacity,
        Mcpi::of(&report.two_way).sum(),
        Mcpi::of(&report.separate).sum(),
        Mcpi::of(&report.today).sum(),
        each(report.direct_mapped.system.instructions),
        each(report.direct_mapped.user.instructions),
        each(report.direct_mapped.cycles()),
        touched as f64,
    ];
    all.map(Some).to_vec()
}

fn summary(section: &Section) -> Summary {
    let of = |home: Home, measure: usize| {
        let name = format!("{}, {}", Work::Tcp.title(), home.word());
        let line = section.lines.iter().find(|line| line.name == name)?;
        Some((line.figure(Side::Sleeping, measure), section.ratio(line, Side::Sleeping, measure)))
    };
    let figure = |home, measure| of(home, measure).and_then(|(figure, _)| figure);
    let ratio = |home, measure| times(of(home, measure).and_then(|(_, ratio)| ratio));
    let shown = |home, measure| times(figure(home, measure));
    let share = |home| {
        let (conflicts, capacity) = (figure(home, CONFLICTS), figure(home, CAPACITY));
        let all = conflicts.unwrap_or_default() + capacity?;
        Some(format!("{:.0} %", 100.0 * conflicts.unwrap_or_default() / all))
    };
    let share = |home| share(home).unwrap_or_else(|| "(not measured)".to_owned());
    if figure(Home::Kernel, CYCLES).is_none() {
        let answer = format!("Not measured in this run. {HOW_TO_GET}");
        return Summary { answer, gist: String::new() };
    }
    let executed =
        |home| Some(figure(home, EXECUTED[0])? + figure(home, EXECUTED[1]).unwrap_or_default());
    let more =
        |home| times(executed(home).zip(executed(Home::Kernel)).map(|(one, base)| one / base));
    let answer = format!(
        "On one processor, where every wait is a sleep, a TCP round trip waits {} times as long for memory with the protocol in both programs, \
         and {} times with it in servers, as in the kernel. It executes {} and {} times as many instructions; with the caches of 1993 each waits {} cycles in the kernel, \
         {} in the library, {} in servers (then Mach’s waited {} times Ultrix’s, the median of seven workloads). \
         Of the misses’ cycles {} are conflicts in the kernel, {} in the library and {} in servers: the rest is more code and data than the caches have room for.",
        ratio(Home::Library, CYCLES),
        ratio(Home::Server, CYCLES),
        more(Home::Library),
        more(Home::Server),
        shown(Home::Kernel, 0),
        shown(Home::Library, 0),
        shown(Home::Server, 0),
        times(published_ratio(section)),
        share(Home::Kernel),
        share(Home::Library),
        share(Home::Server),
    );
    let gist = format!(
        "on one processor a TCP round trip waits {} times as long for memory with its protocol in the programs as in the kernel, and {} times in servers (an instruction under Mach {} times one under Ultrix)",
        ratio(Home::Library, CYCLES),
        ratio(Home::Server, CYCLES),
        times(published_ratio(section)),
    );
    Summary { answer, gist }
}

/// Returns Mach's cycles per instruction as a ratio to Ultrix's, the median over the workloads.
fn published_ratio(section: &Section) -> Option<f64> {
    let mach = section.lines.iter().filter(|line| line.name.ends_with(", Mach"));
    let ratios: Vec<f64> =
        mach.filter_map(|line| section.ratio(line, Side::Published, 0)).collect();
    (!ratios.is_empty()).then(|| crate::stats::median(&ratios))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sojourn_memory::Counts;

    fn totals(fetch_cycles: u64) -> Totals {
        let system = Counts { instructions: 4000, fetch_cycles, ..Counts::default() };
        Totals { system, ..Totals::default() }
    }

    #[test]
    fn misses_are_conflicts_or_capacity() {
        let report = |full| Report {
            direct_mapped: totals(8000),
            fully_associative: totals(full),
            ..Report::default()
        };
        let of = |full| {
            let figures = figures(&report(full), 400);
            (figures[0], figures[CONFLICTS], figures[CAPACITY])
        };
        assert_eq!(of(2000), (Some(2.0), Some(1.5), Some(0.5)));
        assert_eq!(of(9000), (Some(2.0), Some(0.0), Some(2.0)));
    }

    #[test]
    fn rows_compare_with_ultrix_or_with_the_kernel() {
        let of = |home, cycles| {
            let report = Report { direct_mapped: totals(cycles), ..Report::default() };
            CaseReport { case: Case { work: Work::Tcp, home }, report }
        };
        let found = [of(Home::Kernel, 4000), of(Home::Server, 6000)];
        let section = made(&found, Vec::new());
        assert_eq!(section.lines.len(), 14 + 12);
        let ratio = |name: &str, side| {
            let line = section.lines.iter().find(|line| line.name == name)?;
            section.ratio(line, side, 0)
        };
        assert_eq!(ratio("TCP round trip, server", Side::Sleeping), Some(1.5));
        assert_eq!(ratio("TCP round trip, library", Side::Sleeping), None);
        assert_eq!(ratio("sed, Mach", Side::Published).map(|r| (r * 100.0) as u32), Some(218));
        assert!(section.answer.contains("(not measured) times as long"), "{}", section.answer);
        // Servers make a quarter of the operations: 4 times the instructions each, 6 the cycles.
        assert!(section.answer.contains("and 6.00 times"), "{}", section.answer);
        assert!(section.answer.contains("and 4.00 times as many"), "{}", section.answer);
    }

    #[test]
    fn what_is_missing_says_how_it_is_got() {
        let section = made(&[], vec!["no QEMU".into()]);
        assert!(section.answer.starts_with("Not measured") && section.gist.is_empty());
        let today = section.lines.iter().filter(|line| line.published.is_empty());
        assert!(today.into_iter().all(|line| line.says.contains("--table memory")));
    }
}
