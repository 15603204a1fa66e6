//! A program with the library: asks or answers until the other side has gone, and records what it
//! saw.

use crate::record::{Record, end};
use crate::shell::{read, write};
use rustix::event::PollFlags;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use sojourn_library::{EpollEvent, Origin, PollFd, library};
use sojourn_server::run::Options;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The variable that makes this test program a program with a role: `server ADDRESS`, or
/// `asks|answers KIND one|poll|epoll FOLDER`.
pub(crate) const ROLE: &str = "DEATHS_ROLE";
/// Bytes read at once.
const READ_MAX: usize = 16 << 10;
/// Sizes of questions and answers: some wait for room, whatever the ring.
const SIZES: [usize; 8] = [1, 300, 40, 5000, 7, 700_000, 1, 70_000];
/// Byte `n` of a direction is `n` modulo this.
const PERIOD: usize = 251;
/// However it goes, a program is gone after this.
const LIFE: Duration = Duration::from_secs(400);

pub(crate) fn play(role: &str) {
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        std::process::exit(3);
    });
    let words: Vec<&str> = role.split(' ').collect();
    if words[0] == "server" {
        sojourn_server::log::set(sojourn_server::log::Level::Warn);
        let options = Options::at(words[1]);
        sojourn_server::run::run(&options, |_| println!("ready")).unwrap();
        return;
    }
    let folder = PathBuf::from(words[3]);
    let is_pipe = words[1] == "pipe";
    let output = if is_pipe { 1 } else { 0 };
    for fd in [0, output] {
        library().opened(fd, Origin::Unknown);
    }
    let content = (0..SIZES[5] + PERIOD).map(|at| (at % PERIOD) as u8).collect();
    let idle = std::io::pipe().unwrap();
    let wait = match words[2] {
        "poll" => Wait::Poll(idle.0.as_raw_fd()),
        "epoll" => Wait::Set(make_set()),
        _ => Wait::ForOne,
    };
    let talk = Talk { output, content, wait, record: Record::create(&folder.join(words[0])) };
    talk.run(words[0] == "asks", &folder.join("stop"));
}

/// The conversation has ended.
struct Over;

/// How a program waits for bytes.
enum Wait {
    /// In the read itself.
    ForOne,
    /// In poll(2), with this descriptor, which never is ready.
    Poll(i32),
    /// In this epoll set.
    Set(OwnedFd),
}

/// An epoll set with the input in it.
fn make_set() -> OwnedFd {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    library().opened(set.as_raw_fd(), Origin::Fresh);
    library().epoll_made(set.as_raw_fd());
    let event = EpollEvent { flags: EventFlags::IN, data: EventData::new_u64(0) };
    let add = 1;
    library().epoll_ctl(set.as_raw_fd(), add, 0, Some(&event)).unwrap();
    set
}

struct Talk {
    output: i32,
    content: Vec<u8>,
    wait: Wait,
    record: Record,
}

impl Talk {
    fn run(mut self, asks: bool, stop: &std::path::Path) {
        for round in 0.. {
            // Only the asking side ends the talk: then nothing is on its way.
            if asks && stop.exists() {
                break;
            }
            let size = SIZES[round % SIZES.len()];
            let turns = if asks { [true, false] } else { [false, true] };
            let went = turns.into_iter().try_for_each(|sends| {
                if sends { self.send(size, round) } else { self.receive(size) }
            });
            if went.is_err() {
                self.see_the_end();
                break;
            }
        }
        self.close();
        self.record.now.is_tidy = u64::from(is_tidy());
        self.record.write();
    }

    /// Sends the next bytes; now and then the session goes home with them on their way.
    fn send(&mut self, size: usize, round: usize) -> Result<(), Over> {
        self.record.now.begun += size as u64;
        self.record.write();
        let mut left = size;
        while left > 0 {
            let at = self.record.now.sent as usize % PERIOD;
            match write(self.output, &self.content[at..at + left]) {
                Ok(len) => {
                    self.record.now.sent += len as u64;
                    left -= len;
                }
                Err(error) => return Err(self.note(error)),
            }
            self.record.write();
        }
        if round % 13 == 9 {
            library().go_home(self.output, sojourn_session::ReasonT::User, false);
        }
        Ok(())
    }

    fn receive(&mut self, size: usize) -> Result<(), Over> {
        let mut left = size;
        while left > 0 {
            left -= self.receive_some(left)?;
        }
        Ok(())
    }

    fn receive_some(&mut self, most: usize) -> Result<usize, Over> {
        let mut buf = [0; READ_MAX];
        match &self.wait {
            Wait::ForOne => {}
            Wait::Poll(other) => {
                let polled = |fd| PollFd { fd, events: PollFlags::IN.bits() as i16, revents: 0 };
                library().poll(&mut [polled(0), polled(*other)], None, None).unwrap();
            }
            Wait::Set(set) => {
                let mut found =
                    [EpollEvent { flags: EventFlags::empty(), data: EventData::new_u64(0) }];
                library().epoll_wait(set.as_raw_fd(), &mut found, None, None).unwrap();
            }
        }
        match read(0, &mut buf[..most.min(READ_MAX)]) {
            Ok(0) => {
                self.record.now.end |= end::OF_FILE;
                self.record.write();
                Err(Over)
            }
            Ok(len) => {
                let at = self.record.now.got as usize % PERIOD;
                assert!(
                    buf[..len] == self.content[at..at + len],
                    "bytes lost, twice or out of order"
                );
                self.record.now.got += len as u64;
                self.record.write();
                Ok(len)
            }
            Err(error) => Err(self.note(error)),
        }
    }

    fn note(&mut self, error: Errno) -> Over {
        self.record.now.end |= match error {
            Errno::CONNRESET => end::RESET,
            Errno::PIPE => end::BROKEN,
            other => panic!("neither end nor reset: {other}"),
        };
        self.record.write();
        Over
    }

    /// Reads the bytes that were sent before the end; then the end must be there, and stay; and
    /// nothing can be sent any more.
    fn see_the_end(&mut self) {
        while self.receive_some(READ_MAX).is_ok() {}
        let before = self.record.now;
        while self.receive_some(READ_MAX).is_ok() {}
        assert_eq!(before.got, self.record.now.got, "bytes after the end");
        // A reset is reported once; a later result does not concern the death.
        self.record.now.end = before.end;
        self.record.write();
        let begun = Instant::now();
        loop {
            match write(self.output, b"x") {
                Err(Errno::PIPE | Errno::CONNRESET) => break,
                // TCP learns only by the answer that nobody is there; and where the way is the
                // ring, the protocol thread must have learnt it.
                Ok(_) if begun.elapsed() < Duration::from_secs(10) => {}
                other => panic!("sent to a dead peer: {other:?}"),
            }
        }
    }

    fn close(&mut self) {
        if let Wait::Set(set) = std::mem::replace(&mut self.wait, Wait::ForOne) {
            // A set keeps its last inbox as long as it lives.
            library().closing(set.as_raw_fd());
        }
        for fd in [self.output, 0] {
            library().closing(fd);
            // SAFETY: the number is this program's own and is not used any more.
            unsafe { rustix::io::close(fd) };
            library().ended();
            if self.output == 0 {
                break;
            }
        }
    }
}

/// Returns true if every session is home and no memory of streams is left, in good time.
fn is_tidy() -> bool {
    let begun = Instant::now();
    loop {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        if library().away() == 0
            && !["memfd:sojourn-stream", "memfd:sojourn-inbox"]
                .iter()
                .any(|name| maps.contains(name))
        {
            return true;
        }
        if begun.elapsed() > Duration::from_secs(10) {
            let left: Vec<_> = maps.lines().filter(|line| line.contains("memfd:")).collect();
            eprintln!("left: {} away, {left:#?}", library().away());
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
