//! The page `docs/use/programs.md`, made from the rows.

use super::compare::{Row, Verdict};
use super::run::Outcome;
use super::seen::Class;
use std::fmt::Write as _;

/// The head of each table.
const HEAD: &str = "| program | class | door | moves | eager | gain | busy (s) |\n\
                    |---|---|---|---|---|---|---|\n";

/// Returns what a row says in one line of a terminal.
#[must_use]
pub fn line(row: &Row) -> String {
    format!(
        "{}: {} by {}; default {} ({}), eager {} ({}), gain {}, plain {:.1} s",
        row.program.name,
        classes(row),
        doors(row),
        word(&row.default.verdict),
        moved(&row.default.outcome),
        word(&row.eager.verdict),
        moved(&row.eager.outcome),
        gain(row),
        row.plain.took.as_secs_f64()
    )
}

/// Returns the tables without the rest of the page.
#[must_use]
pub fn tables(rows: &[Row]) -> String {
    let is_own = |row: &&Row| makes_own_calls(row);
    let mut text = String::from(HEAD);
    rows.iter().filter(|row| !is_own(row)).for_each(|row| text += &cells(row));
    text += "\n## Programs that make their own system calls\n\n";
    text += HEAD;
    rows.iter().filter(is_own).for_each(|row| text += &cells(row));
    text
}

/// Returns the page.
#[must_use]
pub fn page(rows: &[Row]) -> String {
    let same = rows.iter().filter(|row| row.is_same()).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel: Vec<&str> = kernel.trim().split(['.', '-']).take(2).collect();
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let mut text = format!(
        "# Programs\n\n\
         Made by `cargo xtask programs` from real runs; do not edit. {} programs, of which {same} do the same plainly and under Sojourn.\n\n\
         Each is run by a script of `tests/system/programs/`: plainly, under `sojourn run` with default settings, and with `--move-after-calls 0` (*eager*). \
         What it prints (results, checksums, exit statuses) must be the same, and no process may be left. A run that differs is made once more.\n\n\
         | column | |\n|---|---|\n\
         | class | of the program files: dynamic with the GNU C library (`glibc`), static with it, musl's, Go's |\n\
         | door | how the library came into them: the dynamic loader (`preload`), Sojourn's own (`loader`, setting `load`); `rewriting`: the script has the setting `rewrite` |\n\
         | moves, eager | streams that the server has made, by default and with eager moves, and their kinds as far as they could be seen while they lasted |\n\
         | gain | time of the script's busy part plainly, as a multiple of that under Sojourn: above 1 it is faster. The shortest of at least two runs each, by turns; start-up and waiting for servers are not in it. – : the script has no such part, what it does is too short or sleeps |\n\
         | busy | that part's time under Sojourn |\n\n\
         The times are of one machine (Linux {}, {processors} processors) that does other work, too: [benchmarks](../understand/benchmarks.md) has measurements. \
         What is said of *why* comes from `sojourn ss` while the script ran.\n\n## Programs of the GNU C library\n\n",
        rows.len(),
        kernel.join(".")
    );
    text += &tables(rows);
    text += &differences(rows);
    text += &staying(rows);
    text += "\n## What they do\n\n";
    for row in rows {
        let _ = writeln!(text, "* **{}**: {}", row.program.name, row.program.about);
    }
    text
}

fn cells(row: &Row) -> String {
    let busy = row.busy.map_or("–".into(), |busy| format!("{:.2}", busy.with.as_secs_f64()));
    let mark = if row.is_same() { "" } else { " [differs](#what-differs)" };
    format!(
        "| {}{mark} | {} | {} | {} | {} | {} | {busy} |\n",
        row.program.name,
        classes(row),
        doors(row),
        moved(&row.default.outcome),
        moved(&row.eager.outcome),
        gain(row),
    )
}

/// Returns true if the row is about programs that are not of the GNU C library alone.
fn makes_own_calls(row: &Row) -> bool {
    let seen = &row.plain.seen.classes;
    !row.program.settings.is_empty() || (!seen.is_empty() && !seen.contains(&Class::Glibc))
}

fn classes(row: &Row) -> String {
    let words: Vec<&str> = row.plain.seen.classes.iter().map(|class| class.word()).collect();
    if words.is_empty() { "–".into() } else { words.join(", ") }
}

fn doors(row: &Row) -> String {
    let seen = [&row.default.outcome.seen.doors, &row.eager.outcome.seen.doors];
    let mut words: Vec<&str> = seen.into_iter().flatten().copied().collect();
    words.sort_unstable();
    words.dedup();
    if row.program.settings.contains(&"REWRITE") {
        words.push("rewriting");
    }
    if words.is_empty() { "–".into() } else { words.join(", ") }
}

fn gain(row: &Row) -> String {
    match row.busy {
        None => "–".into(),
        Some(busy) if busy.is_harmed() => format!("**{:.2}**", busy.gain()),
        Some(busy) => format!("{:.2}", busy.gain()),
    }
}

fn moved(outcome: &Outcome) -> String {
    let kinds: Vec<&str> = outcome.seen.kinds.keys().copied().collect();
    match (outcome.streams, kinds.is_empty()) {
        (0, _) => "–".into(),
        (streams, true) => streams.to_string(),
        (streams, false) => format!("{streams} {}", kinds.join(", ")),
    }
}

fn word(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Same => "same".into(),
        Verdict::Unsure(why) => format!("**once different: {}**", cell(why)),
        Verdict::Differs(why) => format!("**differs: {}**", cell(why)),
    }
}

/// Shortens and escapes text.
fn cell(text: &str) -> String {
    let short: String = text.chars().take(160).collect();
    short.replace('|', "\\|").replace('\n', " ")
}

fn differences(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows.iter().filter(|row| !row.is_same()) {
        for (when, run) in [("by default", &row.default), ("with eager moves", &row.eager)] {
            if run.verdict != Verdict::Same {
                let _ = writeln!(text, "* **{}** {when}: {}", row.program.name, word(&run.verdict));
            }
        }
    }
    if text.is_empty() { text } else { format!("\n## What differs\n\n{text}") }
}

/// Says of each program of which nothing moves by default why that is so.
fn staying(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## Where nothing moves by default\n\nThe words are those of `sojourn ss --why` ([all of them](troubleshooting.md)), with the number of sessions.\n\n",
    );
    for row in rows.iter().filter(|row| row.default.outcome.streams == 0) {
        let _ = writeln!(text, "* **{}**: {}", row.program.name, why(row));
    }
    text
}

fn why(row: &Row) -> String {
    if !row.program.note.is_empty() {
        return row.program.note.clone();
    }
    let mut reasons: Vec<(usize, &String)> =
        row.stays.reasons.iter().map(|(reason, count)| (*count, reason)).collect();
    reasons.sort_by(|one, other| other.cmp(one));
    if reasons.is_empty() {
        return "no session lasted long enough to be seen.".into();
    }
    let link = |(count, reason): (usize, &String)| {
        format!("[`{reason}`](troubleshooting.md#{reason}) {count}")
    };
    reasons.into_iter().take(4).map(link).collect::<Vec<_>>().join(", ")
}
