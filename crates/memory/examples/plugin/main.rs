//! A plugin of QEMU's: gives every instruction and every access of a virtual machine to a `Study`,
//! between the markers that a program in the machine executes.
//!
//!     qemu-system-x86_64 -accel tcg -smp 1 -plugin libplugin.so,out=FILE ...
//!
//! The measured part's `Report` is written to FILE as JSON. Until the trace begins nothing is
//! watched, and the machine runs at its full speed. One virtual processor and one trace only.
//!
//! Physical addresses: of data QEMU says them. Of an instruction it says where in its own memory
//! the bytes are; the machine's memory is one piece there, and the first marker, which loads
//! itself, has both addresses, and so tells where that piece begins.
//!
//! Read `sojourn_memory::markers` first. Not here: caches. The functions of QEMU's that are used
//! are declared alike in versions 1 and 2 of its interface; QEMU 7.2 has version 1.

#![allow(unsafe_code, reason = "QEMU's interface for plugins is C")]

mod interface;

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fs::File;

use crate::interface::{self as qemu, Id, Info, MemoryInfo};
use sojourn_memory::markers::{BYTES, Marker};
use sojourn_memory::{Access, Mode, Reference, Study};

/// State of the plugin.
struct Tracer {
    id: Id,
    study: Study,
    /// Where the report goes.
    out: File,
    phase: Phase,
    /// The address in QEMU's memory at which the machine's physical memory begins; 0 until the
    /// first marker.
    base: u64,
    /// The address in QEMU's memory of the marker that was executed last.
    marker: u64,
    /// The instruction that was executed last, and is executed again for each element if it is one
    /// on strings with a repeat prefix.
    last: usize,
}

/// What the machine executes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The trace has not begun: only markers are watched.
    Before,
    /// Every instruction and access goes to the study.
    Tracing,
    /// The trace is over. All is watched still: QEMU 7.2 loses track of callbacks that are taken
    /// away from a running processor, and ends.
    After,
}

/// The state, for callbacks.
struct Shared(UnsafeCell<Option<Tracer>>);

// SAFETY: QEMU calls the plugin from the one thread that runs the one virtual processor
// (`qemu_plugin_install` refuses more), and before that thread is there from its main thread.
unsafe impl Sync for Shared {}

static TRACER: Shared = Shared(UnsafeCell::new(None));

fn with(work: impl FnOnce(&mut Tracer)) {
    // SAFETY: see `Shared`; no callback calls another, so this is the only reference.
    if let Some(tracer) = unsafe { &mut *TRACER.0.get() } {
        work(tracer);
    }
}

/// An instruction in the one number that QEMU keeps for a callback: its address in QEMU's memory
/// (48 bits), its length (4 bits), whether it is repeated, and the mode.
#[derive(Clone, Copy)]
struct Packed(usize);

impl Packed {
    const SYSTEM: usize = 1 << 63;
    const REPEATED: usize = 1 << 62;
    const ADDRESS: usize = (1 << 48) - 1;

    fn new(address: usize, bytes: usize, is_repeated: bool, mode: Mode) -> Self {
        let mode = if mode == Mode::System { Self::SYSTEM } else { 0 };
        let repeated = if is_repeated { Self::REPEATED } else { 0 };
        Self(address & Self::ADDRESS | (bytes & 15) << 48 | repeated | mode)
    }

    fn mode(self) -> Mode {
        if self.0 & Self::SYSTEM == 0 { Mode::User } else { Mode::System }
    }

    fn fetch(self, base: u64) -> Reference {
        let address = (self.0 & Self::ADDRESS) as u64;
        Reference {
            mode: self.mode(),
            access: Access::Fetch,
            address: address.saturating_sub(base),
            bytes: (self.0 >> 48 & 15) as u64,
        }
    }
}

/// Returns true for an instruction on strings with a repeat prefix. QEMU executes it once for each
/// element.
fn is_repeated(bytes: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x66 | 0x67 | 0xf2 | 0xf3 | 0x40..=0x4f);
    let mut rest = bytes.iter().skip_while(|byte| is_prefix(byte));
    let is_string = matches!(rest.next(), Some(0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf));
    is_string && bytes.iter().take_while(|byte| is_prefix(byte)).any(|byte| *byte >= 0xf2)
}

extern "C" fn translated(_id: Id, block: *mut c_void) {
    // SAFETY: the block is valid during the callback, and so are its instructions.
    let count = unsafe { qemu::qemu_plugin_tb_n_insns(block) };
    for number in 0..count {
        // SAFETY: the block is valid during the callback; the number is below the count.
        let instruction = unsafe { qemu::qemu_plugin_tb_get_insn(block, number) };
        // SAFETY: the instruction is valid during the callback, as its block is.
        let (place, bytes, address) = unsafe {
            (
                qemu::qemu_plugin_insn_haddr(instruction) as usize,
                qemu::qemu_plugin_insn_size(instruction),
                qemu::qemu_plugin_insn_vaddr(instruction),
            )
        };
        // An instruction in a device's memory has no place in QEMU's.
        if place == 0 {
            continue;
        }
        // The bytes of an instruction that goes on in another page are not read: what follows in
        // QEMU's memory may be another's.
        let whole = (address % 4096) as usize + bytes <= 4096;
        let code = if whole {
            // SAFETY: QEMU says that the instruction's bytes are there, and the page has them all.
            unsafe { std::slice::from_raw_parts(place as *const u8, bytes) }
        } else {
            &[]
        };
        let mode = if address >> 63 == 0 { Mode::User } else { Mode::System };
        watch(instruction, Packed::new(place, bytes, is_repeated(code), mode), code);
    }
}

fn watch(instruction: *mut c_void, packed: Packed, code: &[u8]) {
    let data = std::ptr::without_provenance_mut(packed.0);
    let marker = if code.len() == BYTES { Marker::of(code) } else { None };
    with(|tracer| {
        // SAFETY: the instruction is valid in this callback; the callbacks have the types that the
        // interface says, and live as long as the plugin, which is never unloaded.
        unsafe {
            if tracer.phase == Phase::Tracing {
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    executed,
                    qemu::NO_REGISTERS,
                    data,
                );
            }
            if let Some(marker) = marker {
                let callback = match marker {
                    Marker::Trace => at_trace,
                    Marker::Begin => at_begin,
                    Marker::End => at_end,
                };
                qemu::qemu_plugin_register_vcpu_insn_exec_cb(
                    instruction,
                    callback,
                    qemu::NO_REGISTERS,
                    data,
                );
            }
            let accessed = match (tracer.phase, marker) {
                (Phase::Tracing, _) => accessed,
                (Phase::Before, Some(_)) => marker_read,
                _ => return,
            };
            qemu::qemu_plugin_register_vcpu_mem_cb(
                instruction,
                accessed,
                qemu::NO_REGISTERS,
                qemu::READS_AND_WRITES,
                data,
            );
        }
    });
}

extern "C" fn executed(_cpu: c_uint, data: *mut c_void) {
    let packed = Packed(data.addr());
    with(|tracer| {
        let is_again = tracer.last == packed.0 && packed.0 & Packed::REPEATED != 0;
        tracer.last = packed.0;
        if !is_again && tracer.phase == Phase::Tracing {
            tracer.study.refer(&packed.fetch(tracer.base));
        }
    });
}

extern "C" fn accessed(_cpu: c_uint, info: MemoryInfo, address: u64, data: *mut c_void) {
    let mode = Packed(data.addr()).mode();
    // SAFETY: the information is that of this callback.
    let (is_write, shift, place) = unsafe {
        (
            qemu::qemu_plugin_mem_is_store(info),
            qemu::qemu_plugin_mem_size_shift(info),
            qemu::qemu_plugin_get_hwaddr(info, address),
        )
    };
    if place.is_null() {
        return;
    }
    // SAFETY: the place is valid in this callback.
    let (is_device, address) = unsafe {
        (qemu::qemu_plugin_hwaddr_is_io(place), qemu::qemu_plugin_hwaddr_phys_addr(place))
    };
    with(|tracer| match (is_device, is_write) {
        _ if tracer.phase != Phase::Tracing => {}
        (true, true) => {}
        (true, false) => tracer.study.read_device(mode),
        (false, _) => {
            let access = if is_write { Access::Write } else { Access::Read };
            let bytes = 1 << shift.min(6);
            tracer.study.refer(&Reference { mode, access, address, bytes });
        }
    });
}

extern "C" fn at_trace(_cpu: c_uint, data: *mut c_void) {
    with(|tracer| {
        tracer.marker = (data.addr() & Packed::ADDRESS) as u64;
        if tracer.phase == Phase::Before {
            tracer.phase = Phase::Tracing;
            // QEMU translates everything anew, with callbacks. SAFETY: the callback lives as long
            // as the plugin. QEMU runs it when no translated code runs, and has removed all
            // callbacks before.
            unsafe { qemu::qemu_plugin_reset(tracer.id, started) };
        }
    });
}

extern "C" fn marker_read(_cpu: c_uint, info: MemoryInfo, address: u64, _data: *mut c_void) {
    // SAFETY: the information is that of this callback, and the place is valid in it.
    let physical = unsafe {
        let place = qemu::qemu_plugin_get_hwaddr(info, address);
        if place.is_null() || qemu::qemu_plugin_hwaddr_is_io(place) {
            return;
        }
        qemu::qemu_plugin_hwaddr_phys_addr(place)
    };
    with(|tracer| tracer.base = tracer.marker.saturating_sub(physical));
}

extern "C" fn at_begin(_cpu: c_uint, _data: *mut c_void) {
    with(|tracer| {
        if tracer.phase == Phase::Tracing {
            tracer.study.begin();
        }
    });
}

extern "C" fn at_end(_cpu: c_uint, _data: *mut c_void) {
    with(|tracer| {
        if tracer.phase == Phase::Tracing {
            tracer.phase = Phase::After;
            if let Err(error) = serde_json::to_writer(&tracer.out, &tracer.study.report()) {
                eprintln!("plugin: {error}");
            }
        }
    });
}

extern "C" fn started(id: Id) {
    // SAFETY: the callback has the type that the interface says, and lives as long as the plugin.
    unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, translated) };
}

/// Returns the value of the plugin's argument `out`.
///
/// # Safety
/// `words` must have `count` pointers to strings.
unsafe fn file(count: c_int, words: *const *const c_char) -> Option<String> {
    (0..usize::try_from(count).ok()?).find_map(|number| {
        // SAFETY: the caller says that the pointers are valid.
        let word = unsafe { CStr::from_ptr(*words.add(number)) };
        word.to_str().ok()?.strip_prefix("out=").map(str::to_owned)
    })
}

/// QEMU calls this when it has loaded the plugin. Anything but 0 has it end.
///
/// # Safety
/// For QEMU only.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    words: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes valid arguments.
    let (info, path) = unsafe { (&*info, file(count, words)) };
    if !info.is_system || info.processors_max != 1 {
        eprintln!("plugin: it takes a system with one processor (-smp 1)");
        return 1;
    }
    let Some(path) = path else {
        eprintln!("plugin: out=FILE is missing");
        return 1;
    };
    let out = match File::create(&path) {
        Ok(out) => out,
        Err(error) => {
            eprintln!("plugin: {path}: {error}");
            return 1;
        }
    };
    let tracer =
        Tracer { id, study: Study::new(), out, phase: Phase::Before, base: 0, marker: 0, last: 0 };
    // SAFETY: no callback is registered yet, so nobody else looks at the state.
    unsafe { *TRACER.0.get() = Some(tracer) };
    started(id);
    0
}
