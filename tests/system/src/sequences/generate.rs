//! A script from a seed.
//!
//! Amounts on their way stay below what each kind of session holds, so that results can be compared
//! exactly; full sessions come about by the step `fillup` alone, which tells no amount, and until
//! the step `drain` nothing is written there.

use super::model::{ACTORS, Direction, Held, Model, Slot};
use super::script::Script;
use super::writer::{Busy, EVENTS, KINDS, Profile, QUEUED_MAX, REMOTE_KINDS, Writer};
use crate::random::Random;

/// What a script may contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// The sessions are sent home at random points.
    pub has_recalls: bool,
    /// Most sessions are with another host.
    pub is_remote: bool,
}

/// Makes a script.
#[must_use]
pub fn generate(seed: u64, scope: Scope) -> Script {
    let mut random = Random::new(seed);
    let count = 1 + random.below(4);
    let mut kind = |_| match scope.is_remote && random.percent(75) {
        true => random.pick(&REMOTE_KINDS),
        false => random.pick(&KINDS),
    };
    let kinds = (0..count).filter_map(&mut kind).collect();
    let profile = Profile {
        has_recalls: scope.has_recalls,
        has_processes: random.percent(35),
        has_kernel_calls: random.percent(35),
        has_ends: random.percent(70),
        has_background: random.percent(50),
        has_extras: random.percent(50),
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

impl Writer {
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
        let Profile { has_recalls, has_processes, has_kernel_calls, has_ends, .. } = self.profile;
        match self.random.below(110) {
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
            95..100 if self.profile.has_background => self.background(actor),
            100..110 if self.profile.has_extras => self.extra(actor),
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
            _ if self.model.inward(held).is_some_and(|direction| direction.is_full) => return,
            0..=2 if self.model.reads(held) => format!("read s{number} {amount}"),
            3 if self.model.reads(held) && self.model.is_socket(held) => {
                format!("recv s{number} {amount} MSG_WAITALL")
            }
            4 if self.model.writes(held) && !self.model.is_tcp(held) => {
                let Some(direction) = self.model.out(held).filter(|direction| !direction.is_full)
                else {
                    return;
                };
                direction.is_full = true;
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
        let direction = self.model.directions[session][1 - side];
        if self.model.writes(wanted) && !direction.is_full && direction.queued < QUEUED_MAX / 2 {
            let amount = self.amount();
            self.model.directions[session][1 - side].queued += amount;
            self.emit(other, &format!("write s{number} {amount}"));
        } else if self.model.reads(wanted) && self.random.percent(50) {
            self.model.directions[session][side] = Direction::default();
            self.emit(other, &format!("drain s{number} 10000"));
        }
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
