//! What proc(5) tells others of the process, as far as the process may set that itself: its name,
//! its auxiliary vector, and where its code, its data and its stack are.
//!
//! Debuggers read these, and programs that cannot ask their own C library. The kernel has set them
//! for the loader. Not here: the link to the program's file (`files`), which the kernel lets nobody
//! change who still has the old file mapped.

use crate::plain::Given;
use crate::raw;
use core::ffi::{CStr, c_char};
use sojourn_abi::layout::Plan;
use sojourn_abi::stack::AuxEntry;
use std::ffi::CString;

/// Where the program's parts are: `struct prctl_mm_map` (prctl(2), `PR_SET_MM_MAP`).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Places {
    code: Extent,
    data: Extent,
    breaks: Extent,
    stack: u64,
    arguments: Extent,
    environment: Extent,
    auxiliary: u64,
    auxiliary_len: u32,
    /// The descriptor of a new file for the link `exe`.
    file: u32,
}

/// The first address and the end; zeroes for nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Extent {
    start: u64,
    end: u64,
}

impl Places {
    /// Collects the places of a program that is planned so. `None`: nothing can be told.
    pub(crate) fn new(given: &Given, plan: &Plan) -> Option<Self> {
        const NO_FILE: u32 = u32::MAX;
        // Who reads the vector looks for the headers.
        if plan.headers_at == 0 {
            return None;
        }
        // The program's break is the loader's work: the kernel's stays the host's.
        // SAFETY: asks only.
        let end = unsafe { raw::call(libc::SYS_brk, [0; 6]) } as u64;
        Some(Self {
            code: extent(plan, |[_, _, executes]| executes),
            data: extent(plan, |[_, writes, _]| writes),
            breaks: Extent { start: end, end },
            stack: 0,
            arguments: strings(&given.words)?,
            environment: strings(&given.variables)?,
            auxiliary: 0,
            auxiliary_len: 0,
            file: NO_FILE,
        })
    }

    /// Tells the kernel. `words` are the first words of the program's stack, and the auxiliary
    /// vector is the last `entries` of them. Kernels that cannot restore processes refuse that;
    /// then the loader's are shown.
    pub(crate) fn tell(mut self, words: &[u64], entries: usize) {
        /// `PR_SET_MM`, `PR_SET_MM_MAP`.
        const SET: usize = 35;
        const MAP: usize = 14;
        let len = entries * size_of::<AuxEntry>();
        self.stack = words.as_ptr() as u64;
        self.auxiliary = self.stack + (size_of_val(words) - len) as u64;
        self.auxiliary_len = len as u32;
        let at = (&raw const self) as usize;
        // SAFETY: the kernel copies the structure and the vector, and uses them to tell others.
        unsafe { raw::call(libc::SYS_prctl, [SET, MAP, at, size_of::<Self>(), 0, 0]) };
    }
}

/// Returns where the strings of a list are, which the kernel has put one behind the other.
fn strings(list: &[*const c_char]) -> Option<Extent> {
    let (first, last) = (*list.first()?, *list.last()?);
    // SAFETY: a string of the process's stack.
    let len = unsafe { CStr::from_ptr(last) }.to_bytes_with_nul().len();
    Some(Extent { start: first as u64, end: last as u64 + len as u64 })
}

/// Returns where the mappings with such an access are.
fn extent(plan: &Plan, has: impl Fn([bool; 3]) -> bool) -> Extent {
    let all = || plan.mappings.iter().filter(|one| has(one.access));
    let start = all().map(|one| one.at).min().unwrap_or_default();
    Extent { start, end: all().map(|one| one.at + one.len).max().unwrap_or_default() }
}

/// Names the process as the kernel would name the program's (`comm`).
pub(crate) fn name(path: &CStr) {
    let name = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if let Ok(name) = CString::new(name) {
        let arguments = [libc::PR_SET_NAME as usize, name.as_ptr() as usize, 0, 0, 0, 0];
        // SAFETY: a string; the kernel copies its beginning.
        unsafe { raw::call(libc::SYS_prctl, arguments) };
    }
}
