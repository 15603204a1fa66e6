//! Looks at real holders, and verdicts of made-up ones.
#![allow(unsafe_code, reason = "a process of which no safe call makes the like")]

use super::*;
use rustix::fd::AsFd;
use rustix::fs::{Mode, OFlags, openat};
use sojourn_session::Inode;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// A program that holds the descriptor as its standard input, until it is killed.
struct Holder(Child);

impl Holder {
    /// In a session (setsid(2)) of this test's own: tests may run among kin that nobody here
    /// may inspect.
    fn of(end: impl AsFd) -> Self {
        let _ = rustix::process::setsid();
        let end = end.as_fd().try_clone_to_owned().unwrap();
        let mut child = Command::new("/bin/sh")
            .args(["-c", "echo there; exec sleep 600"])
            .stdin(Stdio::from(end))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask(pid: u32, object: Object) -> Result<(), ReasonT> {
    look_for(&[Question { pid: ProcessId(pid), object }], &[Ok(())])[0]
}

/// Asks until the answer is `wanted`, for a while: a child that another test is starting has,
/// between fork and exec, all that this process has.
fn look_for(questions: &[Question], wanted: &[Result<(), ReasonT>]) -> Vec<Result<(), ReasonT>> {
    let mut verdicts = find_holders(questions, &[], FifoHolders::Kin);
    for _ in 0..100 {
        if verdicts == wanted {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
        verdicts = find_holders(questions, &[], FifoHolders::Kin);
    }
    verdicts
}

fn inode(fd: &impl AsFd) -> Inode {
    Inode(rustix::fs::fstat(fd).unwrap().st_ino)
}

#[test]
fn one_holder_is_sole_and_two_are_not() {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let object = Object::Socket { inode: inode(&a) };
    // This process counts as the server: its own descriptors do not matter.
    let first = Holder::of(&a);
    assert_eq!(ask(first.0.id(), object), Ok(()));
    assert_eq!(ask(first.0.id(), Object::Socket { inode: inode(&b) }), Err(ReasonT::Closed));
    let second = Holder::of(&a);
    assert_eq!(ask(first.0.id(), object), Err(ReasonT::SeveralHolders));
    drop(second);
    assert_eq!(ask(first.0.id(), object), Ok(()));
    assert_eq!(ask(1, object), Err(ReasonT::SeveralHolders), "held by another than the asker");
}

/// Makes a process that holds `kept` and whose first thread has ended; another one goes on.
fn without_first_thread(kept: &impl std::os::fd::AsRawFd) -> rustix::process::Pid {
    extern "C" fn stay(_: *mut core::ffi::c_void) -> *mut core::ffi::c_void {
        loop {
            // SAFETY: it only waits for a signal.
            unsafe { libc::pause() };
        }
    }
    let kept = kept.as_raw_fd().cast_unsigned();
    // SAFETY: the child makes a thread and ends its own. It uses nothing of this process's.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            // What other tests have would seem to be held by it.
            libc::close_range(0, kept - 1, 0);
            libc::close_range(kept + 1, u32::MAX, 0);
            let mut thread = core::mem::zeroed();
            let none = core::ptr::null_mut();
            libc::pthread_create(&raw mut thread, core::ptr::null(), stay, none);
            libc::syscall(libc::SYS_exit, 0);
        }
        child
    };
    rustix::process::Pid::from_raw(child).unwrap()
}

#[test]
fn a_process_whose_first_thread_has_ended_holds_what_the_others_have() {
    let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
    let object = Object::Socket { inode: inode(&a) };
    let first = Holder::of(&a);
    assert_eq!(ask(first.0.id(), object), Ok(()));
    let other = without_first_thread(&a);
    let number = other.as_raw_nonzero().get().unsigned_abs();
    // Until its first thread has ended it is seen in any case.
    let state = || std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while !state().contains(") Z ") {
        assert!(std::time::Instant::now() < until, "{}", state());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let verdict = ask(first.0.id(), object);
    rustix::process::kill_process(other, rustix::process::Signal::KILL).unwrap();
    rustix::process::waitpid(Some(other), rustix::process::WaitOptions::empty()).unwrap();
    assert!(
        matches!(verdict, Err(ReasonT::SeveralHolders | ReasonT::HoldersUnknown)),
        "{verdict:?}"
    );
    assert_eq!(ask(first.0.id(), object), Ok(()));
}

#[test]
fn the_ends_of_a_pipe_are_told_apart() {
    let (reader, writer): (OwnedFd, OwnedFd) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let of = |writes| Object::Pipe { inode: inode(&reader), writes };
    let reading = Holder::of(&reader);
    let writing = Holder::of(&writer);
    assert_eq!(ask(reading.0.id(), of(false)), Ok(()));
    assert_eq!(ask(writing.0.id(), of(true)), Ok(()));
    assert_eq!(ask(writing.0.id(), of(false)), Err(ReasonT::SeveralHolders));
}

/// A FIFO without a name, of which nobody else has an end.
fn fifo() -> (OwnedFd, OwnedFd) {
    let name = std::env::temp_dir().join(format!("sojourn-holders-{}", std::process::id()));
    rustix::fs::mknodat(CWD, &name, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let open = |flags| openat(CWD, &name, flags | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let reader = open(OFlags::RDONLY | OFlags::NONBLOCK);
    let writer = open(OFlags::WRONLY);
    std::fs::remove_file(&name).unwrap();
    (reader, writer)
}

#[test]
fn whoever_has_or_names_an_end_of_a_fifo_is_counted() {
    let (reader, writer) = fifo();
    let of = |writes| Object::Fifo { inode: inode(&reader), writes };
    let reading = Holder::of(&reader);
    let writing = Holder::of(&writer);
    let questions = [
        Question { pid: ProcessId(reading.0.id()), object: of(false) },
        Question { pid: ProcessId(writing.0.id()), object: of(true) },
    ];
    assert_eq!(look_for(&questions, &[Ok(()); 2]), [Ok(()); 2]);
    let path = format!("/proc/self/fd/{}", rustix::fd::AsRawFd::as_raw_fd(&reader));
    let name = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let naming = Holder::of(&name);
    assert_eq!(
        look_for(&questions, &[Err(ReasonT::SeveralHolders); 2])[0],
        Err(ReasonT::SeveralHolders)
    );
    drop(naming);
    assert_eq!(look_for(&questions, &[Ok(()); 2]), [Ok(()); 2]);
}

#[test]
fn whatever_may_not_be_inspected_may_hold_a_fifo() {
    let object = Object::Fifo { inode: Inode(7), writes: true };
    let holders = HashMap::from([(object, vec![ProcessId(11)])]);
    let question = Question { pid: ProcessId(11), object };
    let scan = |closed: &[u32], is_partial: bool| Scan {
        holders: holders.clone(),
        closed: closed.iter().copied().map(ProcessId).collect(),
        is_partial,
        ..Scan::within(LIMIT, &[], FifoHolders::All)
    };
    assert_eq!(scan(&[], false).verdict(question), Ok(()));
    assert_eq!(scan(&[20], false).verdict(question), Err(ReasonT::HoldersUnknown));
    assert_eq!(scan(&[], true).verdict(question), Err(ReasonT::HoldersUnknown));
    let own = ProcessId(11);
    let kin = HashMap::from([(own, Lineage { parent: ProcessId(1), session: own })]);
    let scan = Scan { kin, fifos: FifoHolders::Kin, ..scan(&[20], true) };
    assert_eq!(scan.verdict(question), Ok(()), "no kin of 11");
}

#[test]
fn one_look_answers_many_questions() {
    let ends: Vec<_> = (0..3).map(|_| std::os::unix::net::UnixStream::pair().unwrap().0).collect();
    let holders: Vec<_> = ends.iter().map(Holder::of).collect();
    let question = |(end, holder): (&std::os::unix::net::UnixStream, &Holder)| Question {
        pid: ProcessId(holder.0.id()),
        object: Object::Socket { inode: inode(end) },
    };
    let questions: Vec<_> = ends.iter().zip(&holders).map(question).collect();
    assert_eq!(look_for(&questions, &[Ok(()); 3]), [Ok(()); 3]);
}

#[test]
fn what_may_not_be_inspected_matters_if_it_is_kin() {
    // 10 is a session's leader, 11 and 12 its children; 20 another session; 13 (closed) is in
    // the session, 14 (closed) a child of 12 with a session of its own, 21 (closed) a child
    // of 20.
    let tree = [
        (10, 1, 10),
        (11, 10, 10),
        (12, 10, 10),
        (13, 10, 10),
        (14, 12, 14),
        (20, 1, 20),
        (21, 20, 21),
    ];
    let kin = tree.map(|(pid, parent, session)| {
        let lineage = Lineage { parent: ProcessId(parent), session: ProcessId(session) };
        (ProcessId(pid), lineage)
    });
    let object = Object::Socket { inode: Inode(7) };
    let scan = |closed: &[u32]| Scan {
        holders: HashMap::from([(object, vec![ProcessId(11)])]),
        kin: HashMap::from(kin),
        closed: closed.iter().copied().map(ProcessId).collect(),
        ..Scan::within(LIMIT, &[], FifoHolders::All)
    };
    let question = Question { pid: ProcessId(11), object };
    assert_eq!(scan(&[]).verdict(question), Ok(()));
    assert_eq!(scan(&[13]).verdict(question), Err(ReasonT::HoldersUnknown));
    assert_eq!(scan(&[14]).verdict(question), Err(ReasonT::HoldersUnknown));
    assert_eq!(scan(&[20, 21]).verdict(question), Ok(()));
}

/// Anybody may have very many descriptors, in very many processes.
#[test]
fn who_has_very_many_descriptors_makes_nobody_wait() {
    let (reader, _writer) = std::io::pipe().unwrap();
    let holder = Holder::of(&reader);
    let pid = ProcessId(holder.0.id());
    let mut scan = Scan::within(LIMIT, &[], FifoHolders::All);
    assert_eq!(scan.check(pid, FDS_MAX), Ok(()));
    assert_eq!(scan.check(pid, FDS_MAX + 1), Err(Errno::MFILE), "it is not inspected");
    scan.askers.push(pid);
    assert_eq!(scan.check(pid, FDS_MAX + 1), Ok(()), "it has asked for it");
    let late = Instant::now();
    while Instant::now() == late {}
    let mut scan = Scan { until: Some(late), ..Scan::within(LIMIT, &[], FifoHolders::All) };
    assert_eq!(scan.run(), Err(Errno::TIMEDOUT));
    assert!(scan.closed.is_empty(), "nobody is to blame");
}

/// A process of that user, in a session of its own, with so many more descriptors. It ends with the
/// test's thread.
fn stranger(user: u32, more: usize, end: impl AsFd) -> std::io::Result<Holder> {
    use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal, setrlimit};
    use std::os::unix::process::CommandExt;
    let mut command = Command::new("/bin/sleep");
    command.arg("600").stdin(Stdio::from(end.as_fd().try_clone_to_owned()?));
    let fill = move || {
        let most = Some(more as u64 + 100);
        setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
        for _ in 0..more {
            // SAFETY: it makes one more descriptor of standard input, for the next program.
            unsafe { libc::dup(0) };
        }
        // SAFETY: system calls without memory.
        let is_user = unsafe {
            libc::setgroups(0, std::ptr::null()) == 0
                && libc::setresgid(user, user, user) == 0
                && libc::setresuid(user, user, user) == 0
                && libc::setsid() > 0
        };
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if is_user { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: the hook makes system calls only.
    unsafe { command.pre_exec(fill) };
    command.spawn().map(Holder)
}

/// A stranger's processes have more descriptors than can be looked at in time: the look goes on
/// without them for everybody else.
#[test]
fn a_strangers_descriptors_keep_nobody_else_from_an_answer() {
    const USERS: [u32; 2] = [61_021, 61_022];
    const CROWD: usize = 20;
    const EACH: usize = 4000;
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let one = || stranger(USERS[0], EACH, &null).ok();
    let crowd: Vec<_> = std::iter::repeat_with(one).take(CROWD).flatten().collect();
    let (Some(first), Ok(honest)) = (crowd.first(), stranger(USERS[1], 0, &a)) else {
        return eprintln!("skipped: not root");
    };
    let ask = |pid: u32, end: &std::os::unix::net::UnixStream, limit: Duration| {
        let object = Object::Socket { inode: inode(end) };
        let question = Question { pid: ProcessId(pid), object };
        find_within(limit, &[question], &[], FifoHolders::Kin)[0]
    };
    // The limit is half of what the crowd takes here, whatever the machine.
    let long = Duration::from_secs(600);
    let begun = Instant::now();
    let _ = ask(honest.0.id(), &a, long);
    let limit = begun.elapsed() / 2;
    assert_eq!(ask(honest.0.id(), &a, limit), Ok(()));
    // What of its own is elsewhere among its processes is not known.
    let second = Holder::of(&b);
    assert_eq!(ask(first.0.id(), &b, limit), Err(ReasonT::HoldersUnknown));
    drop(second);
}
