//! A script from a seed.
//!
//! Amounts on their way stay below what each kind of session holds, so that results can be compared
//! exactly; full sessions come about by the step `fillup` alone, which tells no amount, and until
//! the step `drain` nothing is written there.

use super::model::{ACTORS, Held, Model, Slot, Way};
use super::script::Script;
use crate::random::Random;

/// Most bytes that are on their way in one direction but for `fillup`. A pipe has 16 places of a
/// page each, and a write that does not fit into the last place takes another.
const QUEUED_MAX: u64 = 26_000;
const KINDS: [&str; 6] = ["tcp4", "tcp6", "unix", "pair", "pipe", "epip"];
const AMOUNTS: [u64; 13] = [0, 1, 2, 7, 40, 41, 100, 1000, 4095, 4096, 5000, 9000, 16_384];
const EVENTS: [&str; 8] = [
    "POLLIN",
    "POLLOUT",
    "POLLIN|POLLOUT",
    "POLLIN|POLLPRI",
    "POLLRDHUP",
    "POLLIN|POLLOUT|POLLRDHUP",
    "0",
    "POLLRDNORM|POLLWRNORM",
];

/// What a script may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The sessions are sent home at random points.
    pub has_recalls: bool,
}

/// Makes a script.
#[must_use]
pub fn generate(seed: u64, scope: Scope) -> Script {
    let mut random = Random::new(seed);
    let count = 1 + random.below(4);
    let kinds = (0..count).filter_map(|_| random.pick(&KINDS)).collect();
    let profile = Profile {
        has_recalls: scope.has_recalls,
        has_processes: random.percent(35),
        has_kernel_calls: random.percent(35),
        has_ends: random.percent(70),
        has_background: random.percent(50),
    };
    let model = Model::new(kinds);
    let mut writer = Writer { model, random, steps: Vec::new(), profile, busy: None };
    writer.warm();
    let length = 20 + writer.random.below(180);
    while writer.steps.len() < length {
        writer.step();
    }
    let sessions = writer.model.kinds.iter().map(|kind| (*kind).to_owned()).collect();
    Script { sessions, steps: writer.steps }
}

/// What a script contains. Much of it sends sessions home, where they stay the longer the more
/// often it happens, so that few scripts may contain everything.
struct Profile {
    has_recalls: bool,
    has_processes: bool,
    /// Calls that only the kernel has, and options.
    has_kernel_calls: bool,
    has_ends: bool,
    has_background: bool,
}

/// An actor with a step in the background, and how many steps others make meanwhile.
struct Busy {
    actor: usize,
    left: u32,
}

struct Writer {
    model: Model,
    random: Random,
    steps: Vec<String>,
    profile: Profile,
    busy: Option<Busy>,
}

impl Writer {
    fn emit(&mut self, actor: usize, step: &str) {
        let letter = char::from(b'A' + actor as u8);
        self.steps.push(format!("{letter} {step}"));
    }

    fn one_of(&mut self, all: &[&'static str]) -> &'static str {
        self.random.pick(all).unwrap_or("0")
    }

    fn actor(&mut self) -> usize {
        let busy = match &mut self.busy {
            Some(busy) if busy.left > 0 => {
                busy.left -= 1;
                Some(busy.actor)
            }
            _ => None,
        };
        let is_free = |actor: &usize| self.model.actors[*actor].is_alive && Some(*actor) != busy;
        let free: Vec<usize> = (0..ACTORS).filter(is_free).collect();
        self.random.pick(&free).unwrap_or(0)
    }

    /// Most scripts begin with a byte in each direction, so that the sessions are away soon.
    fn warm(&mut self) {
        for session in 0..self.model.kinds.len() {
            if self.random.percent(15) {
                continue;
            }
            let kind = self.model.kinds[session];
            for side in 0..2 {
                let is_way = match kind {
                    "pipe" => side == 0,
                    "epip" => side == 1,
                    _ => true,
                };
                let rounds = if is_way { 1 + self.random.below(3) } else { 0 };
                for _ in 0..rounds {
                    self.emit(side, &format!("write s{session} 10"));
                    self.emit(1 - side, &format!("read s{session} 10"));
                }
            }
        }
        self.settle();
    }

    /// Lets the sessions move that can.
    fn settle(&mut self) {
        self.steps.push(format!("H settle {}", self.model.kinds.len()));
    }

    fn step(&mut self) {
        let actor = self.actor();
        let busy = self.busy.as_ref().map(|busy| busy.actor).filter(|busy| *busy != actor);
        if let (Some(busy), true) = (busy, self.random.percent(8)) {
            let letter = char::from(b'A' + busy as u8);
            self.emit(actor, &format!("signal {letter}"));
        }
        let Profile { has_recalls, has_processes, has_kernel_calls, has_ends, has_background } =
            self.profile;
        match self.random.below(100) {
            0..24 => self.send(actor),
            24..46 => self.receive(actor),
            46..54 => self.wait(actor),
            54..65 => self.set(actor),
            65..75 => self.descriptor(actor),
            75..80 if has_kernel_calls => self.option(actor),
            80..83 if has_ends => self.end(actor),
            83..87 if has_kernel_calls => self.between(actor),
            87..90 if has_processes => self.process(actor),
            90 | 91 if has_recalls => self.steps.push("H recall".to_owned()),
            92 => self.settle(),
            93..95 => self.fill_or_drain(actor),
            95..100 if has_background => self.background(actor),
            _ => {}
        }
    }

    /// A call that may take until others have done something.
    fn background(&mut self, actor: usize) {
        let may = |model: &Model, held| model.reads(held) || model.writes(held);
        let Some(Slot { number, held }) = self.model.slot(&mut self.random, actor, may) else {
            return;
        };
        let set = self.model.slot(&mut self.random, actor, |_, held| held == Held::Set);
        let amount = self.amount().max(1);
        let step = match self.random.below(8) {
            _ if self.model.inward(held).is_some_and(|way| way.is_full) => return,
            0..=2 if self.model.reads(held) => format!("read s{number} {amount}"),
            3 if self.model.reads(held) && self.model.is_socket(held) => {
                format!("recv s{number} {amount} MSG_WAITALL")
            }
            4 if self.model.writes(held) && !self.model.is_tcp(held) => {
                let Some(way) = self.model.out(held).filter(|way| !way.is_full) else { return };
                way.is_full = true;
                format!("write_much s{number} 400000")
            }
            5 | 6 if set.is_some() => {
                format!("epoll_wait s{} 5000", set.map_or(0, |set| set.number))
            }
            _ => {
                format!("poll 5000 s{number} {} s{} POLLIN", self.one_of(&EVENTS), self.any(actor))
            }
        };
        let letter = char::from(b'A' + actor as u8);
        self.steps.push(format!("{letter}& {step}"));
        self.busy = Some(Busy { actor, left: 2 + self.random.below(5) as u32 });
        // Most such calls end by what the other side does.
        let others =
            (0..2).find(|other| self.model.actors[*other].side != self.model.actors[actor].side);
        if let (Some(other), true) = (others, self.random.percent(60)) {
            self.answer(other, held);
        }
    }

    /// Has the other side do what ends a call on `held`.
    fn answer(&mut self, other: usize, held: Held) {
        let Held::End { session, side } = held else { return };
        let wanted = Held::End { session, side: 1 - side };
        let slot = self.model.slot(&mut self.random, other, |_, held| held == wanted);
        let Some(Slot { number, .. }) = slot else { return };
        let way = self.model.ways[session][1 - side];
        if self.model.writes(wanted) && !way.is_full && way.queued < QUEUED_MAX / 2 {
            let amount = self.amount();
            self.model.ways[session][1 - side].queued += amount;
            self.emit(other, &format!("write s{number} {amount}"));
        } else if self.model.reads(wanted) && self.random.percent(50) {
            self.model.ways[session][side] = Way::default();
            self.emit(other, &format!("drain s{number} 10000"));
        }
    }

    /// Any slot, at times one that holds nothing.
    fn any(&mut self, actor: usize) -> usize {
        if self.random.percent(3) {
            return self.random.below(30);
        }
        let slot = self.model.slot(&mut self.random, actor, |_, _| true);
        slot.map_or(0, |slot| slot.number)
    }

    fn session(&mut self, actor: usize) -> Option<Slot> {
        self.model.slot(&mut self.random, actor, |_, held| matches!(held, Held::End { .. }))
    }

    fn socket(&mut self, actor: usize) -> Option<Slot> {
        self.model.slot(&mut self.random, actor, Model::is_socket)
    }

    fn amount(&mut self) -> u64 {
        self.random.pick(&AMOUNTS).unwrap_or(1)
    }

    // ---- data ----

    fn send(&mut self, actor: usize) {
        let slot = self.model.slot(&mut self.random, actor, Model::writes);
        let Some(Slot { number, held }) = slot else { return };
        let mut amount = self.amount();
        if let Some(way) = self.model.out(held) {
            if way.is_full || way.queued + amount > QUEUED_MAX {
                amount = 0;
            }
            if way.is_full {
                return;
            }
            way.queued += amount;
        } else {
            amount = amount.min(300);
        }
        let is_socket = self.model.is_socket(held);
        let parts = 1 + self.random.below(4);
        let flags = ["0", "0", "MSG_DONTWAIT", "MSG_NOSIGNAL", "MSG_MORE", "MSG_EOR"];
        let flags = match self.random.below(20) {
            0 if is_socket => "MSG_OOB",
            _ => self.one_of(&flags),
        };
        let flags =
            if self.model.is_tcp(held) { flags.replace("MSG_MORE", "0") } else { flags.into() };
        let step = match self.random.below(if is_socket { 9 } else { 4 }) {
            0 | 1 => format!("write s{number} {amount}"),
            2 => format!("writev s{number} {parts} {amount}"),
            3 => format!("pwritev2 s{number} {parts} {amount} 0"),
            4 | 5 => format!("send s{number} {amount} {flags}"),
            6 => format!("sendmsg s{number} {amount} {flags} {parts}{}", self.beside(actor, held)),
            7 => format!("sendmmsg s{number} {amount} {flags} {parts}"),
            _ => format!("sendmsg s{number} {amount} {flags} {parts}"),
        };
        self.emit(actor, &step);
    }

    /// What goes along with the bytes on a Unix socket.
    fn beside(&mut self, actor: usize, held: Held) -> String {
        if self.model.is_tcp(held) {
            return String::new();
        }
        match self.random.below(4) {
            0 => format!(" s{}", self.any(actor)),
            1 => " -2".to_owned(),
            _ => String::new(),
        }
    }

    fn receive(&mut self, actor: usize) {
        let slot = self.model.slot(&mut self.random, actor, Model::reads);
        let Some(Slot { number, held }) = slot else { return };
        if self.model.inward(held).is_some_and(|way| way.is_full) {
            return self.drain(actor, Slot { number, held });
        }
        let amount = if self.random.percent(25) { 20_000 } else { self.amount() };
        let is_socket = self.model.is_socket(held);
        let may_wait = self.random.percent(15);
        let mut is_peek = false;
        let is_empty = match self.model.inward(held) {
            Some(way) => way.queued == 0 && !way.is_full,
            None => true,
        };
        if is_empty && !may_wait && !is_socket {
            return;
        }
        let dont_wait = if is_empty && !may_wait { "MSG_DONTWAIT" } else { "0" };
        let more = ["0", "0", "0", "MSG_PEEK", "MSG_TRUNC", "MSG_WAITALL", "MSG_DONTWAIT"];
        let more = match self.random.below(25) {
            0 => "MSG_OOB",
            1 => "MSG_PEEK|MSG_TRUNC",
            2 => "MSG_PEEK|MSG_WAITALL|MSG_DONTWAIT",
            3 => "MSG_CMSG_CLOEXEC",
            _ => self.one_of(&more),
        };
        let flags = format!("{more}|{dont_wait}");
        let parts = 1 + self.random.below(4);
        let room = [0, 64, 256, 16, 20][self.random.below(5)];
        let call = if is_socket && is_empty && !may_wait {
            3 + self.random.below(6)
        } else if is_socket {
            self.random.below(9)
        } else {
            self.random.below(3)
        };
        let into = self.model.new_slot();
        let step = match call {
            0 => format!("read s{number} {amount}"),
            1 => format!("readv s{number} {parts} {amount}"),
            2 => format!("preadv2 s{number} {parts} {amount} 0"),
            3 | 4 => format!("recv s{number} {amount} {flags}"),
            5 => format!("recvfrom s{number} {amount} {flags}"),
            6 => format!("recvmmsg s{number} {amount} {flags} {parts}"),
            _ => format!("recvmsg s{number} {amount} {flags} {parts} {room} s{into}"),
        };
        is_peek |= call >= 3 && more.contains("PEEK");
        if let Some(way) = self.model.inward(held)
            && !is_peek
        {
            way.queued = way.queued.saturating_sub(amount);
        }
        self.emit(actor, &step);
    }

    fn fill_or_drain(&mut self, actor: usize) {
        let Some(Slot { number, held }) = self.session(actor) else { return };
        let part = [1, 500, 4096, 10_000, 100_000][self.random.below(5)];
        let is_full = self.model.inward(held).is_some_and(|way| way.is_full);
        if self.model.reads(held) && (is_full || self.random.percent(30)) {
            self.drain(actor, Slot { number, held });
        } else if self.model.writes(held) {
            if let Some(way) = self.model.out(held) {
                way.is_full = true;
            }
            // Single bytes fill a TCP connection only after very many calls.
            let part = if self.model.is_tcp(held) { part.max(4096) } else { part };
            self.emit(actor, &format!("fillup s{number} {part}"));
        }
    }

    fn drain(&mut self, actor: usize, slot: Slot) {
        if let Some(way) = self.model.inward(slot.held) {
            *way = Way::default();
        }
        let part = [500, 4096, 100_000][self.random.below(3)];
        self.emit(actor, &format!("drain s{} {part}", slot.number));
    }

    fn between(&mut self, actor: usize) {
        let from = self.model.slot(&mut self.random, actor, Model::reads);
        let to = self.model.slot(&mut self.random, actor, Model::writes);
        let (Some(from), Some(to)) = (from, to) else { return };
        let amount = self.amount().min(5000);
        let kept = self.model.out(to.held).map(|way| (way.queued + amount, way.is_full));
        if kept.is_some_and(|(queued, is_full)| is_full || queued > QUEUED_MAX) {
            return;
        }
        if self.model.inward(from.held).is_some_and(|way| way.is_full) {
            return;
        }
        let file = self.model.slot(&mut self.random, actor, |_, held| held == Held::File);
        let file = file.map_or(from.number, |file| file.number);
        let flags = self.one_of(&["0", "SPLICE_F_NONBLOCK", "SPLICE_F_MORE"]);
        let (source, target) = (from.number, to.number);
        let step = match self.random.below(6) {
            0 => format!("splice s{source} s{target} {amount} {flags}"),
            1 => format!("tee s{source} s{target} {amount} {flags}"),
            2 => format!("vmsplice s{target} {amount} {flags}"),
            3 => format!("sendfile s{target} s{file} {amount} {}", self.one_of(&["-1", "0", "10"])),
            4 => format!("copy_file_range s{source} s{target} {amount}"),
            _ => format!("splice s{source} s{target} {amount} SPLICE_F_NONBLOCK"),
        };
        if let Some(way) = self.model.out(to.held) {
            way.queued += amount;
        }
        self.emit(actor, &step);
    }

    // ---- readiness ----

    fn wait(&mut self, actor: usize) {
        let count = 1 + self.random.below(4);
        let is_select = self.random.percent(30);
        let call = match is_select {
            true => self.one_of(&["select", "pselect"]),
            false => self.one_of(&["poll", "poll", "ppoll"]),
        };
        let mut step = format!("{call} {}", if self.random.percent(15) { 10 } else { 0 });
        for _ in 0..count {
            let slot = self.any(actor);
            let events =
                if is_select { self.one_of(&["1", "2", "3", "7"]) } else { self.one_of(&EVENTS) };
            step += &format!(" s{slot} {events}");
        }
        self.emit(actor, &step);
    }

    fn set(&mut self, actor: usize) {
        let set = self.model.slot(&mut self.random, actor, |_, held| held == Held::Set);
        let Some(set) = set.filter(|_| !self.random.percent(8)) else {
            let number = self.model.new_slot();
            self.model.put(actor, number, Held::Set);
            return self.emit(actor, &format!("epoll_create s{number} 0"));
        };
        let set = set.number;
        if self.random.percent(50) {
            let wait = if self.random.percent(15) { 10 } else { 0 };
            return self.emit(actor, &format!("epoll_wait s{set} {wait}"));
        }
        let slot = self.any(actor);
        let what =
            self.one_of(&["EPOLL_CTL_ADD", "EPOLL_CTL_ADD", "EPOLL_CTL_MOD", "EPOLL_CTL_DEL"]);
        let events =
            self.one_of(&["EPOLLIN", "EPOLLOUT", "EPOLLIN|EPOLLOUT", "EPOLLIN|EPOLLRDHUP", "0"]);
        let how = self.one_of(&[
            "0",
            "0",
            "EPOLLET",
            "EPOLLONESHOT",
            "EPOLLET|EPOLLONESHOT",
            "EPOLLEXCLUSIVE",
        ]);
        let data = self.random.below(6);
        self.emit(actor, &format!("epoll_ctl s{set} {what} s{slot} {events}|{how} {data}"));
    }

    // ---- descriptors ----

    fn descriptor(&mut self, actor: usize) {
        let slot = self.any(actor);
        let held = self.model.actors[actor].slots.iter().find(|held| held.number == slot);
        let held = held.map(|held| held.held);
        let into = self.model.new_slot();
        let number = [3, 7, 20, 31, 64, 65, 127, 200][self.random.below(8)];
        let is_duplicate;
        let step = match self.random.below(24) {
            0 | 1 => {
                is_duplicate = true;
                format!("dup s{slot} s{into}")
            }
            2 => {
                is_duplicate = true;
                format!("dup2 s{slot} s{into} {number}")
            }
            3 => {
                is_duplicate = true;
                format!("dup3 s{slot} s{into} {number} {}", self.one_of(&["0", "O_CLOEXEC"]))
            }
            4 => {
                is_duplicate = true;
                format!(
                    "dupfd s{slot} s{into} {number} {}",
                    self.one_of(&["F_DUPFD", "F_DUPFD_CLOEXEC"])
                )
            }
            other => {
                is_duplicate = false;
                self.other_call(actor, slot, other)
            }
        };
        if let (true, Some(held)) = (is_duplicate, held) {
            self.model.put(actor, into, held);
        }
        self.emit(actor, &step);
    }

    fn other_call(&mut self, actor: usize, slot: usize, which: usize) -> String {
        match which {
            5 => {
                let (own, other) = (self.model.new_slot(), self.model.new_slot());
                self.model.put(actor, own, Held::Own { reads: true, writes: false });
                self.model.put(actor, other, Held::Own { reads: false, writes: true });
                format!("pipe s{own} s{other} {}", self.one_of(&["0", "O_NONBLOCK"]))
            }
            6 => {
                let (own, other) = (self.model.new_slot(), self.model.new_slot());
                self.model.put(actor, own, Held::Own { reads: true, writes: true });
                self.model.put(actor, other, Held::Own { reads: true, writes: true });
                format!("socketpair s{own} s{other} 0")
            }
            7 => {
                let own = self.model.new_slot();
                self.model.put(actor, own, Held::File);
                format!("memfd s{own} 3000")
            }
            8 | 9 => format!("getfl s{slot}"),
            10 | 11 => format!("fcntl s{slot} F_SETFL {}", self.one_of(&["0", "O_NONBLOCK"])),
            12 => format!("fcntl s{slot} F_GETFD"),
            13 => format!("fcntl s{slot} F_SETFD {}", self.one_of(&["0", "FD_CLOEXEC"])),
            14 => format!(
                "lseek s{slot} {} {}",
                self.one_of(&["0", "5", "-1"]),
                self.one_of(&["SEEK_SET", "SEEK_CUR", "SEEK_END"])
            ),
            15 => format!("fstat s{slot}"),
            16 => format!("ftruncate s{slot} 10"),
            17 => format!("{} s{slot}", self.one_of(&["fsync", "fdatasync"])),
            18 => format!("pread s{slot} 10 {}", self.one_of(&["0", "5", "-1"])),
            19 => format!("pwrite s{slot} 10 {}", self.one_of(&["0", "5", "-1"])),
            20 => "open".to_owned(),
            21 => format!("ioctl s{slot} FIONBIO {}", self.random.below(2)),
            22 => {
                let target = self.any(actor);
                let slots = &self.model.actors[actor].slots;
                let held = slots.iter().find(|held| held.number == slot).map(|held| held.held);
                if let Some(held) = held {
                    self.model.put(actor, target, held);
                }
                format!("dupto s{slot} s{target}")
            }
            _ => self.close_duplicate(actor, slot),
        }
    }

    /// Closes a slot of which there is a duplicate.
    fn close_duplicate(&mut self, actor: usize, slot: usize) -> String {
        let slots = &self.model.actors[actor].slots;
        let held = slots.iter().find(|other| other.number == slot).map(|slot| slot.held);
        let alike = slots.iter().filter(|other| Some(other.held) == held).count();
        if alike < 2 {
            return format!("getfl s{slot}");
        }
        self.model.actors[actor].slots.retain(|other| other.number != slot);
        format!("close s{slot}")
    }

    // ---- options ----

    fn option(&mut self, actor: usize) {
        if self.random.percent(25) {
            let slot = self.any(actor);
            let what =
                self.one_of(&["FIONREAD", "FIONREAD", "SIOCOUTQ", "SIOCATMARK", "TIOCGWINSZ"]);
            return self.emit(actor, &format!("ioctl s{slot} {what}"));
        }
        let Some(Slot { number, held }) = self.socket(actor) else { return };
        let is_tcp = self.model.is_tcp(held);
        let common = [
            "SO_ERROR",
            "SO_ERROR",
            "SO_TYPE",
            "SO_DOMAIN",
            "SO_PROTOCOL",
            "SO_ACCEPTCONN",
            "SO_LINGER",
            "SO_RCVLOWAT",
            "SO_KEEPALIVE",
            "SO_PEERCRED",
            "SO_RCVTIMEO",
            "SO_SNDTIMEO",
            "SO_RCVBUF",
            "SO_SNDBUF",
            "SO_PASSCRED",
            "SO_OOBINLINE",
            "SO_PEEK_OFF",
        ];
        let of_tcp = ["TCP_NODELAY", "TCP_CORK", "TCP_DEFER_ACCEPT"];
        let step = match self.random.below(16) {
            0..=3 => format!("getsockopt s{number} SOL_SOCKET {}", self.one_of(&common)),
            4 => format!("getsockopt s{number} SOL_SOCKET {} 2", self.one_of(&common)),
            5 => format!("getsockopt s{number} IPPROTO_TCP {}", self.one_of(&of_tcp)),
            6 => format!(
                "setsockopt s{number} IPPROTO_TCP {} {}",
                self.one_of(&["TCP_NODELAY", "TCP_CORK", "TCP_QUICKACK"]),
                self.random.below(2)
            ),
            7 => format!(
                "setsockopt s{number} SOL_SOCKET SO_RCVLOWAT {}",
                self.one_of(&["0", "1", "5", "100"])
            ),
            8 => format!(
                "setsockopt s{number} SOL_SOCKET {} {}",
                self.one_of(&["SO_RCVBUF", "SO_SNDBUF"]),
                self.one_of(&["65536", "200000", "1000000"])
            ),
            9 => format!(
                "setsockopt s{number} SOL_SOCKET {} {}",
                self.one_of(&["SO_KEEPALIVE", "SO_PASSCRED", "SO_OOBINLINE", "SO_BROADCAST"]),
                self.random.below(2)
            ),
            10 => format!(
                "timeout s{number} {} {}",
                self.one_of(&["SO_RCVTIMEO", "SO_SNDTIMEO"]),
                self.one_of(&["0", "8000"])
            ),
            11 => format!("linger s{number} {}", self.one_of(&["0 0", "1 1", "0 1"])),
            12 => format!("getsockname s{number}"),
            13 => format!("getpeername s{number}"),
            14 if is_tcp => format!("tcpinfo s{number}"),
            _ => format!("{} s{number}", self.one_of(&["listen", "connect", "accept"])),
        };
        self.emit(actor, &step);
    }

    // ---- ends and processes ----

    fn end(&mut self, actor: usize) {
        let slot = self.any(actor);
        let step = match self.random.below(8) {
            0..=3 => format!(
                "shutdown s{slot} {}",
                self.one_of(&["SHUT_RD", "SHUT_WR", "SHUT_WR", "SHUT_RDWR"])
            ),
            4 => format!("linger s{slot} 1 0"),
            5 => format!(
                "close_range s{slot} s{} {}",
                self.any(actor),
                self.one_of(&["0", "0", "CLOSE_RANGE_CLOEXEC"])
            ),
            _ => format!("close s{slot}"),
        };
        self.emit(actor, &step);
    }

    fn process(&mut self, actor: usize) {
        match self.random.below(10) {
            0..=2 => self.fork(actor),
            3 if actor >= 2 => {
                self.model.actors[actor].is_alive = false;
                let status = self.random.below(2);
                self.emit(actor, &format!("exit {status}"));
            }
            4 => {
                self.model.actors[actor].slots.retain(|slot| slot.held != Held::File);
                self.emit(actor, "exec");
            }
            5..=7 => self.pass(actor),
            _ => {
                let child = 2 + self.random.below(4);
                let letter = char::from(b'A' + child as u8);
                self.emit(actor, &format!("wait {letter}"));
            }
        }
    }

    fn fork(&mut self, actor: usize) {
        let free = (2..ACTORS).find(|child| !self.model.actors[*child].is_alive);
        let Some(child) = free else { return };
        self.model.actors[child] = self.model.actors[actor].clone();
        let letter = char::from(b'A' + child as u8);
        self.emit(actor, &format!("fork {letter}"));
    }

    /// Passes a descriptor to the other side, which takes it at once.
    fn pass(&mut self, actor: usize) {
        let Some(slot) = self.session(actor) else { return };
        let side = self.model.actors[actor].side;
        let other = 1 - side;
        if !self.model.actors[other].is_alive {
            return;
        }
        self.emit(actor, &format!("pass s{}", slot.number));
        let into = self.model.new_slot();
        self.model.put(other, into, slot.held);
        self.emit(other, &format!("take s{into}"));
    }
}
