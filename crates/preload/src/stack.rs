//! Stacks of the library's own, for work that may need more stack than the program has left.
//!
//! A caller may have little stack: a thread of `PTHREAD_STACK_MIN`, a coroutine, a handler on an
//! alternate stack. A move, a way home or a packet needs several times the stack of the C library's
//! function. Such work never waits with handlers admitted (`Host::wait_begins`), so signal handlers
//! always run on the program's own stack. Read `Host::on_own_stack` first.
//!
//! # Theory of operation
//! All threads share the stacks: a thread takes one, uses it and puts it back, without a lock. The
//! first two stacks are part of this object's zeroed data. More are mapped when several threads
//! need one at the same time. The caller's registers are saved on the caller's stack: garbage
//! collectors that scan stacks for pointers find them there, and an unwinder continues there.

use crate::handlers::{in_handler, stack_pointer};
use crate::heap::{map, unmap};
use crate::tls::{Thread, here};
use crate::{mask, raw};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a stack.
const LEN: usize = 128 << 10;
/// Bytes of the guard page below a mapped stack, which faults on every access.
const GUARD: usize = 4096;
/// The most stacks that are kept. A thread that finds none free maps a stack and unmaps it
/// afterwards.
const MOST: usize = 32;
/// The number of kept stacks that need no mapping.
const BUILT_IN: usize = 2;
/// Set beside the address of a stack while a thread uses the stack.
const TAKEN: usize = 1;

#[repr(C, align(4096))]
struct BuiltIn(UnsafeCell<[[u8; LEN]; BUILT_IN]>);

// SAFETY: only the thread that has taken a stack touches it.
unsafe impl Sync for BuiltIn {}

static BUILT_IN_STACKS: BuiltIn = BuiltIn(UnsafeCell::new([[0; LEN]; BUILT_IN]));

/// The lowest address of each stack, with `TAKEN`; 0 if the stack has not been made yet.
static STACKS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// A stack that this thread has taken. Dropping the value puts the stack back, also after a panic.
struct Own {
    lowest: usize,
    /// The stack's place in `STACKS`; `None` if the stack is unmapped after use.
    place: Option<&'static AtomicUsize>,
    thread: &'static Thread,
    /// The signals that were blocked before, if all signals are blocked now.
    mask: Option<u64>,
}

impl Own {
    fn take(thread: &'static Thread) -> Option<Self> {
        let (lowest, place) = match STACKS
            .iter()
            .enumerate()
            .find_map(|(at, place)| Some((try_take(at, place)?, place)))
        {
            Some((lowest, place)) => (lowest, Some(place)),
            None => (make()?, None),
        };
        // A handler may run on an alternate stack (sigaltstack(2)). While the stack pointer is
        // elsewhere, the kernel would take that stack for free and start another handler at its
        // top. So all signals are blocked.
        let mask = in_handler(thread).then(|| mask::change(libc::SIG_SETMASK, !0));
        thread.own_stack.store(stack_pointer(), Ordering::Relaxed);
        Some(Self { lowest, place, thread, mask })
    }

    fn highest(&self) -> usize {
        self.lowest + LEN
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.thread.own_stack.store(0, Ordering::Relaxed);
        match self.place {
            // SYNC: release; pairs with the exchange in `try_take`: the last user has left the
            // stack.
            Some(place) => place.store(self.lowest, Ordering::Release),
            None => unmap((self.lowest - GUARD) as *mut u8, LEN + GUARD),
        }
        if let Some(mask) = self.mask {
            mask::change(libc::SIG_SETMASK, mask);
        }
    }
}

/// Takes the stack of one place if the stack is free, and makes it if need be. Returns the stack's
/// lowest address.
fn try_take(at: usize, place: &AtomicUsize) -> Option<usize> {
    let now = place.load(Ordering::Relaxed);
    if now & TAKEN != 0 {
        return None;
    }
    // SYNC: acquire; pairs with the store that puts the stack back (`drop`).
    let swap = place.compare_exchange(now, now | TAKEN, Ordering::Acquire, Ordering::Relaxed);
    if swap.is_err() {
        return None;
    }
    let lowest = if now != 0 { Some(now) } else { built_in(at).or_else(make) };
    if lowest.is_none() {
        place.store(0, Ordering::Relaxed);
    }
    lowest
}

fn built_in(at: usize) -> Option<usize> {
    (at < BUILT_IN).then(|| BUILT_IN_STACKS.0.get() as usize + at * LEN)
}

/// Maps a stack with a guard page below. Returns the stack's lowest address.
fn make() -> Option<usize> {
    let at = map(LEN + GUARD)?.as_ptr() as usize;
    // SAFETY: the lowest page of the new mapping.
    unsafe { raw::call(libc::SYS_mprotect, [at, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
    Some(at + GUARD)
}

/// Frees all stacks in a child of `fork`: the threads that used them do not exist there.
pub(crate) fn became_child() {
    for place in &STACKS {
        place.fetch_and(!TAKEN, Ordering::Relaxed);
    }
}

/// Calls `work` on a stack of the library's own. Calls it on the current stack if that is such a
/// stack already, or if no stack can be made.
pub(crate) fn run(work: &mut dyn FnMut()) {
    let thread = here();
    if thread.own_stack.load(Ordering::Relaxed) != 0 {
        return work();
    }
    match Own::take(thread) {
        // SAFETY: the stack belongs to this thread until `own` is dropped, after the work.
        Some(own) => unsafe { switch((&raw const work).cast(), own.highest(), call) },
        None => work(),
    }
}

extern "C-unwind" fn call(work: *const &mut dyn FnMut()) {
    // SAFETY: `run` passes a reference that stays valid until this call returns.
    unsafe { (*work.cast_mut())() }
}

/// Calls `call` with `work` on the stack that ends at `highest`.
#[unsafe(naked)]
#[cfg(target_arch = "x86_64")]
unsafe extern "C-unwind" fn switch(
    work: *const &mut dyn FnMut(),
    highest: usize,
    call: extern "C-unwind" fn(*const &mut dyn FnMut()),
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov rsp, rsi",
        "call rdx",
        "lea rsp, [rbp - 40]",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Calls `call` with `work` on the stack that ends at `highest`. The callee keeps the vector
/// registers that a caller may rely on, so they are not saved.
#[unsafe(naked)]
#[cfg(target_arch = "aarch64")]
unsafe extern "C-unwind" fn switch(
    work: *const &mut dyn FnMut(),
    highest: usize,
    call: extern "C-unwind" fn(*const &mut dyn FnMut()),
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-96]!",
        ".cfi_def_cfa_offset 96",
        ".cfi_offset x29, -96",
        ".cfi_offset x30, -88",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "stp x19, x20, [sp, #16]",
        "stp x21, x22, [sp, #32]",
        "stp x23, x24, [sp, #48]",
        "stp x25, x26, [sp, #64]",
        "stp x27, x28, [sp, #80]",
        "mov sp, x1",
        "blr x2",
        "mov sp, x29",
        // The same registers have kept their values. They are on the stack for collectors of
        // garbage alone.
        ".cfi_def_cfa_register sp",
        "ldp x29, x30, [sp], #96",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "ret",
        ".cfi_endproc",
    )
}
