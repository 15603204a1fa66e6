//! Stacks of the library's own, for work that does not fit on the program's.
//!
//! A caller may have little stack: a thread of `PTHREAD_STACK_MIN`, a coroutine, a handler on an
//! alternate stack. What a move, a way home or a packet needs is several times what the C library's
//! function would. Such work never waits with handlers let in (`Host::wait_begins`), so handlers
//! always find the program's own stack. Read `Host::on_own_stack` first.
//!
//! # Theory of operation
//! Stacks are shared by all threads: one is taken, used and put back; there is no lock. The first
//! two are part of this object's zeroed data, others are mapped when as many threads have such work
//! at a time. The caller's registers are left on the caller's stack, where who looks through stacks
//! for pointers finds them, and where an unwinder goes on.

use crate::handlers::{in_handler, stack_pointer};
use crate::heap::{map, unmap};
use crate::raw;
use crate::tls::{Thread, here};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a stack.
const LEN: usize = 128 << 10;
/// The lowest page of a mapped one, which nobody may touch.
const GUARD: usize = 4096;
/// Stacks that are kept; who finds none free maps one for the time being.
const MOST: usize = 32;
/// Of these, such as need no mapping.
const BUILT_IN: usize = 2;
/// Beside the address of a stack: somebody is on it.
const TAKEN: usize = 1;

#[repr(C, align(4096))]
struct BuiltIn(UnsafeCell<[[u8; LEN]; BUILT_IN]>);

// SAFETY: whoever has taken a stack is the only one to touch it.
unsafe impl Sync for BuiltIn {}

static BUILT_IN_STACKS: BuiltIn = BuiltIn(UnsafeCell::new([[0; LEN]; BUILT_IN]));

/// The lowest address of each stack and whether it is taken; 0: not made.
static STACKS: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];

/// A stack that is taken; put back when dropped, also by a panic.
struct Own {
    lowest: usize,
    /// Where it is kept; none: it is unmapped.
    place: Option<&'static AtomicUsize>,
    thread: &'static Thread,
    /// The signals that were blocked before, if all are blocked now.
    mask: Option<u64>,
}

impl Own {
    fn take(thread: &'static Thread) -> Option<Self> {
        let (lowest, place) =
            match STACKS.iter().enumerate().find_map(|(at, place)| try_take(at, place)) {
                Some((lowest, place)) => (lowest, Some(place)),
                None => (make()?, None),
            };
        // Seen from there the kernel would take an alternate stack that a handler runs on for a
        // free one.
        let mask = in_handler(thread).then(|| set_mask(!0));
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
            // SYNC: release; pairs with the exchange in `try_take`: its last user is off it.
            Some(place) => place.store(self.lowest, Ordering::Release),
            None => unmap((self.lowest - GUARD) as *mut u8, LEN + GUARD),
        }
        if let Some(mask) = self.mask {
            set_mask(mask);
        }
    }
}

/// Takes the stack of a place if it is free, made if need be.
fn try_take(at: usize, place: &'static AtomicUsize) -> Option<(usize, &'static AtomicUsize)> {
    let now = place.load(Ordering::Relaxed);
    if now & TAKEN != 0 {
        return None;
    }
    // SYNC: acquire; pairs with the store when it is put back.
    let swap = place.compare_exchange(now, now | TAKEN, Ordering::Acquire, Ordering::Relaxed);
    if swap.is_err() {
        return None;
    }
    let lowest = if now != 0 { Some(now) } else { built_in(at).or_else(make) };
    if lowest.is_none() {
        place.store(0, Ordering::Relaxed);
    }
    Some((lowest?, place))
}

fn built_in(at: usize) -> Option<usize> {
    (at < BUILT_IN).then(|| BUILT_IN_STACKS.0.get() as usize + at * LEN)
}

/// Maps a stack with a guard below; its lowest address.
fn make() -> Option<usize> {
    let at = map(LEN + GUARD)?.as_ptr() as usize;
    // SAFETY: the lowest page of what was just mapped.
    unsafe { raw::call(libc::SYS_mprotect, [at, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
    Some(at + GUARD)
}

/// In a `fork` child: those whose threads are not here are free.
pub(crate) fn became_child() {
    for place in &STACKS {
        place.fetch_and(!TAKEN, Ordering::Relaxed);
    }
}

fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let (new, old) = ((&raw const mask) as usize, (&raw mut before) as usize);
    // SAFETY: both masks are ours.
    unsafe {
        raw::call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, new, old, 8, 0, 0]);
    }
    before
}

/// Does `work` on a stack of the library's own, or where it is if there is none, or if this is one.
pub(crate) fn run(work: &mut dyn FnMut()) {
    let thread = here();
    if thread.own_stack.load(Ordering::Relaxed) != 0 {
        return work();
    }
    match Own::take(thread) {
        // SAFETY: the stack is this thread's until it is put back, after the work.
        Some(own) => unsafe { switch((&raw const work).cast(), own.highest(), call) },
        None => work(),
    }
}

extern "C-unwind" fn call(work: *const &mut dyn FnMut()) {
    // SAFETY: what `run` handed over, which waits there.
    unsafe { (*work.cast_mut())() }
}

/// Calls `call` with `work` on the stack that ends at `highest`.
#[unsafe(naked)]
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
