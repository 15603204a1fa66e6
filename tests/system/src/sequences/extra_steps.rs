//! Steps that fewer programs make: children that share memory, programs started with actions on
//! files, threads, limits, streams of the C library, pipes' sizes. Not here: what they are made
//! with (`writer`).

use super::model::{Held, Model, Slot};
use super::writer::{QUEUED_MAX, Writer};

/// What a child writes at most.
const TOLD: u64 = 4;

impl Writer {
    pub(super) fn extra(&mut self, actor: usize) {
        let step = match self.random.below(20) {
            0..=8 => self.about_any(actor),
            9..=11 => self.reading(actor),
            _ => self.writing(actor),
        };
        if let Some(step) = step {
            self.emit(actor, &step);
        }
    }

    /// Steps that write a little to a session.
    fn writing(&mut self, actor: usize) -> Option<String> {
        let amount = self.amount().clamp(TOLD, 1000);
        let Slot { number, held } = self.model.slot(&mut self.random, actor, Model::writes)?;
        if let Some(direction) = self.model.out(held) {
            if direction.is_full || direction.queued + amount > QUEUED_MAX {
                return None;
            }
            direction.queued += amount;
        }
        let other = self.any(actor);
        Some(match self.random.below(9) {
            0 | 1 => format!("spawn s{number} {} s{other}", self.random.below(8)),
            2 => format!("vfork s{number} s{other}"),
            3 => format!("system s{number}"),
            4 => format!("thread s{number} {}", 1 + self.random.below(4)),
            5 if self.random.percent(30) => format!("thread s{number} 2 s{other}"),
            6 => format!("fprintf s{number} {amount}"),
            7 => format!("dprintf s{number} {amount}"),
            _ => format!("syscall s{number} {amount}"),
        })
    }

    fn reading(&mut self, actor: usize) -> Option<String> {
        let Slot { number, held } = self.model.slot(&mut self.random, actor, Model::reads)?;
        let direction = self.model.inward(held)?;
        if direction.is_full {
            return None;
        }
        direction.queued = direction.queued.saturating_sub(8);
        Some(format!("fread s{number}"))
    }

    fn about_any(&mut self, actor: usize) -> Option<String> {
        let number = self.any(actor);
        let is_pipe = |model: &Model, held| matches!(model.kind(held), "pipe" | "epip" | "own");
        let pipe = self.model.slot(&mut self.random, actor, is_pipe);
        Some(match self.random.below(9) {
            0 => format!("reopen s{number} {}", self.one_of(&["0", "1", "2", "O_NONBLOCK"])),
            1 => format!("limit {}", self.one_of(&["5", "20", "310", "1024", "1024", "1024"])),
            2 => "popen s0".to_owned(),
            3 => {
                let set =
                    self.model.slot(&mut self.random, actor, |_, held| held == Held::Set)?.number;
                format!("epoll_pwait2 s{set}")
            }
            4 => format!("ioctl s{number} FIOASYNC {}", self.random.below(2)),
            5 => format!("fcntl s{} F_GETPIPE_SZ", pipe?.number),
            6 => {
                let size = self.one_of(&["65536", "131072", "1048576"]);
                format!("fcntl s{} F_SETPIPE_SZ {size}", pipe?.number)
            }
            7 => format!("fcntl s{} F_SETFL {}", pipe?.number, self.one_of(&["0", "O_DIRECT"])),
            _ => format!("ioctl s{number} {}", self.one_of(&["FIOCLEX", "FIONCLEX"])),
        })
    }
}
