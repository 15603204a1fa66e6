//! What the loader keeps for each of the guest's threads, where the GS register leads, and what it
//! saves of the guest at each call.
//!
//! The guest has the FS register, by which its own C library or run-time finds its thread; the
//! loader's C library needs the same register while it runs. So each call changes it, there and
//! back (`enter`). Only its own thread touches a block, and handlers on that thread.

use core::arch::asm;

/// The guest's registers at a call, as `enter` saves them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// `ymm0` to `ymm15`, or `xmm`s at the beginnings, as far as they are saved.
    pub(crate) vectors: [[u64; 4]; 16],
    pub(crate) fs: usize,
    pub(crate) r15: usize,
    pub(crate) r14: usize,
    pub(crate) r13: usize,
    pub(crate) r12: usize,
    pub(crate) rbp: usize,
    pub(crate) rbx: usize,
    pub(crate) r9: usize,
    pub(crate) r8: usize,
    pub(crate) r10: usize,
    pub(crate) rdx: usize,
    pub(crate) rsi: usize,
    pub(crate) rdi: usize,
    pub(crate) rax: usize,
    /// Where the guest goes on; a `syscall` instruction precedes.
    pub(crate) back: usize,
    pub(crate) rsp: usize,
}

impl Frame {
    /// The call's arguments.
    pub(crate) fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// A frame in which nothing is set.
    pub(crate) fn empty() -> Self {
        // SAFETY: zeroes are a frame.
        unsafe { core::mem::zeroed() }
    }
}

/// Bytes of a frame.
pub(crate) const FRAME: usize = size_of::<Frame>();

/// One thread of the guest's. `enter` knows the offsets of the first six.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) this: *mut Block,
    /// Where on the host's stack the next frame goes; the stack is free below its end.
    pub(crate) next: usize,
    /// The host's FS base.
    pub(crate) host_fs: usize,
    /// The guest's, while the thread is in the host.
    pub(crate) guest_fs: usize,
    /// The latest frame.
    pub(crate) frame: *mut Frame,
    /// The host's stack pointer when the guest's thread began (`enter::leave`).
    pub(crate) left: usize,
    /// The host's stack: lowest address, and that behind the highest.
    pub(crate) stack: (usize, usize),
    /// Where the first frame of the thread goes.
    pub(crate) first: usize,
    /// What was interrupted in calls by handlers that run, or have jumped out.
    pub(crate) levels: Levels,
    /// The alternate stack that the guest has set: address and length; (0, 0): none.
    pub(crate) alternate: (usize, usize),
    /// `CLONE_CHILD_CLEARTID`, where the kernel does not do it.
    pub(crate) cleared: *mut u32,
    /// The list of robust mutexes that the guest has set (set_robust_list(2)).
    pub(crate) robust: usize,
    /// The host's, which the kernel is to have when the thread ends.
    pub(crate) host_robust: [usize; 2],
    /// The thread ends by the system call itself, as nothing of the host waits for it.
    pub(crate) is_first: bool,
    /// The process that has made a child by vfork(2) from this thread, until it goes on; 0: none.
    pub(crate) vforking: i32,
}

const _: () = {
    assert!(core::mem::offset_of!(Block, next) == 8);
    assert!(core::mem::offset_of!(Block, host_fs) == 16);
    assert!(core::mem::offset_of!(Block, guest_fs) == 24);
    assert!(core::mem::offset_of!(Block, frame) == 32);
    assert!(core::mem::offset_of!(Block, left) == 40);
    assert!(FRAME.is_multiple_of(64) && core::mem::offset_of!(Frame, rsp) == FRAME - 8);
};

/// How deep handlers interrupt calls of handlers, and that is noted.
const LEVELS: usize = 8;

/// For each handler that interrupted a call: where the next frame went before, and the guest's
/// stack pointer at that call.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Levels {
    all: [(usize, usize); LEVELS],
    pub(crate) count: usize,
}

impl Levels {
    /// Notes one; those beyond the last are given up with it.
    pub(crate) fn push(&mut self, next: usize, rsp: usize) {
        if let Some(level) = self.all.get_mut(self.count) {
            *level = (next, rsp);
            self.count += 1;
        }
    }

    /// Takes off those whose call is dead; where the next frame goes then, if there is any.
    pub(crate) fn give_up(&mut self, is_dead: impl Fn(usize) -> bool) -> Option<usize> {
        let mut next = None;
        while let Some((before, rsp)) = self.count.checked_sub(1).map(|last| self.all[last]) {
            if !is_dead(rsp) {
                break;
            }
            self.count -= 1;
            next = Some(before);
        }
        next
    }
}

impl Block {
    /// A block for a thread whose frames go below `first`, on the stack `stack`.
    pub(crate) fn new(stack: (usize, usize), first: usize) -> Self {
        let first = (first - FRAME) & !63;
        Self {
            this: core::ptr::null_mut(),
            next: first,
            host_fs: fs_base(),
            guest_fs: 0,
            frame: core::ptr::null_mut(),
            left: 0,
            stack,
            first,
            levels: Levels::default(),
            alternate: (0, 0),
            cleared: core::ptr::null_mut(),
            robust: 0,
            host_robust: [0; 2],
            is_first: false,
            vforking: 0,
        }
    }

    /// Makes this the block of the running thread. It must not move from then on.
    pub(crate) fn install(&mut self) {
        self.this = self;
        // SAFETY: nothing else in this process uses the register.
        unsafe { asm!("wrgsbase {}", in(reg) self.this, options(nostack, preserves_flags)) };
    }

    /// Whether an address is on the host's stack.
    pub(crate) fn is_on_host(&self, address: usize) -> bool {
        (self.stack.0..self.stack.1).contains(&address)
    }

    /// Whether an address is on the guest's alternate stack.
    pub(crate) fn is_on_alternate(&self, address: usize) -> bool {
        address.wrapping_sub(self.alternate.0) < self.alternate.1
    }
}

/// The running thread's block.
#[inline(always)]
pub(crate) fn here() -> &'static mut Block {
    let block: *mut Block;
    // SAFETY: every thread that comes here has a block, and it alone has it; callers keep no two
    // references at a time beyond a call.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) block, options(nostack, readonly, preserves_flags));
        &mut *block
    }
}

/// The FS base.
pub(crate) fn fs_base() -> usize {
    let base;
    // SAFETY: reads a register; the kernel allows it (checked at the start).
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}
