//! Steps that make, change and end descriptors, and set options. Not here: what they are made with
//! (`writer`).

use super::model::{Held, Slot};
use super::writer::Writer;

impl Writer {
    pub(super) fn descriptor(&mut self, actor: usize) {
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

    pub(super) fn other_call(&mut self, actor: usize, slot: usize, which: usize) -> String {
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
    pub(super) fn close_duplicate(&mut self, actor: usize, slot: usize) -> String {
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

    /// Returns true if a direction of the slot's session is full.
    fn is_full(&mut self, actor: usize, slot: usize) -> bool {
        let slots = &self.model.actors[actor].slots;
        let Some(held) = slots.iter().find(|held| held.number == slot).map(|held| held.held) else {
            return false;
        };
        self.model.out(held).is_some_and(|direction| direction.is_full)
            || self.model.inward(held).is_some_and(|direction| direction.is_full)
    }

    pub(super) fn option(&mut self, actor: usize) {
        if self.random.percent(25) {
            let slot = self.any(actor);
            let what =
                self.one_of(&["FIONREAD", "FIONREAD", "SIOCOUTQ", "SIOCATMARK", "TIOCGWINSZ"]);
            // A pipe tells at both ends what it holds, and a full session holds more away than in
            // the kernel.
            if self.is_full(actor, slot) && matches!(what, "FIONREAD" | "SIOCOUTQ") {
                return;
            }
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
}
