//! Steps that move bytes. Not here: what they are made with (`writer`).

use super::model::{Direction, Held, Model, Slot};
use super::writer::{QUEUED_MAX, Writer};

impl Writer {
    pub(super) fn send(&mut self, actor: usize) {
        let slot = self.model.slot(&mut self.random, actor, Model::writes);
        let Some(Slot { number, held }) = slot else { return };
        let mut amount = self.amount();
        if let Some(direction) = self.model.out(held) {
            if direction.is_full || direction.queued + amount > QUEUED_MAX {
                amount = 0;
            }
            if direction.is_full {
                return;
            }
            direction.queued += amount;
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
    pub(super) fn beside(&mut self, actor: usize, held: Held) -> String {
        if self.model.is_tcp(held) {
            return String::new();
        }
        match self.random.below(4) {
            0 => format!(" s{}", self.any(actor)),
            1 => " -2".to_owned(),
            _ => String::new(),
        }
    }

    pub(super) fn receive(&mut self, actor: usize) {
        let slot = self.model.slot(&mut self.random, actor, Model::reads);
        let Some(Slot { number, held }) = slot else { return };
        if self.model.inward(held).is_some_and(|direction| direction.is_full) {
            return self.drain(actor, Slot { number, held });
        }
        let amount = if self.random.percent(25) { 20_000 } else { self.amount() };
        let is_socket = self.model.is_socket(held);
        let may_wait = self.random.percent(15);
        let mut is_peek = false;
        let is_empty = match self.model.inward(held) {
            Some(direction) => direction.queued == 0 && !direction.is_full,
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
        if let Some(direction) = self.model.inward(held)
            && !is_peek
        {
            direction.queued = direction.queued.saturating_sub(amount);
        }
        self.emit(actor, &step);
    }

    pub(super) fn fill_or_drain(&mut self, actor: usize) {
        let Some(Slot { number, held }) = self.session(actor) else { return };
        let part = [1, 500, 4096, 10_000, 100_000][self.random.below(5)];
        let is_full = self.model.inward(held).is_some_and(|direction| direction.is_full);
        if self.model.reads(held) && (is_full || self.random.percent(30)) {
            self.drain(actor, Slot { number, held });
        } else if self.model.writes(held) {
            if let Some(direction) = self.model.out(held) {
                direction.is_full = true;
            }
            // Single bytes fill a TCP connection, and a pipe, only after very many calls.
            let part = match self.model.kind(held) {
                _ if self.model.is_tcp(held) => part.max(4096),
                "pipe" | "epip" | "own" => part.max(40),
                _ => part,
            };
            self.emit(actor, &format!("fillup s{number} {part}"));
        }
    }

    pub(super) fn drain(&mut self, actor: usize, slot: Slot) {
        if let Some(direction) = self.model.inward(slot.held) {
            *direction = Direction::default();
        }
        let part = [500, 4096, 100_000][self.random.below(3)];
        self.emit(actor, &format!("drain s{} {part}", slot.number));
    }

    pub(super) fn between(&mut self, actor: usize) {
        let from = self.model.slot(&mut self.random, actor, Model::reads);
        let to = self.model.slot(&mut self.random, actor, Model::writes);
        let (Some(from), Some(to)) = (from, to) else { return };
        let amount = self.amount().min(5000);
        let kept =
            self.model.out(to.held).map(|direction| (direction.queued + amount, direction.is_full));
        if kept.is_some_and(|(queued, is_full)| is_full || queued > QUEUED_MAX) {
            return;
        }
        if self.model.inward(from.held).is_some_and(|direction| direction.is_full) {
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
        if let Some(direction) = self.model.out(to.held) {
            direction.queued += amount;
        }
        self.emit(actor, &step);
    }
}
