//! The ways in, with the addresses at which their parts begin. Not here: their instructions
//! (`enter`).

unsafe extern "C" {
    fn sojourn_enter_go();
    fn sojourn_enter_go_stub();
    fn sojourn_enter_go_saving();
    fn sojourn_enter_go_kept();
    fn sojourn_enter_go_pass();
    fn sojourn_enter_go_passed();
    fn sojourn_enter_go_check();
    fn sojourn_enter_go_left();
    fn sojourn_enter_go_late();
    fn sojourn_enter_go_end();
    fn sojourn_enter_sse();
    fn sojourn_enter_sse_stub();
    fn sojourn_enter_sse_saving();
    fn sojourn_enter_sse_kept();
    fn sojourn_enter_sse_pass();
    fn sojourn_enter_sse_passed();
    fn sojourn_enter_sse_check();
    fn sojourn_enter_sse_left();
    fn sojourn_enter_sse_late();
    fn sojourn_enter_sse_end();
    fn sojourn_enter_avx();
    fn sojourn_enter_avx_stub();
    fn sojourn_enter_avx_saving();
    fn sojourn_enter_avx_kept();
    fn sojourn_enter_avx_pass();
    fn sojourn_enter_avx_passed();
    fn sojourn_enter_avx_check();
    fn sojourn_enter_avx_left();
    fn sojourn_enter_avx_late();
    fn sojourn_enter_avx_end();
}

/// A way in, with the addresses at which its parts begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// From here to `start` the address to go on at is in `r11`, all else is the guest's.
    stub: usize,
    /// The address that trampolines jump to.
    pub(crate) start: usize,
    /// From here on the stack pointer is the frame's address.
    pub(crate) saving: usize,
    /// From here on the call's number is in the frame.
    pub(crate) kept: usize,
    /// From here to `passed` the thread leaves for the guest's own call, with the guest's FS base.
    pub(crate) pass: usize,
    /// The jump to that call: all registers but `rcx` and `r11` are the guest's.
    passed: usize,
    /// From here on the guest's registers are in the frame, with the call's result.
    pub(crate) check: usize,
    /// The jump to the guest: all registers but `rcx` and `r11` are the guest's.
    left: usize,
    /// From here on the stack pointer is the guest's, and some registers are in the frame only.
    pub(crate) late: usize,
    /// The address behind the last instruction.
    pub(crate) end: usize,
}

impl Entry {
    /// Returns true if a thread at `rip` is leaving for a call that the guest makes itself.
    pub(crate) fn passes(&self, rip: usize) -> bool {
        (self.pass..self.passed).contains(&rip)
    }
}

macro_rules! entry {
    ($($part:ident = $symbol:ident)+) => { Entry { $($part: $symbol as *const () as usize),+ } };
}

/// Returns all ways in.
#[rustfmt::skip]
pub(crate) fn entries() -> [Entry; 3] {
    [
        entry!(
            stub = sojourn_enter_go_stub start = sojourn_enter_go
            saving = sojourn_enter_go_saving kept = sojourn_enter_go_kept
            pass = sojourn_enter_go_pass passed = sojourn_enter_go_passed
            check = sojourn_enter_go_check left = sojourn_enter_go_left
            late = sojourn_enter_go_late end = sojourn_enter_go_end
        ),
        entry!(
            stub = sojourn_enter_sse_stub start = sojourn_enter_sse
            saving = sojourn_enter_sse_saving kept = sojourn_enter_sse_kept
            pass = sojourn_enter_sse_pass passed = sojourn_enter_sse_passed
            check = sojourn_enter_sse_check left = sojourn_enter_sse_left
            late = sojourn_enter_sse_late end = sojourn_enter_sse_end
        ),
        entry!(
            stub = sojourn_enter_avx_stub start = sojourn_enter_avx
            saving = sojourn_enter_avx_saving kept = sojourn_enter_avx_kept
            pass = sojourn_enter_avx_pass passed = sojourn_enter_avx_passed
            check = sojourn_enter_avx_check left = sojourn_enter_avx_left
            late = sojourn_enter_avx_late end = sojourn_enter_avx_end
        ),
    ]
}

/// Where a thread is that has all of the guest's registers, on the way in or out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// At the first instruction: the address to go on at is in `rcx`.
    Begins,
    /// Behind it: that address is in `r11`.
    Begun,
    /// At the last instruction of the way out: the address to go on at is in `rcx`.
    Leaves,
}

/// Returns where a thread is that has not changed its stack pointer yet, or has it back.
pub(crate) fn stage(rip: usize) -> Option<Stage> {
    if entries().iter().any(|one| rip == one.passed || rip == one.left) {
        return Some(Stage::Leaves);
    }
    let entry = entries().into_iter().find(|one| (one.stub..one.saving).contains(&rip))?;
    Some(if rip == entry.start { Stage::Begins } else { Stage::Begun })
}
