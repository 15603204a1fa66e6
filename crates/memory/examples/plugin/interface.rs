//! The functions of QEMU's interface for plugins (`qemu-plugin.h`, which Debian does not package)
//! that the plugin uses, and the version that it asks for.
//!
//! Not here: their use (`main`).

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

/// A plugin's number (`qemu_plugin_id_t`).
pub(crate) type Id = u64;
/// What an access is (`qemu_plugin_meminfo_t`).
pub(crate) type MemoryInfo = u32;

/// `QEMU_PLUGIN_CB_NO_REGS`.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`.
pub(crate) const READS_AND_WRITES: c_int = 3;

/// What QEMU tells a plugin of itself (`qemu_info_t`).
#[repr(C)]
pub(crate) struct Info {
    target: *const c_char,
    version_min: c_int,
    version: c_int,
    /// True if a whole system is emulated.
    pub(crate) is_system: bool,
    processors: c_int,
    /// The most virtual processors that the machine can have.
    pub(crate) processors_max: c_int,
}

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(
        id: Id,
        callback: extern "C" fn(Id, *mut c_void),
    );
    pub(crate) fn qemu_plugin_reset(id: Id, callback: extern "C" fn(Id));
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const c_void) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const c_void, number: usize) -> *mut c_void;
    pub(crate) fn qemu_plugin_insn_vaddr(instruction: *const c_void) -> u64;
    pub(crate) fn qemu_plugin_insn_haddr(instruction: *const c_void) -> *mut c_void;
    pub(crate) fn qemu_plugin_insn_size(instruction: *const c_void) -> usize;
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut c_void,
        callback: extern "C" fn(c_uint, *mut c_void),
        registers: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut c_void,
        callback: extern "C" fn(c_uint, MemoryInfo, u64, *mut c_void),
        registers: c_int,
        accesses: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_mem_is_store(info: MemoryInfo) -> bool;
    pub(crate) fn qemu_plugin_mem_size_shift(info: MemoryInfo) -> c_uint;
    pub(crate) fn qemu_plugin_get_hwaddr(info: MemoryInfo, address: u64) -> *mut c_void;
    pub(crate) fn qemu_plugin_hwaddr_is_io(place: *const c_void) -> bool;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(place: *const c_void) -> u64;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// The version of the interface, which QEMU reads before it calls the plugin.
#[unsafe(no_mangle)]
pub(crate) static qemu_plugin_version: AtomicI32 = AtomicI32::new(1);

/// Runs when the library is loaded: a QEMU that has the functions of version 2 (from 9.0 on) takes
/// no plugin for version 1. What this plugin uses is the same in both.
extern "C" fn negotiate() {
    // SAFETY: dlsym(3) takes a null handle for all objects that are loaded, and a C string.
    let found = unsafe { dlsym(std::ptr::null_mut(), c"qemu_plugin_scoreboard_new".as_ptr()) };
    if !found.is_null() {
        qemu_plugin_version.store(2, Ordering::Relaxed);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static NEGOTIATE: extern "C" fn() = negotiate;
