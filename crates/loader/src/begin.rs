//! From the loader's start to the guest's first instruction.
//!
//! Not here: the loader's own arguments (`plain`), reading and mapping the program (`load`), the
//! reasons not to load it (`refusal`). Read `main` first.

use crate::block::{Block, FRAME, Frame};
use crate::dispatch::let_pass;
use crate::exec::PRELOAD;
use crate::guest::{self, Guest, TrapRange, guest};
use crate::load::{File, Loaded, Part, load};
use crate::plain::{Given, NOT_RUN, plainly, starts_with};
use crate::refusal::Refusal;
use crate::threads::STACK;
use crate::told::{self, Places};
use crate::{cache, enter, host, raw, starts, trap};
use core::ffi::{CStr, c_char, c_int};
use core::ops::Range;
use sojourn_abi::patch::Trampoline;
use sojourn_abi::stack::{AuxEntry, EXECFN, Facts, auxiliary, value, words};
use std::ffi::CString;

/// Becomes the program, in a process with the host. Returns only if the program cannot be started.
pub(crate) fn begin(given: &Given) -> c_int {
    let Some(door) = host::find_door() else {
        return plainly(given, possible(given).err().unwrap_or(Refusal::NoLibrary));
    };
    guest::set_door(door);
    match prepare(given) {
        Ok(ready) => become_guest(ready),
        Err(refusal) => plainly(given, refusal),
    }
}

/// Becomes the program, in a process without the host. Returns why the program cannot be started.
pub(crate) fn without_host(given: &Given) -> Refusal {
    match prepare(given) {
        Ok(ready) => {
            become_guest(ready);
            Refusal::Ended
        }
        Err(refusal) => refusal,
    }
}

/// A guest that is ready to begin.
struct Ready {
    words: Vec<u64>,
    /// The entries of the auxiliary vector, which ends the words.
    entries: usize,
    /// What the kernel is told.
    places: Option<Places>,
    entry: usize,
    /// The addresses of the host's stack.
    stack: Range<usize>,
}

fn prepare(given: &Given) -> Result<Ready, Refusal> {
    possible(given)?;
    let stack = stack()?;
    let loader = own_path(given).or_else(|| raw::link(OWN)).unwrap_or_default();
    let own_file = raw::status_at(&loader).or_else(|| raw::status_at(OWN));
    cache::open(&given.environment, own_file.as_ref());
    let file = File::open_directly(given.path)?;
    if file.image.wants_executable_stack {
        return Err(Refusal::ExecutableStack);
    }
    let entry = enter::entry_for(file.image.is_go && file.image.interpreter.is_none());
    let program = load(&file, Part::Program, entry)?;
    if file.image.interpreter.is_none() {
        starts::keep(file.key(given.path), &given.environment);
    }
    let interpreter = match file.interpreter() {
        Some(path) => Some(load(&File::open(path)?, Part::Interpreter, entry)?),
        None => None,
    };
    let Missed { trapped, left } = missed(&program, interpreter.as_ref())?;
    let (breaks, trampolines) = (&program.plan.breaks, all_trampolines(&program, &interpreter));
    let has_loader = interpreter.is_some();
    let hidden = given.environment.iter().find(|one| has_loader && starts_with(**one, PRELOAD));
    // SAFETY: a string of the environment.
    let preload = hidden.map(|one| unsafe { CStr::from_ptr(*one) }.to_owned());
    guest::set(Guest {
        file: file.path().unwrap_or_else(|| given.path.to_owned()),
        loader,
        loader_id: own_file.as_ref().map(raw::identity).unwrap_or_default(),
        entry,
        breaks: breaks.start as usize..breaks.end as usize,
        preload,
        left: left.into_boxed_slice(),
        trampolines,
        trapped,
    });
    let first = interpreter.as_ref().map_or(program.plan.entry, |one| one.plan.entry);
    let interpreter = interpreter.as_ref().map_or(0, |one| one.plan.base);
    let facts = Facts {
        headers_at: program.plan.headers_at,
        headers: file.image.headers.into(),
        interpreter,
        entry: program.plan.entry,
        path: given.path.as_ptr() as u64,
    };
    let vector = auxiliary(&given.auxiliary, facts);
    let words = initial_stack(given, &vector, has_loader);
    told::name(given.path);
    let places = Places::new(given, &program.plan);
    Ok(Ready { words, entries: vector.len(), places, entry: first as usize, stack })
}

/// The link to the loader's own file.
const OWN: &CStr = c"/proc/self/exe";

/// Returns the path that the loader was started with, which costs less than the question to `/proc`
/// where it is. `None`: the path leads there only now.
fn own_path(given: &Given) -> Option<CString> {
    let path = value(&given.auxiliary, EXECFN) as *const c_char;
    // SAFETY: a string of the process's stack.
    let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) })?;
    let is_lasting = |path: &[u8]| !path.starts_with(b"/dev/") && !path.starts_with(b"/proc/");
    (path.to_bytes().starts_with(b"/") && is_lasting(path.to_bytes())).then(|| path.to_owned())
}

/// Returns the words of the initial stack: arguments, environment, auxiliary vector.
/// `hides_preload`: the program does not see `LD_PRELOAD`.
fn initial_stack(given: &Given, vector: &[AuxEntry], hides_preload: bool) -> Vec<u64> {
    let is_shown = |one: &&*const c_char| !(hides_preload && starts_with(**one, PRELOAD));
    let pointers = |list: &[*const c_char]| list.iter().map(|one| *one as u64).collect::<Vec<_>>();
    let shown: Vec<_> = given.environment.iter().filter(is_shown).copied().collect();
    words(&pointers(&given.words), &pointers(&shown), vector)
}

/// Checks that this processor and kernel have the necessary features.
fn possible(given: &Given) -> Result<(), Refusal> {
    /// The variable by which valgrind tells its own program where it is.
    const SIMULATOR: &[u8] = b"VALGRIND_LAUNCHER=";
    if given.environment.iter().any(|one| starts_with(*one, SIMULATOR)) {
        return Err(Refusal::Simulator);
    }
    /// `HWCAP2_FSGSBASE`.
    const BASES: u64 = 2;
    if value(&given.auxiliary, libc::AT_HWCAP2) & BASES == 0 {
        return Err(Refusal::NoBases);
    }
    /// `PR_GET_MDWE`; its lowest bit is `PR_MDWE_REFUSE_EXEC_GAIN` (prctl(2)).
    const MDWE: usize = 66;
    // SAFETY: reads a setting.
    let mdwe = unsafe { raw::call(libc::SYS_prctl, [MDWE, 0, 0, 0, 0, 0]) };
    if mdwe > 0 && mdwe & 1 != 0 { Err(Refusal::WriteExecute) } else { Ok(()) }
}

/// Returns the trampolines of both parts, in ascending order.
fn all_trampolines(program: &Loaded, interpreter: &Option<Loaded>) -> Box<[Trampoline]> {
    let parts = [Some(program), interpreter.as_ref()].into_iter().flatten();
    let mut all: Vec<_> = parts.flat_map(|one| one.trampolines.iter().copied()).collect();
    all.sort_unstable_by_key(|one| one.back);
    all.into_boxed_slice()
}

/// The calls that could not be rewritten.
struct Missed {
    /// The range that contains them all; `None` if there are none.
    trapped: Option<TrapRange>,
    /// Their addresses, in ascending order.
    left: Vec<usize>,
}

fn missed(program: &Loaded, interpreter: Option<&Loaded>) -> Result<Missed, Refusal> {
    let inner = interpreter.map_or(&[][..], |one| &one.left);
    let mut left: Vec<usize> = program.left.iter().chain(inner).copied().collect();
    left.sort_unstable();
    let (Some(first), Some(last)) = (left.first(), left.last()) else {
        return Ok(Missed { trapped: None, left });
    };
    // The kernel traps one range only. If both parts have such calls, the range would span
    // everything between them, with the host's calls.
    let is_one = program.left.is_empty() || inner.is_empty();
    if !is_one || !trap::is_possible() {
        return Err(Refusal::Untrapped(left.len()));
    }
    // The kernel compares the address behind the two-byte instruction, so the range extends beyond
    // the last one.
    let trapped = Some(TrapRange { at: *first, len: last - first + 4 });
    Ok(Missed { trapped, left })
}

/// Maps a stack for the host. The guest gets the process's own stack, which grows.
fn stack() -> Result<Range<usize>, Refusal> {
    const GUARD: usize = 4096;
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    let arguments = [0, STACK + GUARD, access, flags as usize, usize::MAX, 0];
    // SAFETY: the kernel chooses an address that is not in use.
    let at = unsafe { raw::call(libc::SYS_mmap, arguments) };
    let at = usize::try_from(at).map_err(|_| Refusal::Kernel(-at as i32))?;
    // SAFETY: the lowest page of the new mapping becomes the guard page.
    unsafe { raw::call(libc::SYS_mprotect, [at, GUARD, libc::PROT_NONE as usize, 0, 0, 0]) };
    Ok(at + GUARD..at + GUARD + STACK)
}

/// Bytes of the process's stack below this function that are left alone.
const USED: usize = 16 << 10;

fn become_guest(mut ready: Ready) -> c_int {
    let mask = raw::block_signals();
    trap::install();
    // The block lives as long as the process.
    let block = Box::leak(Box::new(Block::new(ready.stack.clone(), ready.stack.end)));
    block.is_first = true;
    let_pass(block);
    block.install();
    trap::arm();
    let local = 0u8;
    let len = size_of_val(ready.words.as_slice());
    let at = ((&raw const local) as usize - USED - len) & !15;
    let mut frame = Frame::empty();
    frame.rsp = at;
    frame.back = ready.entry;
    let place = block.next as *mut Frame;
    const { assert!(FRAME < STACK) };
    // SAFETY: the process's stack is free below this function's frame, and grows. `place` is the
    // block's next frame. Nothing that this function has on the stack is used afterwards.
    unsafe {
        core::ptr::copy_nonoverlapping(ready.words.as_ptr(), at as *mut u64, ready.words.len());
        if let Some(places) = ready.places.take() {
            places.tell(
                core::slice::from_raw_parts(at as *const u64, ready.words.len()),
                ready.entries,
            );
        }
        place.write(frame);
        drop(ready);
        let _ = guest();
        enter::begin(place, mask);
    }
    NOT_RUN
}
