//! What the library asks of its shell.

use crate::library::{Host, Interrupt};
use crate::{process, signals, stdio, tls};
use core::sync::atomic::{Ordering, compiler_fence};

/// The shell of this process.
pub(crate) struct Shell;

pub(crate) static SHELL: Shell = Shell;

impl Host for Shell {
    fn wait_begins(&self) {
        let thread = tls::here();
        thread.ran.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        thread.waiting.store(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if thread.put_off.load(Ordering::Relaxed) != 0 {
            signals::release(thread);
        }
    }

    fn wait_ends(&self) {
        compiler_fence(Ordering::SeqCst);
        tls::here().waiting.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    fn interrupt(&self) -> Interrupt {
        if process::is_cancelling() {
            return Interrupt::Break;
        }
        match tls::here().ran.load(Ordering::Relaxed) {
            0 => Interrupt::None,
            1 => Interrupt::Restart,
            _ => Interrupt::Break,
        }
    }

    fn stdio_uses(&self, fd: i32) -> bool {
        stdio::uses(fd)
    }
}
