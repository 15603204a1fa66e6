//! The block: the state that the loader keeps for each of the guest's threads, to which the GS
//! register points, and the guest's registers that it saves at each call.
//!
//! The guest uses the FS register, through which its own C library or run-time finds its thread.
//! The loader's C library needs the same register while it runs. So each call changes the register
//! on the way in and on the way out (`enter`). Only its own thread accesses a block, and signal
//! handlers on that thread.

use crate::handed::Taken;
use crate::kinds::{self, Kinds};
use core::arch::asm;
use core::ffi::{c_int, c_void};
use core::ops::Range;
use sojourn_abi::door::Entries;

/// The guest's registers at a call, as `enter` saves them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    /// The registers `ymm0` to `ymm15`, or `xmm0` to `xmm15` in the first half of each place. Not
    /// every way in saves all of them.
    pub(crate) vectors: [[u64; 4]; 16],
    /// 1 if the upper half of one of them is not 0, as `vectors!` stores it.
    pub(crate) is_wide: usize,
    /// Fills the frame up to whole lines.
    unused: [usize; 6],
    /// The arithmetic flags, as `lahf` and `seto al` store them; the others are not given back.
    pub(crate) flags: usize,
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
    /// The address at which the guest continues; a `syscall` instruction precedes it.
    pub(crate) back: usize,
    pub(crate) rsp: usize,
}

impl Frame {
    /// Returns the arguments of the guest's call.
    pub(crate) fn arguments(&self) -> [usize; 6] {
        [self.rdi, self.rsi, self.rdx, self.r10, self.r8, self.r9]
    }

    /// Returns the flags register.
    pub(crate) fn all_flags(&self) -> usize {
        /// Bits that are always set in a program: the second one, and that of interrupts.
        const ALWAYS: usize = 0x202;
        const OVERFLOW: u32 = 11;
        const ARITHMETIC: usize = 0xd5;
        self.flags >> 8 & ARITHMETIC | (self.flags & 1) << OVERFLOW | ALWAYS
    }

    /// Returns a frame of zeroes.
    pub(crate) fn empty() -> Self {
        // SAFETY: zeroes are a frame.
        unsafe { core::mem::zeroed() }
    }
}

/// The size of a frame in bytes.
pub(crate) const FRAME: usize = size_of::<Frame>();

/// The block of one of the guest's threads. `enter` uses the offsets of the first six fields.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) this: *mut Block,
    /// The place of the next frame on the host's stack; the stack is free below that frame's end.
    pub(crate) next: usize,
    /// The host's FS base.
    pub(crate) host_fs: usize,
    /// The guest's FS base while the thread is in the host.
    pub(crate) guest_fs: usize,
    /// The latest frame.
    pub(crate) frame: *mut Frame,
    /// The host's stack pointer when the guest's thread began, for `enter::leave`.
    pub(crate) left: usize,
    /// The addresses of the host's stack.
    pub(crate) stack: Range<usize>,
    /// Not 0 if signals were put off during the call.
    pub(crate) pending: usize,
    /// The signals that are unblocked now that the call has ended, as a set of the kernel's.
    pub(crate) due: u64,
    /// Those of them that the guest has blocked, except during the call.
    pub(crate) blocked: u64,
    /// Those that a call's own mask blocks during the handler that has ended it.
    pub(crate) blocked_once: u64,
    /// The signals that were put off in a child that is alone.
    pub(crate) put_off: u64,
    /// The number of the call during which a signal was put off.
    pub(crate) number: usize,
    /// The signal mask of the handler that is about to run.
    pub(crate) mask: u64,
    /// The alternate stack that the guest has set.
    pub(crate) alternate: AlternateStack,
    /// Not 0 if all signals were blocked on the way in, on the alternate stack.
    pub(crate) is_blocked: usize,
    /// The signals that were blocked before that.
    pub(crate) mask_before: u64,
    /// The registers that the blocking needs: `rax`, `rdi`, `rsi`, `rdx`, `r10`, and the address to
    /// go on at.
    pub(crate) kept: [usize; 6],
    /// The set of all signals.
    pub(crate) all_signals: u64,
    /// True while the alternate stack is disabled.
    pub(crate) is_disabled: bool,
    /// The address of `CLONE_CHILD_CLEARTID` (clone(2)), if the loader clears it instead of the
    /// kernel.
    pub(crate) cleared: *mut u32,
    /// The list of robust mutexes that the guest has set (set_robust_list(2)).
    pub(crate) robust: usize,
    /// The host's list of robust mutexes, which the kernel gets back when the thread ends.
    pub(crate) host_robust: [usize; 2],
    /// What the thread has begun with; `None` for a process's first thread.
    pub(crate) start: Option<Taken>,
    /// True if the thread ends by the system call itself, because no part of the host waits for it.
    pub(crate) is_first: bool,
    /// True in a child that shares its parent's memory while both run (`sharing`).
    pub(crate) is_alone: bool,
    /// The process's number while a child made by vfork(2) from this thread may be running; 0 if
    /// there is none.
    pub(crate) vforking: i32,
    /// Where the way in looks for descriptors that the kernel serves; null before the first call on
    /// one.
    pub(crate) entries: Entries,
    /// This thread's copy of the table of calls (`kinds`), which `enter` reads.
    pub(crate) kinds: Kinds,
}

const _: () = {
    assert!(core::mem::offset_of!(Block, next) == 8);
    assert!(core::mem::offset_of!(Block, host_fs) == 16);
    assert!(core::mem::offset_of!(Block, guest_fs) == 24);
    assert!(core::mem::offset_of!(Block, frame) == 32);
    assert!(core::mem::offset_of!(Block, left) == 40);
    assert!(FRAME.is_multiple_of(64) && core::mem::offset_of!(Frame, rsp) == FRAME - 8);
};

/// The guest's alternate stack (sigaltstack(2)); all zero for none.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AlternateStack {
    at: usize,
    len: usize,
    /// The negatives of its first address and of its end, for `enter`.
    pub(crate) minus_start: usize,
    pub(crate) minus_end: usize,
}

impl AlternateStack {
    /// Returns the stack of a structure of the kernel's.
    pub(crate) fn of(stack: &libc::stack_t) -> Self {
        let (at, len) = (stack.ss_sp as usize, stack.ss_size);
        let minus_end = at.wrapping_add(len).wrapping_neg();
        Self { at, len, minus_start: at.wrapping_neg(), minus_end }
    }

    /// Returns the kernel's structure.
    pub(crate) fn with_flags(self, ss_flags: c_int) -> libc::stack_t {
        libc::stack_t { ss_sp: self.at as *mut c_void, ss_flags, ss_size: self.len }
    }
}

impl Block {
    /// Makes a block for a thread with the host's stack `stack`, whose frames go below `first`.
    pub(crate) fn new(stack: Range<usize>, first: usize) -> Self {
        let first = (first - FRAME) & !63;
        Self {
            this: core::ptr::null_mut(),
            next: first,
            host_fs: fs_base(),
            guest_fs: 0,
            frame: core::ptr::null_mut(),
            left: 0,
            stack,
            pending: 0,
            due: 0,
            blocked: 0,
            blocked_once: 0,
            put_off: 0,
            number: 0,
            mask: 0,
            alternate: AlternateStack::default(),
            is_blocked: 0,
            mask_before: 0,
            kept: [0; 6],
            all_signals: !0,
            is_disabled: false,
            cleared: core::ptr::null_mut(),
            robust: 0,
            host_robust: [0; 2],
            start: None,
            is_first: false,
            is_alone: false,
            vforking: 0,
            entries: Entries::none(),
            kinds: kinds::all(),
        }
    }

    /// Makes this the block of the running thread. The block must not move from then on.
    pub(crate) fn install(&mut self) {
        self.this = self;
        // SAFETY: no other part of this process uses the GS register.
        unsafe { asm!("wrgsbase {}", in(reg) self.this, options(nostack, preserves_flags)) };
    }

    /// Returns true if an address is on the host's stack.
    pub(crate) fn is_on_host(&self, address: usize) -> bool {
        self.stack.contains(&address)
    }

    /// Returns true if an address is on the guest's alternate stack.
    pub(crate) fn is_on_alternate(&self, address: usize) -> bool {
        address.wrapping_sub(self.alternate.at) < self.alternate.len
    }
}

/// Returns the running thread's block.
#[inline(always)]
pub(crate) fn here() -> &'static mut Block {
    let block: *mut Block;
    // SAFETY: every thread that calls this function has a block of its own. Callers do not keep two
    // references over a call.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) block, options(nostack, readonly, preserves_flags));
        &mut *block
    }
}

/// Returns the FS base.
pub(crate) fn fs_base() -> usize {
    let base;
    // SAFETY: reads a register, which the kernel allows (checked in `begin`).
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}
