//! The ways in, with the addresses at which their parts begin. Not here: their instructions
//! (`enter`).

use core::ops::Deref;

unsafe extern "C" {
    fn sojourn_enter_go();
    fn sojourn_enter_sse();
    fn sojourn_enter_avx();
    static sojourn_enter_go_table: Parts<i32>;
    static sojourn_enter_sse_table: Parts<i32>;
    static sojourn_enter_avx_table: Parts<i32>;
}

/// The places at which the parts of a way in begin: addresses, or distances from its start.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<T> {
    /// From here on the stack pointer may be on the alternate stack. The address to go on at is in
    /// `r11`.
    pub(crate) alternate: T,
    /// From here to `stub` the guest's registers are in the block.
    pub(crate) blocking: T,
    /// From here to the start the address to go on at is in `r11`, all else is the guest's.
    pub(crate) stub: T,
    /// From here on the stack pointer is the frame's address.
    pub(crate) saving: T,
    /// From here on the call's number is in the frame.
    pub(crate) kept: T,
    /// From here to `passed` the thread leaves for the guest's own call, with the guest's FS base.
    pub(crate) pass: T,
    /// The jump to that call: all registers but `rcx` and `r11` are the guest's.
    passed: T,
    /// From here on the guest's registers are in the frame, with the call's result.
    pub(crate) check: T,
    /// The jump to the guest: all registers but `rcx` and `r11` are the guest's.
    left: T,
    /// From here on the stack pointer is the guest's, and some registers are in the frame only.
    pub(crate) late: T,
    /// The address behind the last instruction.
    pub(crate) end: T,
}

/// A way in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryPoint {
    /// The address that trampolines jump to.
    pub(crate) start: usize,
    parts: Parts<usize>,
}

impl Deref for EntryPoint {
    type Target = Parts<usize>;

    fn deref(&self) -> &Parts<usize> {
        &self.parts
    }
}

impl EntryPoint {
    fn new(start: unsafe extern "C" fn(), table: &Parts<i32>) -> Self {
        let start = start as *const () as usize;
        let at = |distance: i32| start.wrapping_add_signed(distance as isize);
        let parts = Parts {
            alternate: at(table.alternate),
            blocking: at(table.blocking),
            stub: at(table.stub),
            saving: at(table.saving),
            kept: at(table.kept),
            pass: at(table.pass),
            passed: at(table.passed),
            check: at(table.check),
            left: at(table.left),
            late: at(table.late),
            end: at(table.end),
        };
        Self { start, parts }
    }

    /// Returns true if a thread at `rip` is leaving for a call that the guest makes itself.
    pub(crate) fn passes(&self, rip: usize) -> bool {
        (self.pass..self.passed).contains(&rip)
    }
}

/// Returns all ways in.
pub(crate) fn entries() -> [EntryPoint; 3] {
    // SAFETY: constants of the assembly's, which has a table for each way in.
    unsafe {
        [
            EntryPoint::new(sojourn_enter_go, &sojourn_enter_go_table),
            EntryPoint::new(sojourn_enter_sse, &sojourn_enter_sse_table),
            EntryPoint::new(sojourn_enter_avx, &sojourn_enter_avx_table),
        ]
    }
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
