//! Tests of pipes with names: they stay in the kernel while they have one, and move as other pipes
//! do once it is removed; whoever opens one more end finds every byte.
//!
//! The programs are `c/fifos`: numbered records, none of which may be lost, come twice or overtake
//! another. The server is told that only kin holds FIFOs unseen: hosts on which tests run may have
//! processes that not even root may look into. Not here: how holders are counted
//! (`sojourn_server::holders`).

#![allow(clippy::unwrap_used, reason = "a test ends by panicking")]

use rustix::process::Signal;
use serde_json::Value;
use sojourn_lab::{Finished, Mode, Running, Sandbox};
use sojourn_session::{KindT, ReasonT};
use sojourn_system::compile::compile;
use sojourn_system::{Admin, LIMIT};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// The first record of a second writer, and what a child of a writer adds to its parent's.
const SECOND: u64 = 1 << 50;
const OF_CHILD: u64 = 1 << 40;

fn program() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fifos");
        compile(&path, &["fifos/fifos.c"], &["-Wall"]).unwrap();
        path
    })
}

/// A sandbox with a FIFO `f` in its folder.
struct Stage {
    sandbox: Sandbox,
    admin: Admin,
}

impl Stage {
    fn new() -> Self {
        let mut sandbox = Sandbox::new().unwrap();
        sandbox.restart_with(&["--fifos", "kin"]).unwrap();
        sandbox.set("MOVE_AFTER_CALLS", "4");
        let admin = Admin::new(&sandbox).unwrap();
        let stage = Self { sandbox, admin };
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, stage.file("f"), fifo, mode, 0).unwrap();
        stage
    }

    fn file(&self, name: &str) -> PathBuf {
        self.sandbox.folder().join(name)
    }

    fn start(&self, mode: Mode, words: &[&str]) -> Running {
        let mut command = self.sandbox.command(mode, program());
        command.args(words);
        Running::start(command).unwrap()
    }

    /// Starts both ends under Sojourn, and waits until they are open.
    fn pair(&self, reads: &[&str], writes: &[&str]) -> [Running; 2] {
        let both = [[reads, &["read", "f"]].concat(), [writes, &["write", "f", "0"]].concat()];
        let both = both.map(|words| self.start(Mode::Sojourn, &words));
        self.await_files(&["read.open", "write.open"]);
        both
    }

    /// As [`Stage::pair`], of a FIFO whose name is removed, and waits until it is away.
    fn away(&mut self, reads: &[&str], writes: &[&str]) -> [Running; 2] {
        let both = self.pair(reads, writes);
        std::fs::remove_file(self.file("f")).unwrap();
        self.await_away(&both);
        std::fs::write(self.file("go"), "").unwrap();
        both
    }

    fn await_files(&self, names: &[&str]) {
        until("files", || names.iter().all(|name| self.file(name).exists()));
    }

    /// Waits until both ends are away, and bytes go that way.
    fn await_away(&mut self, both: &[Running; 2]) {
        let pids = [both[0].pid(), both[1].pid()];
        let admin = &mut self.admin;
        until("both ends are away", || {
            let away = admin.away().unwrap();
            let is_it = |pid: &u32| {
                away.iter().any(|end| {
                    end.pid == *pid && end.kind == KindT::Pipe && end.sent + end.received > 0
                })
            };
            pids.iter().all(is_it)
        });
    }

    /// Waits until the server has seen that reason at a process.
    fn await_reason(&mut self, process: &Running, reason: ReasonT) {
        let admin = &mut self.admin;
        until(reason.word(), || {
            let refused = admin.refused().unwrap();
            refused.iter().any(|one| one.pid == process.pid() && one.reason == reason)
        });
    }

    /// Has writers end, waits for all, and returns the ranges that were written.
    fn end(&self, all: Vec<Running>) -> Vec<(u64, u64)> {
        std::fs::write(self.file("end"), "").unwrap();
        let finish = |one: Running| one.finish(LIMIT).unwrap().success("an end").unwrap();
        all.into_iter().flat_map(|one| ranges(&finish(one))).collect()
    }

    /// The records that were read into a file.
    fn got(&self, name: &str) -> Vec<u64> {
        let bytes = std::fs::read(self.file(name)).unwrap();
        let (records, rest) = bytes.as_chunks::<8>();
        assert!(rest.is_empty(), "{name}: half a record");
        records.iter().map(|record| u64::from_ne_bytes(*record)).collect()
    }

    /// Checks that the readers got each record once, and each writer's in order.
    fn check(&self, readers: &[&str], written: &[(u64, u64)]) {
        let mut all = BTreeSet::new();
        for name in readers {
            let got = self.got(name);
            for (first, count) in written {
                let own = got.iter().filter(|record| (*first..first + count).contains(record));
                assert!(own.is_sorted(), "{name}: out of order");
            }
            let before = all.len();
            all.extend(&got);
            assert_eq!(all.len(), before + got.len(), "{name}: a record came twice");
        }
        let count: u64 = written.iter().map(|(_, count)| count).sum();
        assert_eq!(all.len() as u64, count, "records were lost, or invented");
        let is_written = |record: &u64| {
            written.iter().any(|(first, count)| (*first..first + count).contains(record))
        };
        assert!(all.iter().all(is_written), "what nobody wrote");
    }
}

/// What writers print: first record, and how many.
fn ranges(out: &str) -> Vec<(u64, u64)> {
    let number = |word: Option<&str>| word.and_then(|word| word.parse().ok());
    let range = |line: &str| {
        let mut words = line.split(' ');
        number(words.next()).zip(number(words.next()))
    };
    out.lines().filter_map(range).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts plain `cat` with that input and output.
fn cat(from: &Path, to: &Path) -> Running {
    let mut command = Command::new("sh");
    command.args(["-c", "exec cat <\"$1\" >\"$2\"", "-"]).arg(from).arg(to);
    Running::start(command).unwrap()
}

fn fd_of(process: &Running) -> PathBuf {
    let fds = format!("/proc/{}/fd", process.pid());
    let is_it = |link: &PathBuf| {
        std::fs::read_link(link).is_ok_and(|name| name.to_string_lossy().ends_with("/f (deleted)"))
    };
    let mut links = std::fs::read_dir(fds).unwrap().map(|entry| entry.unwrap().path());
    links.find(is_it).unwrap()
}

#[test]
fn a_fifo_whose_name_is_removed_moves() {
    for words in [&[][..], &["nonblock"]] {
        let mut stage = Stage::new();
        let both = stage.away(words, words);
        let from = stage.admin.away().unwrap().remove(0);
        let name = from.from.clone().unwrap_or_default();
        assert!(name.to_bytes().starts_with(b"fifo:["), "{from:?}");
        // Home, and away once more.
        stage.admin.recall_all().unwrap();
        let moves = stage.admin.moves().unwrap().joins;
        until("it moves again", || stage.admin.moves().unwrap().joins > moves);
        let written = stage.end(both.into());
        stage.check(&["read.got"], &written);
    }
}

#[test]
fn a_fifo_with_a_name_stays_and_says_why_and_moves_when_the_name_goes() {
    let mut stage = Stage::new();
    let both = stage.pair(&[], &[]);
    both.iter().for_each(|end| stage.await_reason(end, ReasonT::Named));
    assert!(stage.admin.away().unwrap().is_empty());
    let list = stage.sandbox.sessions().unwrap();
    let rows = list["sessions"].as_array().unwrap();
    let is_shown = |end: &Running| {
        let is_it = |row: &Value| row["pid"] == end.pid() && row["reason"] == "named";
        rows.iter().any(is_it)
    };
    assert!(both.iter().all(is_shown), "{list:#}");
    std::fs::remove_file(stage.file("f")).unwrap();
    stage.await_away(&both);
    let written = stage.end(both.into());
    stage.check(&["read.got"], &written);
}

#[test]
fn who_opens_a_fifo_by_its_name_finds_its_part() {
    let mut stage = Stage::new();
    let [reader, writer] = stage.pair(&[], &[]);
    stage.await_reason(&reader, ReasonT::Named);
    std::fs::write(stage.file("go"), "").unwrap();
    let second = stage.start(Mode::Plain, &["name=second", "write", "f", &SECOND.to_string()]);
    let cats: Vec<_> =
        (0..5).map(|n| cat(&stage.file("f"), &stage.file(&format!("{n}.cat")))).collect();
    // A shell makes its output when it has opened its input. One that opens the FIFO after the last
    // writer's end waits for another one.
    let outputs: Vec<String> = (0..5).map(|n| format!("{n}.cat")).collect();
    stage.await_files(&outputs.iter().map(String::as_str).collect::<Vec<_>>());
    stage.await_files(&["second.half"]);
    let written = stage.end(vec![writer, second, reader]);
    cats.into_iter().for_each(|cat| drop(cat.finish(LIMIT).unwrap().success("cat").unwrap()));
    stage.check(&["read.got", "0.cat", "1.cat", "2.cat", "3.cat", "4.cat"], &written);
}

#[test]
fn a_reader_that_stays_while_writers_come_and_go_gets_the_end_when_there_is_none() {
    let stage = Stage::new();
    let script =
        "exec 3>f; for i in 1 2 3 4 5 6; do seq $((i * 100000)) $((i * 100000 + 9999)) >f; done";
    let mut writers = stage.sandbox.command(Mode::Sojourn, "sh");
    writers.args(["-c", script]);
    let mut reader = stage.sandbox.command(Mode::Sojourn, "sort");
    reader.args(["-n", "f"]);
    let both = [writers, reader].map(|command| Running::start(command).unwrap());
    let [_, sorted] = both.map(|one| one.finish(LIMIT).unwrap().success("a shell").unwrap());
    let wanted = (1..=6).flat_map(|i| i * 100_000..i * 100_000 + 10_000);
    let wanted: String = wanted.map(|number: u32| format!("{number}\n")).collect();
    assert!(sorted == wanted, "lines were lost, or came twice");
}

/// A plain reader opens the pipe through `/proc` while it is away, at another moment each time. It
/// shares what is in the pipe with the reader under Sojourn.
#[test]
fn a_plain_reader_of_a_fifo_that_is_away_gets_what_the_first_does_not() {
    for round in 0..8 {
        let mut stage = Stage::new();
        let both = stage.away(&[], &[]);
        std::thread::sleep(Duration::from_millis(3 * round));
        let cat = cat(&fd_of(&both[0]), &stage.file("cat"));
        stage.await_reason(&both[0], ReasonT::SeveralHolders);
        until("the plain one reads", || stage.got_len("cat") > 0);
        let written = stage.end(both.into());
        cat.finish(LIMIT).unwrap().success("cat").unwrap();
        stage.check(&["read.got", "cat"], &written);
    }
}

/// A plain writer opens the pipe through `/proc` while it is away.
#[test]
fn a_plain_writer_of_a_fifo_that_is_away_is_heard() {
    for round in 0..8 {
        let mut stage = Stage::new();
        let both = stage.away(&[], &[]);
        std::thread::sleep(Duration::from_millis(3 * round));
        let path = fd_of(&both[1]).to_string_lossy().into_owned();
        let first = SECOND.to_string();
        let second = stage.start(Mode::Plain, &["name=second", "write", &path, &first]);
        stage.await_files(&["second.half"]);
        let mut all: Vec<_> = both.into();
        all.push(second);
        let written = stage.end(all);
        stage.check(&["read.got"], &written);
    }
}

/// Two descriptions of one end move as one; then calls on one of them do not wait any more.
#[test]
fn calls_wait_as_their_own_description_says() {
    let mut stage = Stage::new();
    let both = stage.away(&["twice"], &["twice"]);
    stage.await_files(&["read.half", "write.half"]);
    until("it is home", || stage.admin.away().unwrap().is_empty());
    let written = stage.end(both.into());
    stage.check(&["read.got"], &written);
}

#[test]
fn a_child_of_fork_shares_its_parents_end() {
    let mut stage = Stage::new();
    let both = stage.away(&[], &["child"]);
    stage.await_files(&["read.half", "write.half"]);
    let written = stage.end(both.into());
    assert!(written.iter().any(|(first, _)| *first == OF_CHILD), "{written:?}");
    stage.check(&["read.got"], &written);
    let mut stage = Stage::new();
    let both = stage.away(&["child"], &[]);
    stage.await_files(&["read-child.got"]);
    let written = stage.end(both.into());
    stage.check(&["read.got", "read-child.got"], &written);
}

#[test]
fn whoever_is_left_by_a_killed_end_is_told_as_by_the_kernel() {
    let mut stage = Stage::new();
    let [reader, writer] = stage.away(&[], &[]);
    writer.signal(Signal::KILL);
    reader.finish(LIMIT).unwrap().success("the reader").unwrap();
    let got = stage.got("read.got");
    assert!(got.iter().copied().eq(0..got.len() as u64), "a hole, or out of order");
    let ended = |words: &[&str]| -> Finished {
        let mut stage = Stage::new();
        let [reader, writer] = stage.away(&[], words);
        reader.signal(Signal::KILL);
        writer.finish(LIMIT).unwrap()
    };
    assert_eq!(ended(&[]).status, -Signal::PIPE.as_raw());
    let told = ended(&["ignore"]);
    assert!(told.status == 0 && told.out.starts_with("broken\n"), "{told:?}");
}

impl Stage {
    fn got_len(&self, name: &str) -> u64 {
        std::fs::metadata(self.file(name)).map_or(0, |found| found.len())
    }
}
